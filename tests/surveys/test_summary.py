"""Records and predictions become a judged summary; what does not fit is named and left out."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mops.data.splits import Row
from mops.errors import RunError, UsageError
from mops.evaluate.evaluate import judge, read_predictions, write_predictions
from mops.predict.inference import Predictions
from mops.record import read_record
from mops.surveys.ledger import Candidate, Ledger, Round
from mops.surveys.results.judge import find_mismatches, judge_survey
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import read_results
from mops.surveys.results.tables import missing_table, score_table
from running import run_python, world
from surveying import (
    MadeSurvey,
    Named,
    Skill,
    by_name,
    made_survey,
    plain_recipe,
    write_failure,
    write_summary,
    write_survey,
    write_trial,
)


def test_a_survey_is_judged(folder: Path, survey: MadeSurvey) -> None:
    summary = judge_survey(survey, folder)
    found = by_name(summary)
    assert {name for name, one in found.items() if one.is_best} == {"shared", "separate", "twin"}
    means = [one.overall.mean for one in summary.candidates]
    assert means == sorted(means, reverse=True) and summary.candidates[-1].name == "poor"
    (group,) = summary.groups
    assert group.candidates == ("shared", "separate", "twin", "poor")
    assert set(group.rows) == {"sentiment", "similarity"}
    worse = found["poor"].against["overall"]
    assert (
        worse.is_significant
        and worse.high < 0
        and worse.mean == pytest.approx(found["poor"].overall.mean - found["shared"].overall.mean)
    )
    assert set(found["poor"].gains) == {"sentiment", "similarity"}
    assert not found["shared"].against and not found["separate"].gains
    assert summary.rows == {"sentiment": 400, "similarity": 400} and not summary.missing


def test_scores_are_the_means_of_the_records(folder: Path, survey: MadeSurvey) -> None:
    """On all validation rows, cross-fitted."""
    found = by_name(judge_survey(survey, folder))["twin"]
    records = [
        json.loads((folder / "trials" / survey.trial("twin", seed).id / "record.json").read_text())
        for seed in survey.seeds
    ]
    for task, name in (("sentiment", "accuracy"), ("similarity", "pearson")):
        scores = [one["scores"]["tasks"][task]["report"][name] for one in records]
        assert found.scores[task].mean == pytest.approx(sum(scores) / 3)
        assert [trial.scores[task] for trial in found.trials] == scores


def test_costs_come_from_the_pass_where_it_has_measured(folder: Path, survey: MadeSurvey) -> None:
    found = by_name(judge_survey(survey, folder))
    assert found["shared"].tm_relative == 1.0
    assert found["separate"].tm_relative == pytest.approx(
        found["separate"].overall.mean / found["shared"].overall.mean * (10 / 20) * (80 / 160)
    )
    facts = {"train_seconds": 5.0, "latency_seconds": 0.02, "rounds": {"step": [1.0]}}
    (folder / "costs.json").write_text(json.dumps({"twin": facts}), "utf-8")
    twin = by_name(judge_survey(survey, folder))["twin"]
    assert (twin.costs.latency_seconds, twin.costs.parameters) == (0.02, 20_000_000)
    assert twin.tm_relative is None  # the baseline's time is of another moment
    both = {"twin": facts, "shared": facts | {"train_seconds": 2.5}}
    (folder / "costs.json").write_text(json.dumps(both), "utf-8")
    twin = by_name(judge_survey(survey, folder))["twin"]
    assert twin.tm_relative == pytest.approx(0.5 * twin.overall.mean / found["shared"].overall.mean)


@pytest.mark.parametrize("text", ["{ torn", "[1, 2]", "3"])
def test_a_corrupt_file_of_costs_is_named(folder: Path, survey: MadeSurvey, text: str) -> None:
    (folder / "costs.json").write_text(text, "utf-8")
    with pytest.raises(RunError, match=r"costs.json (is not|holds) .*; delete it and run"):
        judge_survey(survey, folder)


def test_failed_and_waiting_trials_are_named(folder: Path, survey: MadeSurvey) -> None:
    failed, waiting = survey.trial("twin", 2), survey.trial("poor", 3)
    for trial in (failed, waiting):
        (folder / "trials" / trial.id / "record.json").unlink()
    write_failure(folder, failed, "the loss is not a number")
    summary = judge_survey(survey, folder)
    assert [(one.name, one.reason) for one in summary.in_state("failed")] == [
        ("twin, seed 2", "the loss is not a number")
    ]
    assert [one.id for one in summary.in_state("waiting")] == [waiting.id]
    found = by_name(summary)
    assert found["twin"].missing_seeds == (2,) and found["twin"].overall.seeds == 2
    texts = [one.text for one in summary.caveats if one.kind == "seeds"]
    assert len(texts) == 2 and "the loss is not a number" in " ".join(texts)
    shown = missing_table(summary).texts
    assert ["twin, seed 2", "failed", "the loss is not a number"] in shown and len(shown) == 2


@pytest.mark.parametrize("change", ["answer", "label", "row", "nothing left", "strange"])
def test_predictions_that_are_not_the_recorded_ones(
    folder: Path, survey: MadeSurvey, change: str
) -> None:
    """One changed cell: the trial is left out and named, the others are judged without it."""
    trial = survey.trial("twin", 2)
    path = folder / "trials" / trial.id / "predictions" / "sentiment-report.csv"
    header, first, *rest = path.read_text("utf-8").splitlines()
    id_, answer, label = first.split(",")
    other = "bad" if answer != "bad" else "good"
    rows = {
        "answer": [header, f"{id_},{other},{label}", *rest],
        "label": [header, f"{id_},{answer},{other}", *rest],
        "row": [header, *rest],
        "nothing left": [header],
        "strange": [header, f"{id_},so-so,{label}", *rest],
    }
    path.write_text("\n".join(rows[change]) + "\n", "utf-8")
    summary = judge_survey(survey, folder)
    assert [one.id for one in summary.in_state("left out")] == [trial.id]
    assert "sentiment-report.csv" in summary.in_state("left out")[0].reason
    assert by_name(summary)["twin"].missing_seeds == (2,)
    assert summary.caveats[0].kind == "predictions" and trial.id in summary.caveats[0].text


def test_predictions_of_another_model(folder: Path, survey: MadeSurvey) -> None:
    """Files of one trial in the folder of another, as happened in a paper."""
    here, there = (folder / "trials" / survey.trial(n, 1).id for n in ("twin", "poor"))
    for name in ("sentiment-report.csv", "similarity-report.csv"):
        (here / "predictions" / name).write_bytes((there / "predictions" / name).read_bytes())
    assert [one.candidate for one in judge_survey(survey, folder).in_state("left out")] == ["twin"]


def test_only_the_same_rows_are_compared(folder: Path, survey: MadeSurvey) -> None:
    odd = survey.trial("twin", 3)
    write_trial(folder, odd, Skill(0.7, rows=300))
    summary = judge_survey(survey, folder)
    assert [one.id for one in summary.in_state("left out")] == [odd.id]
    assert "not those of the other trials" in summary.in_state("left out")[0].reason
    assert summary.rows["sentiment"] == 400


def test_one_seed_says_that_it_is_one(tmp_path: Path) -> None:
    survey = made_survey("shared", "poor", seeds=(1,))
    write_survey(tmp_path, survey, {"shared": Skill(0.7), "poor": Skill(0.3)})
    summary = judge_survey(survey, tmp_path)
    assert all(one.is_best for one in summary.candidates)
    assert all(one.overall.spread is None for one in summary.candidates)
    assert any(one.kind == "one seed" for one in summary.caveats)
    assert "One seed" in score_table(summary).note


def test_other_tasks_are_judged_apart(folder: Path, survey: MadeSurvey) -> None:
    """An overall score over one task is not one over two."""
    alone: list[Candidate] = [
        Named(name, {"plan": name}, plain_recipe(tasks=["sentiment"])) for name in ("solo", "duo")
    ]
    survey = replace(survey, made=[*survey.made, *alone])
    for draw, name in ((8, "solo"), (9, "duo")):
        for seed in survey.seeds:
            skill = Skill(0.95, draw=draw)
            write_trial(folder, survey.trial(name, seed), skill)
    summary = judge_survey(survey, folder)
    found = by_name(summary)
    assert found["solo"].reference == found["duo"].reference == "solo"
    assert found["twin"].reference == "shared" and found["twin"].is_best
    assert [one.name for one in summary.candidates[-2:]] == ["duo", "solo"]  # the best first
    assert [len(group.candidates) for group in summary.groups] == [4, 2]
    assert any("judged apart" in one.text for one in summary.caveats)


def test_before_the_baseline_is_there(folder: Path, survey: MadeSurvey) -> None:
    for seed in survey.seeds:
        (folder / "trials" / survey.trial("shared", seed).id / "record.json").unlink()
    summary = judge_survey(survey, folder)
    assert {one.reference for one in summary.candidates} == {"separate"}
    assert any("no finished trial" in one.text for one in summary.caveats)


def test_candidates_that_were_dropped_early(folder: Path, survey: MadeSurvey) -> None:
    """A race: all with one seed, two of them with more. Nothing is missing."""
    entry = Round(candidates=("shared", "twin"), seeds=(2, 3), why="the better half")
    race = replace(survey, seeds=(1,), rounds=(entry,))
    summary = judge_survey(race, folder)
    assert summary.rounds == (entry,) and summary.seeds == (1, 2, 3)
    assert {n: one.overall.seeds for n, one in by_name(summary).items()} == {
        "shared": 3, "twin": 3, "separate": 1, "poor": 1,
    }  # fmt: skip
    assert not summary.missing and not any(one.kind == "seeds" for one in summary.caveats)
    names = [row[1] for row in score_table(summary).texts]
    assert "separate (1 of 3 seeds)" in names and "shared (baseline)" in names
    errors = {name: one.overall.stderr for name, one in by_name(summary).items()}
    assert errors["separate"] > errors["twin"]
    write_summary(folder, summary)
    assert read_results(folder) == summary


def test_trials_that_a_race_has_paused(folder: Path, survey: MadeSurvey) -> None:
    ledger = Ledger(folder)
    for seed in survey.seeds:
        trial = survey.trial("poor", seed)
        (ledger.run_folder(trial.id) / "record.json").unlink()
        ledger.note_pause(trial.id, until=0.25, reached=0.25, score=0.4, seconds=3.0)
    summary = judge_survey(survey, folder)
    reasons = [one.reason for one in summary.in_state("paused")]
    assert reasons == ["trained to 25% of its steps"] * 3 and "poor" not in summary
    assert not any("not finished" in line for line in recommend(summary).lines)


def test_nothing_is_finished(tmp_path: Path, survey: MadeSurvey) -> None:
    summary = judge_survey(survey, tmp_path)
    assert not summary.candidates and len(summary.in_state("waiting")) == 12
    write_summary(tmp_path, summary)
    assert read_results(tmp_path) == summary


def test_a_summary_reads_back_as_it_was(folder: Path, survey: MadeSurvey) -> None:
    summary = judge_survey(survey, folder)
    write_summary(folder, summary)
    assert read_results(folder) == summary == read_results(folder / "summary.json")
    assert recommend(read_results(folder)) == recommend(summary)
    assert json.loads((folder / "summary.json").read_text("utf-8"))["baseline"] == "shared"


def test_what_is_no_summary(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"summary\.json is not the results"):
        read_results(tmp_path)
    for data, problem in (({}, "its format is None, expected 2"), ({"format": 2}, "baseline")):
        (tmp_path / "summary.json").write_text(json.dumps({"name": "x", **data}), "utf-8")
        with pytest.raises(UsageError, match=problem):
            read_results(tmp_path)


def test_without_torch() -> None:
    code = (
        "import sys, mops.surveys.results.tables, mops.cli.recommend;print('torch' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.slow
def test_two_hundred_trials_take_seconds(tmp_path: Path) -> None:
    names = ["shared", *(f"plan{n}" for n in range(39))]
    survey = made_survey(*names, seeds=(1, 2, 3, 4, 5))
    write_survey(tmp_path, survey, {name: Skill(0.7) for name in names})
    start = time.process_time()
    summary = judge_survey(survey, tmp_path)
    assert time.process_time() - start < 15
    assert len(summary.candidates) == 40 and {len(o.trials) for o in summary.candidates} == {5}


def test_rows_that_cannot_be_scored_are_not(tmp_path: Path) -> None:
    """An empty text with a label is answered, but was not scored when it was recorded."""
    task = plain_recipe().task_values()["sentiment"]
    rows = [
        Row("1", ("fine",), "good", "dev.csv:2"),
        Row("2", ("",), "good", "dev.csv:3", problem="sentence is empty"),
        Row("3", ("poor",), "bad", "dev.csv:4"),
    ]
    answers = Predictions(task, np.array([2.0, 2.0, 2.0]), np.zeros((3, 3)))
    path = tmp_path / "sentiment-report.csv"
    write_predictions(path, rows, answers)
    stored = judge(answers, rows, "report")
    found = read_predictions(path, task)
    assert found.columns["id"].tolist() == ["1", "3"] and found.targets.tolist() == [2.0, 0.0]
    assert stored["report"]["rows"] == 2
    assert not list(find_mismatches(found, stored["report"]))


@pytest.mark.slow
def test_a_run_that_was_really_trained(tmp_path: Path) -> None:
    """Its stored predictions give its recorded scores."""
    here = world()
    candidate = Named("hybrid:1", {"plan": "hybrid:1"}, here.recipe())
    survey = MadeSurvey([candidate], seeds=(3,), baseline="hybrid:1")
    shutil.copytree(here.run, tmp_path / "trials" / survey.trial("hybrid:1", 3).id)
    summary = judge_survey(survey, tmp_path)
    assert not summary.in_state("left out")
    (found,) = summary.candidates
    record = read_record(here.run / "record.json")
    assert found.overall.mean == pytest.approx(record.scores.overall["report"]["overall"])
    assert found.trials[0].train_info == record.train_info
    write_summary(tmp_path, summary)
    assert read_results(tmp_path) == summary
