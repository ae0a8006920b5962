"""A survey is data: what it expands to, what its candidates are called, YAML in and out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from designs import BOTH, RATES, STAGES, names, recipe, survey

from mops.errors import MopsError
from mops.plans.catalog import read_plan
from mops.surveys.design import read_survey, to_survey
from mops.yaml_io import format_yaml
from running import run_python

# ------------------------------------------------------------------ expansion and names


def test_axes_are_crossed_within_a_block_and_blocks_joined() -> None:
    found = survey(
        blocks=[
            {"axes": {"plan": ["shared", "separate"], RATES: [1e-5, 2e-5]}},
            {"set": {RATES: 3e-5}, "axes": {"plan": ["hybrid:3"]}},
        ]
    )
    assert names(found) == [
        "shared, learning_rate=1e-05",
        "shared, learning_rate=2e-05",
        "separate, learning_rate=1e-05",
        "separate, learning_rate=2e-05",
        "hybrid:3, learning_rate=3e-05",
    ]
    rates = [candidate.recipe.training.learning_rate for candidate in found.candidates()]
    assert rates == [1e-5, 2e-5, 1e-5, 2e-5, 3e-5]
    assert found.candidates()[4].settings == {"plan": "hybrid:3", RATES: 3e-5}


def test_where_only_the_plan_varies_it_is_the_name() -> None:
    assert names(survey()) == ["shared", "separate"]
    assert survey().candidates()[0].settings == {"plan": "shared"}


def test_what_is_set_with_a_plan_is_told_only_where_it_is_needed() -> None:
    """The rate follows from the plan in the first survey, not in the second."""
    frozen = {"set": {RATES: 1e-3}, "axes": {"plan": ["frozen+shared"]}}
    shared = {"set": {RATES: 1e-5}, "axes": {"plan": ["shared"]}}
    other = {"set": {RATES: 2e-5}, "axes": {"plan": ["shared"]}}
    assert names(survey(blocks=[frozen, shared])) == ["frozen+shared", "shared"]
    assert names(survey(blocks=[shared, other])) == [
        "shared, learning_rate=1e-05",
        "shared, learning_rate=2e-05",
    ]


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ([{"set": {"training.folds": 1}, "axes": {"plan": ["shared", "separate"]}}],
         "survey: training.folds must be a number of at least 2; found 1"),
        ([{"set": {"training.folds": 1}, "axes": {"plan": ["shared"]}}], "survey: training.folds"),
        ([{"set": {"training.dropout": 0.0}, "axes": {"plan": ["shared"], RATES: [1e-5, -1]}}],
         "survey, candidate training.learning_rate=-1: training.learning_rate must be a number ab"),
        ([{"axes": {"plan": ["shared"]}}, {"set": {RATES: 0}, "axes": {"plan": ["separate"]}}],
         "survey, candidate training.learning_rate=0, plan=separate: training.learning_rate must"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_the_candidate_that_has_it(
    blocks: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(MopsError) as caught:
        survey(blocks=blocks)
    assert str(caught.value).startswith(told)


def test_linked_keys_get_the_same_value() -> None:
    found = survey({"plan": ["shared"], BOTH: [1e-3, 1e-4]})
    assert names(found) == ["shared, learning_rate=0.001", "shared, learning_rate=0.0001"]
    for candidate in found.candidates():
        training = candidate.recipe.training
        assert training.learning_rate == training.head_learning_rate
    assert set(found.candidates()[0].settings) == {RATES, "training.head_learning_rate"}


def test_values_are_short_in_names() -> None:
    heads = ["linear", {"kind": "mlp", "depth": 2, "norm": True}, {"kind": "mlp", "norm": False}]
    found = survey({"plan": ["shared"], "training.head": heads})
    assert names(found) == ["shared, head=linear", "shared, head=mlp/2/norm", "shared, head=mlp"]
    found = survey({"plan": ["shared"], "encoder": ["minilm", "/some/where/tiny"]})
    assert names(found) == ["shared, encoder=minilm", "shared, encoder=tiny"]


def test_a_plan_of_rows_is_called_by_its_name() -> None:
    rows = {"name": "narrow", "late": [{"per": [], "width": 48}]}
    found = survey({"plan": ["shared", rows]})
    assert names(found) == ["shared", "narrow"]
    assert found.candidates()[1].recipe.sharing_plan().late[0].width == 48


def test_equal_recipes_are_one_candidate() -> None:
    default = survey().candidates()[0].recipe.training.learning_rate
    found = survey(
        blocks=[
            {"axes": {"plan": ["shared", "separate"]}},
            {"set": {RATES: default}, "axes": {"plan": ["separate", "hybrid:2"]}},
        ]
    )
    assert names(found) == ["shared", "separate", "hybrid:2"]


def test_trials_go_seed_by_seed_and_have_different_ids() -> None:
    found = survey(seeds=[4, 9]).trials()
    assert [trial.name for trial in found] == [
        "shared, seed 4", "separate, seed 4", "shared, seed 9", "separate, seed 9",
    ]  # fmt: skip
    assert len({trial.id for trial in found}) == 4


def test_test_files_stay_only_where_they_judge() -> None:
    assert "test" not in survey().candidates()[0].recipe.tasks["sentiment"].files()
    judged = survey(on="test").candidates()[0].recipe
    assert "test" in judged.tasks["sentiment"].files()


# ------------------------------------------------------------------ the baseline


def test_the_baseline_is_the_first_unless_named() -> None:
    assert survey().baseline == "shared"
    assert survey().single == "separate"
    assert survey(baseline="separate").baseline == "separate"
    assert survey({"plan": ["shared", "hybrid:3"]}).single is None


def test_a_plan_stands_for_its_first_candidate() -> None:
    axes = {"plan": ["separate", "shared"], RATES: [1e-5, 2e-5]}
    found = survey(axes, baseline="shared")
    assert found.baseline == "shared, learning_rate=1e-05"
    assert found.single == "separate, learning_rate=1e-05"
    named = survey(axes, baseline="shared, learning_rate=2e-05")
    assert named.single == "separate, learning_rate=2e-05"  # the one like the baseline


# ------------------------------------------------------------------ files


SHORT = """
recipe: mops.yaml
set: {training.max_steps: 300}
axes:
  plan: [shared, own.yaml]
  training.learning_rate: [2.0e-5, 5.0e-5]
