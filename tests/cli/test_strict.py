"""`--strict`: leaks are warnings with counts, and an error where they are asked to be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from running import World

TOLD = "similarity: 20 of 20 validation rows are also in train"


@pytest.fixture
def leaky(made: World, tmp_path: Path) -> list[str]:
    data = shutil.copytree(made.data, tmp_path / "data")
    shutil.copy(data / "sts-train.csv", data / "sts-dev.csv")
    return World(data, made.encoder, made.run).options("--set", "training.max_steps=2")


@pytest.mark.parametrize("command", ["check", "train", "survey"])
def test_a_leak_is_a_warning_or_an_error(
    leaky: list[str], tmp_path: Path, run_cli: Any, command: str
) -> None:
    words = [command, *leaky]
    words += [] if command == "check" else ["--out", str(tmp_path / "out")]
    if command == "survey":  # no training; the survey has settings of its own
        words = [command, "trunks", *leaky[:4], "--dry-run"]
    code, _, err = run_cli(*words)
    assert code == 0 and f"{TOLD}" in err
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    code, _, err = run_cli(*words, "--strict")
    assert code == 1 and f"strict: rows that are scored are also trained on: {TOLD}" in err
    assert not (tmp_path / "out").exists()


def test_the_record_names_it(leaky: list[str], tmp_path: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("train", *leaky, "--out", str(tmp_path / "out"), "--json")
    assert code == 0 and TOLD in json.loads(out)["warnings"]
    assert TOLD in json.loads((tmp_path / "out/model/config.json").read_text())["warnings"]


def test_without_a_leak_strict_changes_nothing(made: World, run_cli: Any) -> None:
    assert run_cli("check", *made.options("--strict"))[0] == 0
