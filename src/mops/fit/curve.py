"""The curve of a run: a line for each logged step and each evaluation, heard by its trackers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mops.errors import RunError
from mops.fit.audience import Audience, Line, gather
from mops.fit.trackers import Label
from mops.recipes import Recipe


@dataclass
class Curve:
    """A file of JSON lines, and who hears them."""

    path: Path
    audience: Audience = field(default_factory=Audience)

    def write(self, line: Line) -> int:
        """Append a line; the bytes of the file so far."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                size = file.tell()
        except OSError as cause:
            raise RunError(
                f"cannot write {self.path}: {cause.strerror}; free some space"
            ) from cause
        self.audience.hear(line)
        return size

    @contextmanager
    def heard(
        self, recipe: Recipe, label: Label, *, kept_bytes: int, state: Path
    ) -> Iterator[None]:
        """The recipe's trackers hear the lines; a run that breaks off is ended without scores."""
        self.audience = gather(recipe, label, curve=self.path, kept_bytes=kept_bytes, state=state)
        try:
            yield
        finally:
            self.audience.end()

    def cut(self, size: int) -> None:
        """Forget lines that were written after the state that a run goes on from."""
        with self.path.open("ab") as file:
            file.truncate(size)
