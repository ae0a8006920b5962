"""The curve of a run: a JSON line for each logged step and evaluation, sent to trackers too."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe
from mops.errors import RunError
from mops.files import write_text
from mops.record import RunScores
from mops.training.tracking import TRACKERS, Label, Start, Tracker

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
    """A tracker failed; the run continues without it."""


@dataclass
class Curve:
    """A file of JSON lines and the trackers that get them too.

    A tracker that fails is dropped with a warning.
    """

    path: Path
    trackers: dict[str, Tracker] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # next lines that a tracker already has

    def write(self, line: Line) -> int:
        """Append a line; returns the size of the file."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                size = file.tell()
        except OSError as cause:
            raise RunError(
                f"cannot write {self.path}: {cause.strerror}; free some space"
            ) from cause
        self.each_tracker(lambda name: self.send(name, line))
        return size

    def cut(self, size: int) -> None:
        """Drop lines that were written after the checkpoint that a run resumes from."""
        try:
            with self.path.open("ab") as file:
                file.truncate(size)
        except OSError as cause:
            raise RunError(f"cannot write {self.path}: {cause.strerror}") from cause

    @contextmanager
    def tracked(self, recipe: Recipe, label: Label, state: Path, size: int) -> Iterator[None]:
        """Send lines to the recipe's trackers; a run that breaks off ends without scores.

        `size` is that of the curve up to the checkpoint that the run resumes from. A tracker that
        knows the run has its later lines too; a new one gets the earlier ones first. `state` keeps
        the trackers' keys.
        """
        path, names = state / KEYS, recipe.training.trackers
        keys: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        parameters = dict(flat(recipe.to_data(), "."))
        starts = {name: Start(label, parameters, keys.get(name, "")) for name in names}
        kept, later = read_lines(self.path, size)
        for name, start in starts.items():
            self.guard(name, partial(self.open, name, start, kept, later))
        if names:
            keys |= {name: tracker.key for name, tracker in self.trackers.items()}
            write_text(path, json.dumps(keys, indent=2) + "\n")
        try:
            yield
        finally:
            self.end()

    def open(self, name: str, start: Start, kept: list[Line], later: int) -> None:
        self.trackers[name] = TRACKERS[name].begin(start)
        self.sent[name] = later if start.key else 0
        for line in () if start.key else kept:
            self.send(name, line)

    def send(self, name: str, line: Line) -> None:
        if self.sent[name]:
            self.sent[name] -= 1
        else:
            self.trackers[name].scalars(line["step"], dict(named_scalars(line)))

    def end(self, scores: Mapping[str, float] | None = None) -> None:
        """Give trackers the final scores, or none when the run was broken off, and close them."""
        self.each_tracker(lambda name: self.trackers[name].end(scores or {}))
        self.trackers.clear()

    def each_tracker(self, action: Callable[[str], None]) -> None:
        for name in list(self.trackers):
            self.guard(name, partial(action, name))

    def guard(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.trackers.pop(name, None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            warnings.warn(
                f"report_to: {name} failed and gets no more of this run ({reason}); "
                "the run goes on",
                TrackerWarning,
                stacklevel=2,
            )


def read_lines(curve: Path, size: int) -> tuple[list[Line], int]:
    """The lines of the first `size` bytes, and the number of whole lines after them."""
    text = curve.read_bytes() if curve.is_file() else b""
    return [json.loads(line) for line in text[:size].splitlines()], text[size:].count(b"\n")


# ------------------------------------------------------------------ names


def named_scalars(line: Line) -> Iterator[tuple[str, float]]:
    """`train/loss`, `train/loss/sentiment`, `eval/overall`, `eval/sentiment/accuracy`, ..."""
    kind = "eval" if any(key in line for key in EVALUATED) else "train"
    phase = [line["phase"]] if "phase" in line else []
    for name, value in flat({key: value for key, value in line.items() if key != "step"}, "/"):
        first, *rest = name.split("/")
        words = (*phase, kind, *SHORT.get(first, (first,)), *rest)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield "/".join(words), float(value)


def final_scores(scores: RunScores, split: str = "report") -> dict[str, float]:
    """The scores of a record, as `final/overall`, `final/sentiment/accuracy`, ..."""
    tasks = {name: splits.get(split, {}) for name, splits in scores.tasks.items()}
    values = {**scores.overall.get(split, {}), **tasks}
    return {f"final/{name}": float(value) for name, value in flat(values, "/")}


def flat(data: Mapping[str, Any], separator: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by a separator; a list is one value, as JSON."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, separator, f"{prefix}{key}{separator}")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value
