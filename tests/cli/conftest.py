"""What tests of commands share: a trained small world, and a way to type a command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from running import World, one_core, run_cli_with, world


@pytest.fixture(scope="module")  # the run is trained once; the core is given back
def made() -> Iterator[World]:
    with one_core():
        yield world()


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`run_cli(*words) -> (code, out, err)`, on a wide screen."""
    monkeypatch.setenv("COLUMNS", "250")
    return run_cli_with(monkeypatch, capsys)


@pytest.fixture
def model(made: World) -> str:
    return str(made.run / "model")
