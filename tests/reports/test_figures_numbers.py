"""The numbers behind the charts, against their definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mops.reports.figures import convergence_table
from mops.reports.figures.agreement import CELLS, density, level_of, runs_of
from mops.reports.figures.answers import Answered, answers_of
from mops.reports.figures.calibration import bins_of, expected_error
from mops.reports.figures.colours import short_names
from mops.reports.figures.confusion import confusion
from mops.reports.figures.convergence import pace_of
from mops.reports.figures.curves import Evaluation, first_trials, loss_lines, smoothed
from mops.reports.figures.figure import number, numbers, width_of
from mops.reports.figures.labels import Spot, distance, overlap, place_names
from mops.reports.figures.varied import responses, setting_responses
from mops.reports.material import Material, read_material
from mops.tasks import Task
from surveying import made_standing
from surveys import make_survey

CLASSES = Task(name="t", type="classification", text=("s",), label="y", labels=("a", "b", "c"))
VALUES = Task(name="v", type="similarity", text=("s", "t"), label="y", range=(0.0, 5.0))


def answered(task: Task, targets: Any, predictions: Any, confidence: Any = None) -> Answered:
    arrays = [np.array(of, float) for of in (targets, predictions)]
    sure = None if confidence is None else np.array(confidence, float)
    nobody: Any = SimpleNamespace()
    return Answered(nobody, task, *arrays, sure)


# ------------------------------------------------------------------ answers


def test_confusion_counts_pairs() -> None:
    truth, said = np.random.default_rng(0).integers(0, 3, (2, 500)).tolist()
    found = confusion(answered(CLASSES, truth, said))
    pairs = list(zip(truth, said, strict=True))
    assert found.tolist() == [[pairs.count((a, b)) for b in range(3)] for a in range(3)]
    assert confusion(answered(CLASSES, [0], [2])).tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]


def test_density_holds_every_row() -> None:
    """Also those at the ends of the range."""
    truth, said = 5 * np.random.default_rng(0).random((2, 3000))
    truth[:2], said[:2] = (0, 5), (5, 0)
    counts = density(answered(VALUES, truth, said))
    assert counts.sum() == 3000
    assert counts[CELLS - 1, 0] >= 1 and counts[0, CELLS - 1] >= 1  # answer first, then truth


def test_levels_and_runs_cover_what_is_there() -> None:
    counts = np.random.default_rng(1).poisson(1.0, (CELLS, CELLS)).astype(float)
    levels = level_of(counts)
    assert ((levels == 0) == (counts == 0)).all() and levels.max() == 5
    again = np.zeros_like(levels)
    for level in range(1, 6):
        for row, first, after in runs_of(levels == level):
            again[row, first:after] = level
    assert (again == levels).all()


def test_calibration_error_by_its_definition() -> None:
    sure = [0.55, 0.58, 0.95, 0.95, 0.97, 1.0]
    found = bins_of(answered(CLASSES, [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2], sure))
    assert [(one.low, one.count, one.right) for one in found] == [(0.5, 2, 0.5), (0.9, 4, 0.75)]
    first, second = abs(0.5 - 0.565), abs(0.75 - (0.95 + 0.95 + 0.97 + 1.0) / 4)
    assert expected_error(found) == pytest.approx((2 * first + 4 * second) / 6)


def test_a_model_that_knows_what_it_knows_has_no_error() -> None:
    own = np.random.default_rng(2)
    sure = own.uniform(0.4, 1.0, 200_000)
    is_right = own.random(len(sure)) < sure
    found = bins_of(answered(CLASSES, np.zeros(len(sure)), np.where(is_right, 0, 1), sure))
    assert expected_error(found) < 0.01


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    plans = ("shared", "separate", "hybrid:0", "hybrid:1", "hybrid:3", "frozen+shared", "lora:2")
    return read_material(make_survey(tmp_path_factory.mktemp("made"), plans))


def test_answers_give_the_recorded_scores(material: Material) -> None:
    """So they are those of the rows that judge."""
    tasks = list(answers_of(material))
    assert [of[0].task.name for of in tasks] == list(material.summary.tasks)
    for found in tasks:
        for one in found:
            recorded = one.trial.facts.scores[one.task.name]
            if one.task.is_similarity:
                now = np.corrcoef(one.targets, one.predictions)[0, 1]
            else:
                now = (one.targets == one.predictions).mean()
            assert now == pytest.approx(recorded)


# ------------------------------------------------------------------ curves


def test_smoothing_keeps_means_and_ends() -> None:
    x = list(range(1000))
    steps, line = smoothed(x, [2.0] * 1000, 60)
    assert line == pytest.approx([2.0] * len(line)) and len(line) == 60
    assert (steps[0], steps[-1]) == (0, 999)
    _, straight = smoothed(x, [float(n) for n in x], 60)
    assert straight[30] == pytest.approx(steps[30])  # a running mean leaves a line a line
    assert smoothed([1, 2, 3], [5.0, 1.0, 3.0], 60) == ([1, 2, 3], [5.0, 1.0, 3.0])


def test_losses_are_those_of_the_file(material: Material, tmp_path: Path) -> None:
    """A torn last line and a loss that is no number are left out."""
    lines = [{"step": 1, "loss": 3.0, "losses": {"a": 2.0, "b": 1.0}},
             {"step": 2, "loss": float("nan"), "losses": {"a": 1.5}}]  # fmt: skip
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"step": 3, "los'
    (tmp_path / "curve.jsonl").write_text(text, "utf-8")
    trial = replace(material.trials[0], folder=tmp_path)
    assert loss_lines(trial) == {
        "all tasks": ([1.0], [3.0]), "a": ([1.0, 2.0], [2.0, 1.5]), "b": ([1.0], [1.0]),
    }  # fmt: skip


def test_the_first_seed_that_all_have(material: Material) -> None:
    assert {trial.facts.seed for trial in first_trials(material).values()} == {1}
    gone = [t for t in material.trials if (t.candidate, t.facts.seed) != ("shared", 1)]
    found = first_trials(replace(material, trials=tuple(gone)))
    assert {trial.facts.seed for trial in found.values()} == {2} and len(found) == 7


def evaluated(*scores: float) -> list[Evaluation]:
    return [Evaluation(10 * n, 2.0 * n, {"overall": s}) for n, s in enumerate(scores, start=1)]


def test_steps_to_nine_tenths_of_the_final_score() -> None:
    found = pace_of(evaluated(0.1, 0.44, 0.46, 0.3, 0.5))
    assert found is not None
    assert (found.steps_to, found.seconds_to, found.final, found.steps) == (30, 6.0, 0.5, 50)
    assert found.spread == pytest.approx(np.std([0.46, 0.3, 0.5], ddof=1))
    long = pace_of(evaluated(*[0.1] * 12, 0.4, 0.5, 0.4, 0.5))
    assert long is not None and long.spread == pytest.approx(np.std([0.4, 0.5] * 2, ddof=1))


def test_what_two_evaluations_cannot_tell() -> None:
    found = pace_of(evaluated(0.4, 0.5))
    assert found is not None and found.spread is None and found.steps_to == 20
    below = pace_of(evaluated(-0.5, -0.4))
    assert below is not None and below.steps_to is None
    assert pace_of(evaluated(0.5)) is None and pace_of([]) is None


def test_the_table_of_convergence(material: Material) -> None:
    table = convergence_table(material)
    assert table is not None and len(table.rows) == len(material.summary.standings)
    assert all(len(row) == len(table.columns) for row in table.rows)
    by_column = dict(zip(table.columns, table.rows[0], strict=True))
    assert by_column["evaluations"].value == 2 and by_column["steps"].value == 100
    # Made curves rise by 1 - exp(-step / 15); evaluated after 50 steps, 5 seconds, and twice that.
    assert by_column["steps to 90 %"].value == 50 and by_column["share of steps"].text == "50%"
    assert by_column["time to 90 %"].value == 5.0 and by_column["spread of the last"].text == ""


# ------------------------------------------------------------------ what varies


def standing(plan: str, **settings: Any) -> Any:
    name = f"{plan} {settings}"
    keyed = {f"training.{key}": value for key, value in settings.items()}
    return made_standing(name, 0.5, plan=plan, settings={"plan": plan, **keyed})


def test_a_line_per_plan_along_a_rate() -> None:
    rates = (1e-3, 1e-5, 1e-4)
    made = [standing(plan, learning_rate=rate) for plan in ("x", "y") for rate in rates]
    (found,) = setting_responses(made)
    assert found.label == "learning_rate" and [line.label for line in found.lines] == ["x", "y"]
    for line in found.lines:
        assert [value for value, _ in line.points] == sorted(rates)
        assert {one.plan for _, one in line.points} == {line.label}


def test_keys_that_change_together_are_one() -> None:
    made = [standing("x", learning_rate=r, head_learning_rate=10 * r) for r in (1e-5, 1e-4)]
    (found,) = setting_responses(made)
    assert found.label == "learning_rate = head_learning_rate" and len(found.lines[0].points) == 2


def test_two_numbers_that_cross() -> None:
    made = [standing("x", dropout=a, weight_decay=b) for a in (0.0, 0.1, 0.3) for b in (0.0, 0.01)]
    first, second = setting_responses(made)
    assert [line.label for line in first.lines] == ["weight_decay=0", "weight_decay=0.01"]
    assert len(second.lines) == 3 and all(len(line.points) == 2 for line in second.lines)


def test_weights_of_tasks_and_widths_of_heads() -> None:
    """Numbers inside of a setting."""
    weights = [standing("x", loss_weights={"a": 1.0, "b": b}) for b in (0.5, 1.0, 2.0)]
    (found,) = setting_responses(weights)
    assert found.label == "loss_weights.b" and len(found.lines[0].points) == 3
    heads = [standing("x", head={"kind": "mlp", "depth": 1, "width": w}) for w in (64, 256)]
    (found,) = setting_responses([*heads, standing("x", head="linear")])
    assert found.label == "head.width" and len(found.lines[0].points) == 2


def test_words_and_switches_are_no_numbers() -> None:
    made = [standing("x", schedule=s, torch_compile=t) for s, t in (("a", True), ("b", False))]
    assert not list(setting_responses(made))


def test_shared_layers_follow_from_the_layout(material: Material) -> None:
    """Four layers; whatever a plan is called, and only where nothing else differs."""
    found = {response.label: response for response in responses(material)}
    (line,) = found["shared layers"].lines
    assert [(value, one.plan) for value, one in line.points] == [
        (-1, "separate"), (0, "hybrid:0"), (1, "hybrid:1"), (3, "hybrid:3"), (4, "shared"),
    ]  # fmt: skip
    assert set(found) == {"shared layers"}


# ------------------------------------------------------------------ names


def test_names_do_not_cover_each_other_where_there_is_room() -> None:
    """Four at the same place, and two at the right edge."""
    spots = [Spot(100, 100, f"name {n}") for n in range(4)]
    spots += [Spot(395, 200 + 13 * n, f"name {n}") for n in range(2)]
    area = (0.0, 0.0, 400.0, 300.0)
    places = place_names(spots, (), area)
    boxes = [(x, y - 5, x + width_of("name 0"), y + 5) for x, y in places]
    for n, one in enumerate(boxes):
        assert all(overlap(one, other) == 0 for other in boxes[:n])
        assert overlap(one, area) == pytest.approx((one[2] - one[0]) * 10)


def test_short_names_tell_candidates_apart() -> None:
    long = [f"frozen+shared, learning_rate={rate}" for rate in ("1e-05", "0.0001")]
    assert short_names(long) == ["frozen+shared, 1e-05", "frozen+shared, 0.0001"]
    assert short_names(["a, rate=1", "b"]) == ["a, rate=1", "b"]  # short enough as they are
    twins = ["one, learning_rate=0.1, dropout=0.3", "one, learning_rate=0.3, dropout=0.1"]
    same = [name.replace("0.3", "0.1") for name in twins]
    assert short_names(twins) == ["one, 0.1, 0.3", "one, 0.3, 0.1"]
    assert all(len(name) == 26 and "…" in name for name in short_names(same))


def test_a_name_is_nearest_to_its_own_point() -> None:
    spots = [Spot(100, 100, "first"), Spot(112, 96, "second"), Spot(124, 100, "third")]
    places = place_names(spots, (), (0.0, 0.0, 400.0, 300.0))
    for spot, (x, y) in zip(spots, places, strict=True):
        box = (x, y - 5, x + spot.width, y + 5)
        assert min(spots, key=lambda other, box=box: distance(box, other)) is spot


def test_ticks_read_well() -> None:
    assert numbers([0.5, 0.55, 0.6]) == ["0.50", "0.55", "0.60"]
    assert numbers([1000, 2500]) == ["1,000", "2,500"] and numbers([-1, 0]) == ["−1", "0"]
    assert numbers([0, 5000, 12_500]) == ["0", "5k", "12.5k"]
    assert [number(v) for v in (1e-5, 3e-4, 0.001, 20.0)] == ["1e−5", "3e−4", "1e−3", "20"]
