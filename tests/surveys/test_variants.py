"""A survey with other plans, settings, seeds and steps; its baseline is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from designs import BOTH, RATES, STAGES, names, recipe, survey

from mops.cli.options import parse_values
from mops.errors import MopsError
from mops.plans.catalog import read_plan
from mops.surveys.experiments import named_survey
from mops.yaml_io import format_yaml


def test_other_plans_replace_the_axis(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(format_yaml(read_plan("hybrid:1").to_data()), "utf-8")
    found = survey({"plan": ["shared", "separate"], RATES: [1e-5]}, baseline="separate")
    changed = found.with_plans(["hybrid:2", str(file)])
    assert names(changed) == ["hybrid:2", "hybrid:1"]
    assert (changed.baseline, changed.single) == ("hybrid:2", None)
    assert found.with_plans(["shared", "hybrid:2", "separate"]).baseline == "separate"


def test_values_are_compared_where_a_key_varies_or_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"axes": {"plan": ["shared"], RATES: [1e-5, 1e-4]}}
    found = survey(blocks=[rates, {"axes": {"plan": ["separate"]}}])
    changed = found.with_values({RATES: [2e-5, 3e-5]}).candidates()
    assert [(c.recipe.plan, c.recipe.training.learning_rate) for c in changed] == [
        ("shared", 2e-5), ("shared", 3e-5), ("separate", 5e-5),
    ]  # fmt: skip
    both = found.with_values({"training.dropout": [0.0, 0.2]})
    assert len(both.candidates()) == 2 * len(found.candidates())
    linked = survey({"plan": ["shared"], BOTH: [1e-5]}).with_values({RATES: [2e-5]}).candidates()
    assert linked[0].recipe.training.head_learning_rate == 2e-5
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)  # where the survey goes on is another matter
    encoders = survey().with_values({"encoder": ["minilm", "mine"]}).candidates()
    assert {c.recipe.encoder for c in encoders} == {"minilm", str(tmp_path / "mine")}
    with pytest.raises(MopsError, match="given as `plan`, not among `values`"):
        found.with_values({"plan": ["shared"]})
    with pytest.raises(MopsError, match=r"unknown key 'training\.dropot'\. Did you mean 'dropout'"):
        found.with_values({"training.dropot": [0.1]})


def test_the_encoders_of_the_experiment_are_given() -> None:
    given = {"encoder": ["minilm", "other/encoder"]}
    found = named_survey("encoders", recipe()).with_values(given)
    assert names(found) == [
        f"{plan}, encoder={name}"
        for plan in ("shared", "separate")
        for name in ("minilm", "encoder")
    ]
    assert found.baseline == "shared, encoder=minilm"


def test_settings_hold_for_all_candidates() -> None:
    found = survey(set={RATES: 1e-5}).with_settings({RATES: 2e-5})
    assert {c.recipe.training.learning_rate for c in found.candidates()} == {2e-5}
    with pytest.raises(MopsError, match="varies plan; it cannot also be set"):
        survey().with_settings({"plan": "shared"})


def test_seeds_by_number_or_by_name() -> None:
    assert survey().changed(seeds=2).seeds == (1, 2)
    assert survey().changed(seeds=[5, 3, 5]).seeds == (5, 3)


def test_steps_are_the_same_everywhere_and_the_rest_in_proportion() -> None:
    given = {
        "training.max_steps": 1000,
        "training.eval_steps": 100,
        "training.steps_per_epoch": 500,
        "training.task_steps": {"sentiment": 200},
        "training.warmup_steps": 50,
    }
    found = survey(set=given).changed(steps=300).candidates()[1].recipe.training
    assert (found.max_steps, found.eval_steps, found.steps_per_epoch) == (300, 30, 150)
    assert found.task_steps == {"sentiment": 60}
    assert found.warmup_steps == 15
    share = survey(set=given | {"training.warmup_steps": 0.1}).changed(steps=300)
    assert share.candidates()[0].recipe.training.warmup_steps == 0.1


@pytest.mark.parametrize(("steps", "parts"), [(40, [30, 10]), (401, [301, 100]), (2, [1, 1])])
def test_stages_keep_their_proportion(steps: int, parts: list[int]) -> None:
    staged = {"training.stages": STAGES, "training.max_steps": None}
    found = survey(set=staged).changed(steps=steps).candidates()[0].recipe.training
    assert [stage.steps for stage in found.stages] == [max(1, part) for part in parts]
    assert found.max_steps is None
    assert found.stages[1].warmup_steps == max(1, round(20 * steps / 400))


def test_epochs_become_steps() -> None:
    """How many there were is not known without the data; an evaluation is never later than all."""
    found = survey(set={"training.num_train_epochs": 2, "training.eval_steps": 70})
    assert found.changed(steps=50).candidates()[0].recipe.training.eval_steps == 50
    assert found.changed(steps=90).candidates()[0].recipe.training.eval_steps == 70


def test_where_the_budget_varies_the_largest_has_the_steps() -> None:
    found = survey({"plan": ["shared"], "training.max_steps": [100, 400]}, baseline="shared")
    changed = found.changed(steps=40)
    assert names(changed) == ["shared, max_steps=10", "shared, max_steps=40"]
    assert changed.baseline == "shared, max_steps=10"


def test_the_baseline_is_followed_when_names_change() -> None:
    blocks = [{"set": {"training.max_steps": n}, "axes": {"plan": ["shared"]}} for n in (10, 20)]
    found = survey(blocks=blocks, baseline="shared, max_steps=20")
    assert names(found.changed(steps=7)) == ["shared"]  # now they are equal
    assert found.changed(steps=7).baseline == "shared"


def test_evaluations_can_be_fewer_but_not_more() -> None:
    given = {"training.max_steps": 1000, "training.eval_steps": 100}
    few = survey(set=given).changed(steps=501, evaluations=2).candidates()[0].recipe.training
    assert (few.max_steps, few.eval_steps) == (501, 251)
    many = survey(set=given).changed(steps=500, evaluations=50).candidates()[0].recipe.training
    assert many.eval_steps == 50
    epochs = survey(set={"training.max_steps": 90, "training.steps_per_epoch": 10}, evaluations=3)
    assert epochs.candidates()[0].recipe.training.eval_steps == 30


def test_other_plans_join_the_blocks_of_their_family() -> None:
    """A frozen plan gets the rates of the frozen block; an unknown family those of the first."""
    found = named_survey("everything", recipe())
    changed = found.with_plans(["shared", "frozen+separate", "frozen+late:SI", "late:SI"])
    assert [c.name for c in changed.candidates()] == [
        "shared", "late:SI", "frozen+separate", "frozen+late:SI"
    ]  # fmt: skip
    rates = {c.name: c.recipe.training.head_learning_rate for c in changed.candidates()}
    own = {c.name: c.recipe.training.head_learning_rate for c in found.candidates()}
    assert rates["late:SI"] == own["shared"]
    assert rates["frozen+separate"] == own["frozen+shared"]
    assert rates["frozen+late:SI"] == own["frozen+late:SSS"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("encoder=minilm,some/folder", ("encoder", ["minilm", "some/folder"])),
        ("training.dropout = 0, 1e-1", ("training.dropout", [0, 0.1])),
        ("training.features=[concat],[sum]", ("training.features", [["concat"], ["sum"]])),
        ("training.augment=null,{swap: [a]}", ("training.augment", [None, {"swap": ["a"]}])),
    ],
)
def test_values_are_read_as_yaml(text: str, expected: tuple[str, list[object]]) -> None:
    assert parse_values(text) == expected


@pytest.mark.parametrize("text", ["encoder", "encoder=", "=a,b", "x=[1"])
def test_values_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(MopsError, match="--values"):
        parse_values(text)
