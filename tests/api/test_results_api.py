"""Survey, recommendation and report from Python: the words of the commands, typed results."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

import mops
from mops.api.results import SurveyRun
from mops.cli.options import source_options, stack, training_options
from mops.errors import UsageError
from mops.surveys.results.judge import judge_survey
from mops.tables import Cell, Shown, Table
from surveying import Skill, made_survey, write_survey

pandas = pytest.importorskip("pandas")
RECIPE = {"config", "encoder", "tasks", "device", "settings"}  # options that a recipe stands for
SCREEN = {"as_json", "mode", "pack", "packed"}  # what is printed or packed


@pytest.fixture
def run(tmp_path: Path) -> SurveyRun:
    survey: Any = made_survey("shared", "hybrid:3", "separate")
    write_survey(tmp_path, survey, {n: Skill(0.6) for n in ("shared", "hybrid:3", "separate")})
    results = judge_survey(survey, tmp_path)
    results.write()
    return SurveyRun(tmp_path, survey, results)


@pytest.mark.parametrize("name", ["check", "survey", "recommend", "report"])
def test_the_words_are_those_of_the_command(name: str) -> None:
    command: click.Command = importlib.import_module(f"mops.cli.{name}").command
    options = {option.name for option in command.params if isinstance(option, click.Option)}
    words = set(inspect.signature(getattr(mops, name)).parameters)
    probe = click.command()(stack(training_options, source_options)(lambda **_: None))
    of_recipe = RECIPE - (words if name == "survey" else set())
    if name == "check":  # `strict` is about the exit code
        of_recipe = RECIPE | {option.name for option in probe.params} | {"strict"}
    assert options - of_recipe - SCREEN == words - {
        "recipe",
        "what",
        "source",
        "survey",
        "set",
    }


def test_a_survey_is_a_table_of_candidates(run: SurveyRun) -> None:
    frame = run.to_frame()
    assert list(frame["candidate"]) == [one.name for one in run.results.candidates]
    assert frame["overall"].tolist() == [one.overall.mean for one in run.results.candidates]
    assert {"overall_stderr", "sentiment", "parameters", "training"} <= set(frame)
    assert frame["parameters"].dtype.kind in "if"
    assert run.table.columns[:3] == ("best?", "candidate", "overall")


def test_what_needs_no_training_is_no_candidate(run: SurveyRun) -> None:
    known = replace(run.results, references={"untrained encoder": {"sentiment": 0.3}})
    assert len(run.table.rows) < len(replace(run, results=known).table.rows)
    assert replace(run, results=known).to_frame().equals(run.to_frame())


def test_a_survey_reads_well(run: SurveyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SurveyRun, "transfer", [])  # of made surveys nothing is known
    text, page = repr(run), run._repr_html_()
    for one in run.results.candidates:
        assert f"{one.overall.mean:.3f} ± {one.overall.stderr:.3f}" in text
        assert f"{one.overall.mean:.3f} ± {one.overall.stderr:.3f}" in page
    assert text.endswith(str(run.folder)) and "within 0.01 of the best" in text
    assert page.count("<table>") == page.count("</table>") >= 3


def test_recommend_takes_a_survey_a_folder_and_texts(run: SurveyRun) -> None:
    decision = run.recommend(max_params="40M", max_train_time="1h", worth=0.5)
    assert isinstance(decision, mops.Decision) and decision.worth == 0.5
    assert decision.lines == mops.recommend(run.folder, max_params=4e7, worth=0.5).lines
    assert repr(decision).startswith(decision.lines[0]) and decision.model is None
    model = run.folder / "trials" / str(decision.trial) / "model"
    model.mkdir()
    assert mops.recommend(str(run.folder), worth=0.5).model == str(model)
    assert mops.recommend(run, max_params=5).candidate is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"max_params": "many"}, "max_params 'many': write a number above 0 and its unit"),
        ({"max_latency": 0}, "max_latency 0: write a number above 0"),
        ({"sure": 0.2}, "sure 0.2: allowed: a probability from 0.5 to 0.99"),
        ({"worth": -1}, "worth -1: allowed: a number from 0 on"),
        ({"cheapest": "params"}, "cheapest 'params': allowed: parameters, "),
        ({"score": "all"}, "score 'all': allowed: overall, "),
        ({"weights": {"sentiment": -1}}, "weights {'sentiment': -1}: allowed"),
        ({"weights": {"sentimant": 1}}, "weights names 'sentimant'"),
    ],
)
def test_wrong_words_are_one_line(run: SurveyRun, words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run.recommend(**words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_survey_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="experiment 'first-look' needs a recipe"):
        mops.survey(what="first-look", out=tmp_path)
    with pytest.raises(UsageError, match="keep 'some': allowed: best, all, none"):
        mops.survey(mops.recipe(data="sample"), "first-look", keep="some", out=tmp_path)
    for words in (
        {"jobs": 0},
        {"jobs": "2"},
        {"engine": "slurm"},
        {"address": "here"},
        {"budget": "long"},
    ):
        with pytest.raises(UsageError, match=rf"^`?{next(iter(words))}`? "):
            mops.survey(mops.recipe(data="sample"), "first-look", out=tmp_path, **words)


def test_a_report_is_its_page_and_its_files(tmp_path: Path) -> None:
    from running import one_core, world

    with one_core():
        run = mops.train(world().recipe(), world().run)
    assert run.was_finished and run.model == world().run / "model"
    report = mops.report(run, out=tmp_path / "report")
    assert report.page == report.files[0] == tmp_path / "report" / "report.html"
    assert all(file.is_file() for file in report.files)
    assert repr(report) == f"report: {report.page}" and "<a href=" in report._repr_html_()
    assert f"model: {run.model}" in repr(run) and "overall_normalised" in run._repr_html_()


def test_html_is_escaped_and_complete() -> None:
    class Result(Shown):
        parts = ("a < b", Table("n", "T & t", ("x", "y"), ((Cell("<i>"), Cell("1.5", 1.5)),), "n"))

    page = Result()._repr_html_()
    assert "<div>a &lt; b</div>" in page and "T &amp; t" in page and "&lt;i&gt;" in page
    assert '<td style="text-align:right">1.5</td>' in page and "<i>" not in page
    assert repr(Result()) == "a < b\nT & t\nx      y\n<i>  1.5\nn\n"
