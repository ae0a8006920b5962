"""`mops probe`: gaps on the screen, as JSON, and in the card."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from building import ENTRIES, build_network, tiny_tokenizer
from mops.predict.bundle import load_bundle, save_bundle
from running import world


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """A trained model and a copy of it."""
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        shutil.copytree(world().run / "model", place)
    return [str(place) for place in places]


def test_the_gaps_of_two_models(models: list[str], run_cli: Any) -> None:
    code, out, _ = run_cli("probe", *models, "--json")
    assert code == 0
    first, second = json.loads(out).values()
    assert {gap["task"] for gap in first} == {"sentiment", "paraphrase", "similarity"}
    assert all(gap["gap"]["low"] <= gap["gap"]["mean"] <= gap["gap"]["high"] for gap in first)
    assert all(gap["change"]["mean"] == 0 for gap in second)  # the same model


def test_the_card_shows_what_was_found(models: list[str], run_cli: Any) -> None:
    before = Path(models[0], "model.safetensors").read_bytes()
    code, out, _ = run_cli("probe", models[0])
    assert code == 0 and "gender, names" in out and "zero is outside" in " ".join(out.split())
    card = Path(models[0], "README.md").read_text("utf-8")
    assert "## Bias probe" in card and "nationality" in card
    assert load_bundle(models[0]).config["probe"][0]["contrast"]
    assert Path(models[0], "model.safetensors").read_bytes() == before


def test_a_full_disk_changes_nothing_and_the_gaps_are_shown(
    models: list[str], run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(models[0])
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mops.predict.manifest.sync", fail)
    code, out, err = run_cli("probe", models[0], "--json")
    assert code == 0 and json.loads(out)[models[0]] and "was not changed" in err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert run_cli("verify", models[0])[0] == 0


def test_a_file_that_was_added_is_still_found_after_a_probe(
    models: list[str], run_cli: Any
) -> None:
    Path(models[0], "evil.py").write_text("print()")
    assert run_cli("probe", models[0])[0] == 0
    code, _, err = run_cli("verify", models[0])
    assert code == 1 and "evil.py is not listed" in err and "README" not in err


def test_models_without_a_common_task(models: list[str], run_cli: Any, tmp_path: Path) -> None:
    other = {"other": ENTRIES["sentiment"]}
    tasks = [entry.task(name) for name, entry in other.items()]
    network = build_network("shared", tasks=tasks)
    save_bundle(tmp_path / "other", network, tiny_tokenizer(), other, {})
    code, _, err = run_cli("probe", models[0], str(tmp_path / "other"))
    assert code == 2 and "in common" in err and len(err.splitlines()) == 1
