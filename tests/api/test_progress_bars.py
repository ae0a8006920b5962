"""Progress bars: on a terminal, in a notebook, and not where nobody looks."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import mops
from mops.api import progress, training
from mops.api.progress import ProgressBar, busy, is_watched
from running import one_core, world


class Drawing:
    """What IPython's display gives back."""

    def __init__(self, shown: Any, **_: Any) -> None:
        self.seen: list[str] = []
        self.update(shown)
        if isinstance(shown, ProgressBar):  # else a line
            drawings.append(self)

    def update(self, shown: Any, raw: bool = False) -> None:
        data = shown if raw else shown._repr_mimebundle_(include=(), exclude=())
        self.seen.append(data["text/plain"])


drawings: list[Drawing] = []


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Drawing]]:
    console = Console(force_jupyter=True, file=io.StringIO(), width=100)
    monkeypatch.setattr(progress, "ERR", console)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=Drawing))
    drawings.clear()
    yield drawings


def test_a_notebook_shows_a_bar_that_moves_and_goes(notebook: list[Drawing]) -> None:
    assert is_watched()
    with busy("reading") as tell, ProgressBar("training", total=3) as bar:
        tell("writing")
        for number in range(1, 4):
            bar.show(completed=number, facts=f"loss {number}")
    (drawing,) = notebook
    first, *moved, last = drawing.seen
    assert "training" in first and "0/3" in first and last == ""
    assert [f"{n}/3" in text and f"loss {n}" in text for n, text in enumerate(moved, 1)] == [
        True
    ] * 3


def test_a_training_is_watched_only_where_somebody_looks(
    notebook: list[Drawing], monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_core():
        recipe, folder = world().recipe(), world().run
        notebook.clear()
        run = mops.train(recipe, folder)  # it is finished
        assert run.was_finished and len(notebook) == 1
        monkeypatch.setattr(training, "is_watched", lambda: False)
        mops.train(recipe, folder)
    assert len(notebook) == 1


def test_nothing_is_drawn_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "ERR", Console(file=io.StringIO(), force_jupyter=False))
    assert not is_watched()
    with busy("reading"), ProgressBar("training", total=3) as bar:
        bar.show(completed=2)
    assert progress.ERR.file.getvalue() == ""  # type: ignore[attr-defined]
