"""Wrong values from Python are one line of a MopsError, in words of Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mops
from mops.errors import MopsError
from running import one_core, world

FRAME = [{"text": "a b c", "label": "x"}]
NOT_A_RECIPE = "a recipe is needed, found a list; allowed: a Recipe or the name of its file"


@pytest.fixture(scope="module")
def model() -> mops.Predictor:
    with one_core():
        return mops.load(world().run / "model")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: mops.check(FRAME), NOT_A_RECIPE),
        (lambda _: mops.survey(FRAME), NOT_A_RECIPE),
        (lambda out: mops.train(FRAME, out), NOT_A_RECIPE),
        (lambda out: mops.pretrain(FRAME, out), NOT_A_RECIPE),
        (lambda _: mops.conflicts(FRAME), NOT_A_RECIPE),
        (lambda out: mops.train_many([FRAME], [out]), NOT_A_RECIPE),
        (lambda _: mops.train(mops.recipe(data="sample"), None), "out is None; allowed: the name"),
        (lambda _: mops.survey(mops.recipe(data="sample"), None), "what is None; allowed"),
        (lambda _: mops.recommend(None), "the survey or run is None; allowed"),
        (lambda _: mops.report(7), "the survey or run is 7; allowed"),
        (lambda _: mops.load(None), "folder is None; allowed"),
        (lambda _: mops.recipe(), "no data is named; give `data`"),
        (
            lambda _: mops.recipe(data="sample", set={"plan.x": 1, "plan.x.y": 2}),
            "is not a mapping",
        ),
    ],
)
def test_wrong_values_are_one_line(
    tmp_path: Path, call: Callable[[Path], Any], message: str
) -> None:
    with pytest.raises(MopsError) as caught:
        call(tmp_path / "out")
    told = str(caught.value)
    assert message in told and "\n" not in told and not re.search("(^| |`)--[a-z]", told)
    assert caught.value.exit_code == 2 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([None], "row 1 has None, which is not a text"),
        (["bat", 1], "row 2 has 1, which is not a text"),
        (7, "texts must be a list"),
    ],
)
def test_what_is_no_text_is_named(model: mops.Predictor, texts: Any, message: str) -> None:
    with pytest.raises(MopsError, match=message):
        model.predict("sentiment", texts)


def test_a_recipe_may_be_named_by_its_file(tmp_path: Path) -> None:
    recipe = mops.recipe(data="sample", set={"training.max_steps": 2})
    path = tmp_path / "mops.yaml"
    path.write_text(recipe.to_yaml(), "utf-8")
    assert mops.check(path).tasks == mops.check(recipe).tasks == mops.check(str(path)).tasks
