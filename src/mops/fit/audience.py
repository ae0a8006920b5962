"""Who hears a run: each line of its curve becomes named numbers for its trackers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mops.files import write_text
from mops.fit.trackers import TRACKERS, Label, Start, Tracker
from mops.recipes import Recipe

KEYS = "trackers.json"  # in the state of a run: tracker -> the key of its run there
EVALUATED = ("selection", "held_out")  # keys of a line that is an evaluation
SHORT: Mapping[str, tuple[str, ...]] = {  # keys of a line -> words of a name
    "losses": ("loss",),
    "loss_weights": ("loss_weight",),
    "gradient_shares": ("gradient_share",),
    "selection": (),
}
Line = Mapping[str, Any]


class TrackerWarning(UserWarning):
    """A tracker cannot be told; the run goes on without it."""


@dataclass
class Listener:
    """A tracker, and how many of the next lines it has heard before the run was interrupted."""

    tracker: Tracker
    heard: int = 0

    def hear(self, line: Line) -> None:
        if self.heard:
            self.heard -= 1
        else:
            self.tracker.scalars(line["step"], dict(scalars_of(line)))


@dataclass
class Audience:
    """The trackers of a run. One that fails is left out with a warning."""

    listeners: dict[str, Listener] = field(default_factory=dict)

    def hear(self, line: Line) -> None:
        self.tell(lambda listener: listener.hear(line))

    def end(self, scores: Mapping[str, float] | None = None) -> None:
        """The final scores, or none when the run was broken off; then nobody listens any more."""
        self.tell(lambda listener: listener.tracker.end(scores or {}))
        self.listeners.clear()

    def tell(self, act: Callable[[Listener], None]) -> None:
        for name, listener in list(self.listeners.items()):
            try:
                act(listener)
            except Exception as error:
                del self.listeners[name]
                warn(name, error)


def warn(name: str, error: Exception) -> None:
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    message = f"report_to: {name} failed and hears no more of this run ({said}); the run goes on"
    warnings.warn(message, TrackerWarning, stacklevel=2)


def gather(recipe: Recipe, label: Label, *, curve: Path, kept_bytes: int, state: Path) -> Audience:
    """Open the trackers of a run, before its curve is cut to what its state knows.

    One that was there before the interruption has heard all lines of the curve, also those that
    will be written once more; a new one is told those that are kept.
    """
    audience, names = Audience(), recipe.training.trackers
    path = state / KEYS
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    kept, lost = read_lines(curve, kept_bytes)
    parameters = dict(flat(recipe.to_data(), "."))
    for name in names:
        start = Start(label, parameters, known.get(name, ""))
        try:
            listener = Listener(TRACKERS[name].begin(start), lost if start.key else 0)
            for line in () if start.key else kept:
                listener.hear(line)
        except Exception as error:
            warn(name, error)
        else:
            known[name], audience.listeners[name] = listener.tracker.key, listener
    if names:
        write_text(path, json.dumps(known, indent=2) + "\n")
    return audience


def read_lines(curve: Path, kept_bytes: int) -> tuple[list[Line], int]:
    """The lines that are kept, and the number of whole ones after them."""
    text = curve.read_bytes() if curve.is_file() else b""
    kept = [json.loads(line) for line in text[:kept_bytes].splitlines()]
    return kept, text[kept_bytes:].count(b"\n")


# ------------------------------------------------------------------ names


def scalars_of(line: Line) -> Iterator[tuple[str, float]]:
    """`train/loss`, `train/loss/sentiment`, `eval/overall`, `eval/sentiment/accuracy`, ..."""
    kind = "eval" if any(key in line for key in EVALUATED) else "train"
    phase = [line["phase"]] if "phase" in line else []
    for name, value in flat({key: of for key, of in line.items() if key != "step"}, "/"):
        first, *rest = name.split("/")
        words = (*phase, kind, *SHORT.get(first, (first,)), *rest)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield "/".join(words), float(value)


def final_scores(scores: Mapping[str, Any], on: str = "report") -> dict[str, float]:
    """The scores of a record, as `final/overall`, `final/sentiment/accuracy`, ..."""
    tasks = {name: of.get(on, {}) for name, of in scores["tasks"].items()}
    found = {**scores["overall"].get(on, {}), **tasks}
    return {f"final/{name}": float(value) for name, value in flat(found, "/")}


def flat(data: Mapping[str, Any], sign: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by a sign; a list is one value, as JSON."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, sign, f"{prefix}{key}{sign}")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value