seeds: 3
baseline: shared
"""


def test_the_short_form_with_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mops.yaml").write_text(recipe().to_yaml(), "utf-8")
    (tmp_path / "own.yaml").write_text(format_yaml(read_plan("hybrid:2").to_data()), "utf-8")
    (tmp_path / "mine.yaml").write_text(SHORT, "utf-8")
    found = read_survey(tmp_path / "mine.yaml")
    assert found.name == "mine" and found.seeds == (1, 2, 3)
    assert names(found)[2] == "hybrid:2, learning_rate=2e-05"
    assert found.baseline == "shared, learning_rate=2e-05"
    assert {c.recipe.training.max_steps for c in found.candidates()} == {300}
    assert len(found.trials()) == 12


def test_a_survey_is_the_same_after_yaml(tmp_path: Path) -> None:
    rows = read_plan("frozen+adapters:8").to_data()
    staged = {"training.stages": STAGES, "training.max_steps": None}
    found = survey(
        blocks=[{"axes": {"plan": ["shared", rows], BOTH: [1.5e-7, 1e-3]}}, {"set": staged}],
        seeds=2,
        steps=40,
    )
    path = tmp_path / "survey.yaml"
    path.write_text(found.to_yaml(), "utf-8")
    again = read_survey(path)
    assert again == found
    assert [trial.id for trial in again.trials()] == [trial.id for trial in found.trials()]
    assert again.to_yaml() == found.to_yaml()


def test_a_file_without_a_recipe_takes_the_one_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("axes: {plan: [shared, separate]}\n", "utf-8")
    found = read_survey(tmp_path / "mine.yaml", recipe("sentiment", "similarity"))
    assert list(found.candidates()[0].recipe.tasks) == ["sentiment", "similarity"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"axes": {"training.learnin_rate": [1]}}, r"unknown key.*Did you mean 'learning_rate'"),
    ({"axes": {"learning_rate": [1e-5]}}, r"unknown key 'learning_rate'.*key of training"),
    ({"axes": {"plan": []}}, r"axes.plan must be a list of at least 1; found \[\]"),
    ({"axes": {"plan": "shared"}}, r"axes.plan must be a list; found 'shared'"),
    ({"axes": {"plan": ["sharde"]}}, r"unknown plan 'sharde'.*Did you mean 'shared'"),
    ({"baseline": "seperate"}, r"baseline 'seperate' is no candidate.*Did you mean 'separate'"),
    ({"single": "soft"}, r"single 'soft' is no candidate; candidates are shared; separate"),
    ({"axes": {"training.seed": [1, 2]}}, r"does not set training.seed: name them under `seeds`"),
    ({"seeds": []}, r"seeds"),
    ({"seed": 3}, r"unknown key 'seed'.*"),
    ({"blocks": [{"axes": {}}]}, r"either `blocks`, or one block"),
    ({"on": "validation"}, r"'report' or 'test'"),
    ({"recipe": 7}, r"`recipe` is a file or a mapping; found 7"),
    ({"recipe": None}, r"no `recipe` is named"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_what_is_wrong_is_said_in_one_line(fields: dict[str, Any], said: str) -> None:
    data = {"name": "mine", "recipe": recipe().to_data(), "axes": {"plan": ["shared", "separate"]}}
    with pytest.raises(MopsError) as caught:
        to_survey({**data, **fields})
    assert re.search(said, str(caught.value)) and "\n" not in str(caught.value)


def test_two_plans_of_one_name_are_refused() -> None:
    rows = [{"name": "mine", "late": [{"per": [], "width": width}]} for width in (8, 16)]
    with pytest.raises(MopsError, match="two candidates of the survey would be called 'mine'"):
        survey({"plan": rows})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: {}\n", "is no survey: it has neither `axes`.*a recipe is given as `config`"),
        ("[1, 2]\n", "not a mapping"),
    ],
)
def test_a_file_that_is_no_survey(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text, "utf-8")
    with pytest.raises(MopsError, match=said):
        read_survey(tmp_path / "x.yaml")


def test_a_survey_is_read_and_estimated_without_torch(tmp_path: Path) -> None:
    (tmp_path / "survey.yaml").write_text(survey(seeds=2).to_yaml(), "utf-8")
    code = (
        "import sys; from mops.surveys.design import read_survey; "
        "from mops.surveys.experiments import EXPERIMENTS, named_survey; "
        "from mops.surveys.budget import Estimator; "
        f"found = read_survey({str(tmp_path / 'survey.yaml')!r}); "
        "print(len(found.trials()), len({t.id for t in found.trials()}), "
        "Estimator().survey(found).seconds > 0, 'torch' in sys.modules)"
    )
    result = run_python("-c", code)
    assert result.stdout.split() == ["4", "4", "True", "False"], result.stderr
