"""Trials are named by their content."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mops
from mops.surveys.ledger import Candidate, Trial
from running import QUICK, world


def trial(seed: int = 1, data: Path | None = None, **settings: Any) -> Trial:
    here = world()
    given = {**QUICK, **{f"training.{key}": value for key, value in settings.items()}}
    recipe = mops.recipe(data=data or here.data, encoder=str(here.encoder), set=given)
    return Candidate("shared", {}, recipe).trial(seed)


def test_a_trial_has_the_seed_of_its_own() -> None:
    assert trial(seed=5).recipe.training.seed == 5
    assert trial(seed=5).name == "shared, seed 5"


def test_the_same_content_has_the_same_id(tmp_path: Path) -> None:
    """Wherever its files lie, and with however many threads it is trained."""
    copy = shutil.copytree(world().data, tmp_path / "copy")
    assert trial().id == trial(data=copy).id == trial(threads=2, save_steps=7).id


def test_other_content_has_another_id(tmp_path: Path) -> None:
    copy = shutil.copytree(world().data, tmp_path / "copy")
    file = copy / "sts-train.csv"
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    ids = {trial().id, trial(seed=2).id, trial(learning_rate=1e-4).id}
    assert len(ids) == 3
    mended = trial(data=copy).id
    assert mended not in ids
