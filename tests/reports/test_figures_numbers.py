"""The numbers behind the charts, against their definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mops.evaluate.evaluate import PredictionRows
from mops.reports.figures.answers import (
    CELLS,
    calibration_error,
    confidence_bins,
    count_pairs,
)
from mops.reports.figures.curves import (
    convergence_table,
    loss_lines,
    measure_pace,
    smooth,
)
from mops.reports.figures.response import plan_responses, setting_responses
from mops.reports.figures.style import plain_number
from mops.reports.source import Source, read_answers
from mops.tasks import Task
from surveying import made_standing

CLASSES = Task(name="t", type="classification", text=("s",), label="y", labels=("a", "b", "c"))
VALUES = Task(name="v", type="similarity", text=("s", "t"), label="y", range=(0.0, 5.0))


def answered(task: Task, targets: Any, predictions: Any, confidences: Any = ()) -> PredictionRows:
    values, truth = np.array(predictions, float), np.array(targets, float)
    columns = (
        {"confidence": np.array([str(c) for c in confidences], object)} if len(confidences) else {}
    )
    return PredictionRows(task, columns, np.arange(len(truth)), values, truth)


# ------------------------------------------------------------------ answers


def test_confusion_counts_pairs() -> None:
    truth, said = np.random.default_rng(0).integers(0, 3, (2, 500)).tolist()
    edges = np.arange(4) - 0.5
    found = count_pairs(answered(CLASSES, truth, said), edges)
    pairs = list(zip(truth, said, strict=True))
    assert found.tolist() == [[pairs.count((a, b)) for b in range(3)] for a in range(3)]
    single = count_pairs(answered(CLASSES, [0], [2]), edges)
    assert single.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]


def test_density_holds_every_row() -> None:
    """Also those at the ends of the range."""
    truth, said = 5 * np.random.default_rng(0).random((2, 3000))
    truth[:2], said[:2] = (0, 5), (5, 0)
    counts = count_pairs(answered(VALUES, truth, said), np.linspace(0, 5, CELLS + 1))
    assert counts.sum() == 3000
    assert counts[0, CELLS - 1] >= 1 and counts[CELLS - 1, 0] >= 1


def test_calibration_error_by_its_definition() -> None:
    sure = [0.55, 0.58, 0.95, 0.95, 0.97, 1.0]
    found = confidence_bins(answered(CLASSES, [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2], sure))
    assert found[:, [0, 1, 3]].tolist() == [[0.55, 2, 0.5], [0.95, 4, 0.75]]
    first, second = abs(0.5 - 0.565), abs(0.75 - (0.95 + 0.95 + 0.97 + 1.0) / 4)
    assert calibration_error(found) == pytest.approx((2 * first + 4 * second) / 6)


def test_a_model_that_knows_what_it_knows_has_no_error() -> None:
    own = np.random.default_rng(2)
    sure = own.uniform(0.4, 1.0, 200_000)
    is_right = own.random(len(sure)) < sure
    found = confidence_bins(answered(CLASSES, np.zeros(len(sure)), np.where(is_right, 0, 1), sure))
    assert calibration_error(found) < 0.01


def test_answers_give_the_recorded_scores(source: Source) -> None:
    trial = source.trials[0]
    for task in source.results.tasks:
        answers, left_out = read_answers([trial], task, source.results.on)
        (rows,) = answers.values()
        if not rows.task.answer.has_labels:
            score = np.corrcoef(rows.targets, rows.values)[0, 1]
        else:
            score = (rows.targets == rows.values).mean()
        assert score == pytest.approx(trial.result.scores[task]) and not left_out


def test_predictions_without_rows_that_judge_are_refused(source: Source, tmp_path: Path) -> None:
    (tmp_path / "predictions").mkdir()
    path = tmp_path / "predictions" / "sentiment-report.csv"
    trial = replace(source.trials[0], folder=tmp_path)
    for text in ("id,prediction,label\nx,bad,\n", "id,prediction,label\nx,bad,bad\n"):
        path.write_text(text, "utf-8")
        answers, (why,) = read_answers([trial], "sentiment", "report")
        assert not answers and "no labelled row that judges, or no loss and confidence" in why


def test_other_rows_are_left_out(source: Source, tmp_path: Path) -> None:
    first = source.trials[0]
    (tmp_path / "predictions").mkdir()
    path = tmp_path / "predictions" / "sentiment-report.csv"
    path.write_text("id,prediction,label,confidence,loss\nx,bad,bad,1,0\n", "utf-8")
    other = replace(first, candidate="other", folder=tmp_path)
    answers, (why,) = read_answers([first, other], "sentiment", "report")
    assert list(answers) == [first.candidate]
    assert why == f"other: its rows differ from those of {first.candidate}"


# ------------------------------------------------------------------ curves


def test_smoothing_keeps_means_and_ends() -> None:
    x = list(range(1000))
    steps, line = smooth(x, [2.0] * 1000, 60)
    assert line == pytest.approx([2.0] * len(line)) and len(line) == 60
    assert (steps[0], steps[-1]) == (0, 999)
    _, straight = smooth(x, [float(n) for n in x], 60)
    assert straight[30] == pytest.approx(steps[30])  # a running mean leaves a line a line
    assert smooth([1, 2, 3], [5.0, 1.0, 3.0], 60) == ([1, 2, 3], [5.0, 1.0, 3.0])


def test_losses_are_those_of_the_file(source: Source, tmp_path: Path) -> None:
    """A torn last line and a loss that is no number are left out."""
    at = {"epoch": 0.5, "seconds": 1.0}
    lines = [{"step": 1, **at, "loss": 3.0, "losses": {"a": 2.0, "b": 1.0}},
             {"step": 2, **at, "loss": float("nan"), "losses": {"a": 1.5}}]  # fmt: skip
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"step": 3, "los'
    (tmp_path / "curve.jsonl").write_text(text, "utf-8")
    trial = replace(source.trials[0], folder=tmp_path)
    assert loss_lines(trial) == {
        "all tasks": ([1.0], [3.0]), "a": ([1.0, 2.0], [2.0, 1.5]), "b": ([1.0], [1.0]),
    }  # fmt: skip


def test_the_first_seed_that_all_have(source: Source) -> None:
    names = [one.name for one in source.results.candidates]
    trials = source.same_seed_trials(names)
    assert {trial.result.seed for trial in trials.values()} == {1}
    gone = [t for t in source.trials if (t.candidate, t.result.seed) != ("shared", 1)]
    trials = replace(source, trials=tuple(gone)).same_seed_trials(names)
    assert {trial.result.seed for trial in trials.values()} == {2} and len(trials) == 6


def evaluated(*scores: float) -> Any:
    """A trial with these overall scores, after 10 steps and 2 seconds each."""
    curve = [
        {"step": 10 * n, "seconds": 2.0 * n, "selection": {}, "overall": s}
        for n, s in enumerate(scores, start=1)
    ]
    return SimpleNamespace(curve=curve, record=SimpleNamespace(scores=SimpleNamespace(main={})))


def test_steps_to_nine_tenths_of_the_final_score() -> None:
    found = measure_pace(evaluated(0.1, 0.44, 0.46, 0.3, 0.5))
    assert (found["steps to 90 %"], found["time to 90 %"]) == (30, 6.0)
    assert (found["final score"], found["steps"]) == (0.5, 50)


def test_too_few_evaluations_have_no_pace() -> None:
    assert measure_pace(evaluated(0.4, 0.5))["steps to 90 %"] == 20
    assert "steps to 90 %" not in measure_pace(evaluated(-0.5, -0.4))
    assert measure_pace(evaluated(0.5)) == {} == measure_pace(evaluated())


def test_the_table_of_convergence(source: Source) -> None:
    table = convergence_table(source)
    assert len(table.rows) == len(source.results.candidates)
    assert all(len(row) == len(table.columns) for row in table.rows)
    by_column = dict(zip(table.columns, table.rows[0], strict=True))
    assert by_column["evaluations"].value == 2 and by_column["steps"].value == 100
    # Made curves rise by 1 - exp(-step / 15); evaluated after 50 steps, 5 seconds, and twice that.
    assert by_column["steps to 90 %"].value == 50 and by_column["time to 90 %"].value == 5.0


# ------------------------------------------------------------------ what varies


def standing(plan: str, **settings: Any) -> Any:
    name = f"{plan} {settings}"
    keyed = {f"training.{key}": value for key, value in settings.items()}
    return made_standing(name, 0.5, plan=plan, settings={"plan": plan, **keyed})


def test_a_line_per_plan_along_a_rate() -> None:
    rates = (1e-3, 1e-5, 1e-4)
    made = [standing(plan, learning_rate=rate) for plan in ("x", "y") for rate in rates]
    ((label, lines),) = setting_responses(made)
    assert label == "learning_rate" and [name for name, _ in lines] == ["x", "y"]
    for name, points in lines:
        assert [value for value, _ in points] == sorted(rates)
        assert {one.plan for _, one in points} == {name}


def test_keys_that_change_together_are_one() -> None:
    made = [standing("x", learning_rate=r, head_learning_rate=10 * r) for r in (1e-5, 1e-4)]
    ((label, lines),) = setting_responses(made)
    assert label == "learning_rate = head_learning_rate" and len(lines[0][1]) == 2


def test_two_numbers_that_cross() -> None:
    made = [standing("x", dropout=a, weight_decay=b) for a in (0.0, 0.1, 0.3) for b in (0.0, 0.01)]
    (_, first), (_, second) = setting_responses(made)
    assert [name for name, _ in first] == ["weight_decay=0", "weight_decay=0.01"]
    assert len(second) == 3 and all(len(points) == 2 for _, points in second)


def test_weights_of_tasks_and_widths_of_heads() -> None:
    """Numbers inside of a setting."""
    weights = [standing("x", loss_weights={"a": 1.0, "b": b}) for b in (0.5, 1.0, 2.0)]
    ((label, lines),) = setting_responses(weights)
    assert label == "loss_weights.b" and len(lines[0][1]) == 3
    heads = [standing("x", head={"kind": "mlp", "depth": 1, "width": w}) for w in (64, 256)]
    ((label, lines),) = setting_responses([*heads, standing("x", head="linear")])
    assert label == "head.width" and len(lines[0][1]) == 2


def test_words_and_switches_are_no_numbers() -> None:
    made = [standing("x", schedule=s, torch_compile=t) for s, t in (("a", True), ("b", False))]
    assert not list(setting_responses(made))


def test_shared_layers_follow_from_the_layout(source: Source) -> None:
    """Four layers; whatever a plan is called, and only where nothing else differs."""
    found = dict(plan_responses(source))
    ((_, line),) = found["shared layers"]
    points = [(value, one.plan) for value, one in line if "<" not in one.plan]
    assert points == [
        (-1, "separate"), (0, "hybrid:0"), (2, "hybrid:2"), (4, "shared"),
    ]  # fmt: skip
    assert set(found) == {"shared layers"}


def test_ticks_read_well() -> None:
    assert [plain_number(v) for v in (1e-5, 3e-4, 0.001, 20.0, 2500)] == [
        "1e−5", "0.0003", "0.001", "20", "2,500",
    ]  # fmt: skip
