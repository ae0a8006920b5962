"""Records and predictions become a judged summary; what does not fit is named and left out."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mops.data.examples import Row
from mops.evaluate.evaluate import judge
from mops.predict.inference import Predictions
from mops.record import read_record
from mops.surveys.ledger import Candidate
from mops.surveys.results.rescoring import mismatches, read_predictions
from mops.surveys.results.standings import read_summary
from mops.surveys.results.summary import summarise
from mops.surveys.results.summary_files import to_markdown, write_summary
from mops.training.finish import write_predictions
from running import run_python, world
from surveying import (
    MadeSurvey,
    Named,
    Skill,
    by_name,
    made_survey,
    plain_recipe,
    write_failure,
    write_survey,
    write_trial,
)


def test_a_survey_is_judged(folder: Path, survey: MadeSurvey) -> None:
    summary = summarise(survey, folder)
    found = by_name(summary)
    assert [found[name].tie for name in ("shared", "separate", "twin", "poor")] == [1, 1, 1, 2]
    assert [one.name for one in summary.standings] == ["shared", "separate", "twin", "poor"]
    assert found["poor"].apart == ("shared", "separate", "twin") and found["twin"].apart == (
        "poor",
    )
    worse = found["poor"].against["overall"]
    assert (
        worse.is_real
        and worse.high < 0
        and worse.mean == pytest.approx(found["poor"].overall.mean - found["shared"].overall.mean)
    )
    assert set(found["poor"].gains) == {"sentiment", "similarity"}
    assert not found["shared"].against and not found["separate"].gains
    assert summary.rows["sentiment"].chose == summary.rows["sentiment"].judge == 200
    assert not summary.doubtful and not summary.failed and not summary.waiting


def test_scores_are_the_means_of_the_records(folder: Path, survey: MadeSurvey) -> None:
    """On the report half; the selection half is beside it and chose."""
    found = by_name(summarise(survey, folder))["twin"]
    records = [
        json.loads((folder / "trials" / survey.trial("twin", seed).id / "record.json").read_text())
        for seed in survey.seeds
    ]
    for task, name in (("sentiment", "accuracy"), ("similarity", "pearson")):
        scores = [one["scores"]["tasks"][task]["report"][name] for one in records]
        assert found.scores[task].mean == pytest.approx(sum(scores) / 3)
        assert [trial.scores[task] for trial in found.trials] == scores
    chosen = [one["scores"]["overall"]["selection"]["overall"] for one in records]
    assert [trial.selection for trial in found.trials] == chosen
    assert chosen != [one["scores"]["overall"]["report"]["overall"] for one in records]


def test_costs_come_from_the_pass_where_it_has_measured(folder: Path, survey: MadeSurvey) -> None:
    found = by_name(summarise(survey, folder))
    assert found["shared"].tm_relative == 1.0
    assert found["separate"].tm_relative == pytest.approx(
        found["separate"].overall.mean / found["shared"].overall.mean * (10 / 20) * (80 / 160)
    )
    facts = {"train_seconds": 5.0, "latency_seconds": 0.02, "rounds": {"step": [1.0]}}
    (folder / "costs.json").write_text(json.dumps({"twin": facts}), "utf-8")
    twin = by_name(summarise(survey, folder))["twin"]
    assert (twin.costs["latency_seconds"], twin.costs["parameters"]) == (0.02, 20_000_000)
    assert "rounds" not in twin.costs
    assert twin.tm_relative is None  # the baseline's time is of another moment
    both = {"twin": facts, "shared": facts | {"train_seconds": 2.5}}
    (folder / "costs.json").write_text(json.dumps(both), "utf-8")
    twin = by_name(summarise(survey, folder))["twin"]
    assert twin.tm_relative == pytest.approx(0.5 * twin.overall.mean / found["shared"].overall.mean)


def test_failed_and_waiting_trials_are_named(folder: Path, survey: MadeSurvey) -> None:
    failed, waiting = survey.trial("twin", 2), survey.trial("poor", 3)
    for trial in (failed, waiting):
        (folder / "trials" / trial.id / "record.json").unlink()
    write_failure(folder, failed, "the loss is not a number")
    summary = summarise(survey, folder)
    assert [(one.name, one.reason) for one in summary.failed] == [
        ("twin, seed 2", "the loss is not a number")
    ]
    assert [one.id for one in summary.waiting] == [waiting.id]
    found = by_name(summary)
    assert found["twin"].missing_seeds == (2,) and found["twin"].overall.seeds == 2
    texts = [one.text for one in summary.findings if one.kind == "seeds"]
    assert len(texts) == 2 and "the loss is not a number" in " ".join(texts)
    assert "the loss is not a number" in to_markdown(summary)


@pytest.mark.parametrize("change", ["answer", "label", "row", "half", "nothing left", "strange"])
def test_predictions_that_are_not_the_recorded_ones(
    folder: Path, survey: MadeSurvey, change: str
) -> None:
    """One changed cell: the trial is left out and named, the others are judged without it."""
    trial = survey.trial("twin", 2)
    path = folder / "trials" / trial.id / "predictions" / "sentiment-validation.csv"
    header, first, *rest = path.read_text("utf-8").splitlines()
    id_, answer, label, half = first.split(",")
    other = "bad" if answer != "bad" else "good"
    rows = {
        "answer": [header, f"{id_},{other},{label},{half}", *rest],
        "label": [header, f"{id_},{answer},{other},{half}", *rest],
        "row": [header, *rest],
        "half": [header, f"{id_},{answer},{label},selection", *rest],
        "nothing left": [header],
        "strange": [header, f"{id_},so-so,{label},{half}", *rest],
    }
    path.write_text("\n".join(rows[change]) + "\n", "utf-8")
    summary = summarise(survey, folder)
    assert [one.id for one in summary.doubtful] == [trial.id]
    assert "sentiment-validation.csv" in summary.doubtful[0].reason
    assert by_name(summary)["twin"].missing_seeds == (2,)
    assert summary.findings[0].kind == "predictions" and trial.id in summary.findings[0].text


def test_predictions_of_another_model(folder: Path, survey: MadeSurvey) -> None:
    """Files of one trial in the folder of another, as happened in a paper."""
    here, there = (folder / "trials" / survey.trial(n, 1).id for n in ("twin", "poor"))
    for name in ("sentiment-validation.csv", "similarity-validation.csv"):
        (here / "predictions" / name).write_bytes((there / "predictions" / name).read_bytes())
    assert [one.candidate for one in summarise(survey, folder).doubtful] == ["twin"]


def test_only_the_same_rows_are_compared(folder: Path, survey: MadeSurvey) -> None:
    odd = survey.trial("twin", 3)
    write_trial(folder, odd, Skill(0.7, rows=300))
    summary = summarise(survey, folder)
    assert [one.id for one in summary.doubtful] == [odd.id]
    assert "not those of the other trials" in summary.doubtful[0].reason
    assert summary.rows["sentiment"].judge == 200


def test_one_seed_says_that_it_is_one(tmp_path: Path) -> None:
    survey = made_survey("shared", "poor", seeds=(1,))
    write_survey(tmp_path, survey, {"shared": Skill(0.7), "poor": Skill(0.3)})
    summary = summarise(survey, tmp_path)
    assert [one.tie for one in summary.standings] == [1, 1]
    assert all(one.overall.spread is None for one in summary.standings)
    assert any(one.kind == "one seed" for one in summary.findings)
    assert "One seed" in to_markdown(summary)


def test_other_tasks_are_judged_apart(folder: Path, survey: MadeSurvey) -> None:
    """An overall score over one task is not one over two."""
    alone: list[Candidate] = [
        Named(name, {"plan": name}, plain_recipe(tasks=["sentiment"])) for name in ("solo", "duo")
    ]
    survey = replace(survey, made=[*survey.made, *alone])
    for draw, name in ((8, "solo"), (9, "duo")):
        for seed in survey.seeds:
            skill = Skill(0.95, draw=draw, tasks=["sentiment"])
            write_trial(folder, survey.trial(name, seed), skill)
    summary = summarise(survey, folder)
    found = by_name(summary)
    assert found["solo"].reference == found["duo"].reference == "solo"
    assert found["twin"].reference == "shared" and found["twin"].tie == 1
    assert any("judged apart" in one.text for one in summary.findings)


def test_before_the_baseline_is_there(folder: Path, survey: MadeSurvey) -> None:
    for seed in survey.seeds:
        (folder / "trials" / survey.trial("shared", seed).id / "record.json").unlink()
    summary = summarise(survey, folder)
    assert {one.reference for one in summary.standings} == {"separate"}
    assert any("no finished trial" in one.text for one in summary.findings)


def test_nothing_is_finished(tmp_path: Path, survey: MadeSurvey) -> None:
    summary = summarise(survey, tmp_path)
    assert not summary.standings and len(summary.waiting) == 12
    write_summary(tmp_path, summary)
    assert read_summary(tmp_path) == summary


def test_without_torch() -> None:
    code = (
        "import sys, mops.surveys.results.summary_files, mops.cli.recommend;"
        "print('torch' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "False", done.stderr


def test_two_hundred_trials_take_seconds(tmp_path: Path) -> None:
    names = ["shared", *(f"plan{n}" for n in range(39))]
    survey = made_survey(*names, seeds=(1, 2, 3, 4, 5))
    write_survey(tmp_path, survey, {name: Skill(0.7) for name in names})
    start = time.perf_counter()
    summary = summarise(survey, tmp_path)
    assert time.perf_counter() - start < 15
    assert len(summary.standings) == 40 and {len(o.trials) for o in summary.standings} == {5}


def test_rows_that_cannot_be_scored_are_not(tmp_path: Path) -> None:
    """An empty text with a label is answered, but was not scored when it was recorded."""
    task = plain_recipe().task_values()["sentiment"]
    rows = [
        Row("1", ("fine",), "good", "dev.csv:2"),
        Row("2", ("",), "good", "dev.csv:3", problem="sentence is empty"),
        Row("3", ("poor",), "bad", "dev.csv:4"),
    ]
    answers = Predictions(task, np.array([2.0, 2.0, 2.0]), np.zeros((3, 3)))
    path = tmp_path / "sentiment-validation.csv"
    write_predictions(path, rows, answers, is_halved=True)
    stored = judge(answers, rows, "validation")
    found = read_predictions(path, task)
    assert found.ids.tolist() == ["1", "3"] and found.targets.tolist() == [2.0, 0.0]
    assert found.half.tolist() == ["selection", "report"] and stored["validation"]["rows"] == 2
    assert not list(mismatches(task, found, stored, "report"))


def test_a_run_that_was_really_trained(tmp_path: Path) -> None:
    """Its stored predictions give its recorded scores, on both halves."""
    here = world()
    candidate = Named("hybrid:1", {"plan": "hybrid:1"}, here.recipe())
    survey = MadeSurvey([candidate], seeds=(3,), baseline="hybrid:1")
    shutil.copytree(here.run, tmp_path / "trials" / survey.trial("hybrid:1", 3).id)
    summary = summarise(survey, tmp_path)
    assert not summary.doubtful
    (found,) = summary.standings
    record = read_record(here.run / "record.json")
    assert found.overall.mean == pytest.approx(record.scores.overall["report"]["overall"])
    assert found.trials[0].best_step == record.train_info.best_step
    write_summary(tmp_path, summary)
    assert read_summary(tmp_path) == summary
