"""The encoder's tokenizer and config belong to a run like its weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mops
from mops.config.recipe import Recipe
from mops.errors import MopsError
from mops.surveys.ledger import cached_encoder, content_id
from running import StopAt, world

Change = Callable[[Path], None]


def swap_words(encoder: Path) -> None:
    path = encoder / "tokenizer.json"
    data = json.loads(path.read_text())
    words = data["model"]["vocab"]
    words["bat"], words["den"] = words["den"], words["bat"]
    path.write_text(json.dumps(data))


def set_activation(encoder: Path) -> None:
    path = encoder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": "relu"}))


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    encoder = shutil.copytree(world().encoder, tmp_path / "encoder")
    return world().recipe(encoder=encoder, training__save_steps=2)


changes = pytest.mark.parametrize("change", [swap_words, set_activation])


@changes
def test_a_run_does_not_resume_with_another_one(
    recipe: Recipe, tmp_path: Path, change: Change
) -> None:
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "run", StopAt(5))
    change(Path(recipe.encoder))
    with pytest.raises(MopsError, match=r"with another encoder \(weights, tokenizer or config\)"):
        mops.train(recipe, tmp_path / "run")


@changes
def test_a_finished_run_is_not_taken_for_that_of_another_one(
    recipe: Recipe, tmp_path: Path, change: Change
) -> None:
    run = mops.train(recipe, tmp_path / "run")
    found = run.record.meta_info
    assert len({found.encoder_sha256, found.encoder_files_sha256, found.code_sha256, ""}) == 4
    change(Path(recipe.encoder))
    with pytest.raises(MopsError, match="tokenizer or config"):
        mops.train(recipe, tmp_path / "run")
    record = json.loads((tmp_path / "run/record.json").read_text())
    del (
        record["meta_info"]["encoder_files_sha256"],
        record["sha256"],
    )  # as an older version wrote it
    (tmp_path / "run/record.json").write_text(json.dumps(record))
    assert mops.train(recipe, tmp_path / "run").was_finished


@changes
def test_a_trial_with_another_one_has_another_id(recipe: Recipe, change: Change) -> None:
    before = content_id(recipe)
    change(Path(recipe.encoder))
    cached_encoder.cache_clear()
    assert content_id(recipe) != before


def test_a_model_that_grows_from_another_tokenizer_is_another_one(tmp_path: Path) -> None:
    model = shutil.copytree(world().run / "model", tmp_path / "model")
    (model / "manifest.json").unlink()  # as one of an earlier version
    before = mops.load(model).bundle.source.files_digest
    swap_words(model)
    assert mops.load(model).bundle.source.files_digest != before
