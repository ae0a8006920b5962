"""The process that trains the trials of one job: python -m mops.surveys.worker FOLDER ID...

It writes its progress to stdout, one JSON object per line, and ends when nobody reads it any more.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mops.errors import MopsError
from mops.surveys.ledger import Ledger
from mops.training.batched.run import train_many
from mops.training.machine import keep_freed_memory
from mops.training.run import train
from mops.training.step import StepFacts
from mops.training.tracking import Label, Watcher

INTERVAL = 0.5  # seconds between lines about steps
INTERRUPTED = 130  # exit code: asked to stop, can go on later


class ProgressLines(Watcher):
    """A training watcher that writes lines."""

    def __init__(self) -> None:
        self.total = 1
        self.last = 0.0

    def begin(self, total: int, done: int) -> None:
        self.total = total
        self.write(step=done)

    def step(self, step: int, facts: StepFacts) -> None:
        if time.monotonic() - self.last > INTERVAL:
            self.write(step=step)

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        self.write(step=step)

    def phase(self, name: str) -> None:
        self.write(phase=name)

    def write(self, **facts: Any) -> None:
        self.last = time.monotonic()
        print(json.dumps({"total": self.total, **facts}), flush=True)


def train_trials(folder: Path, trial_ids: Sequence[str], watcher: Watcher | None = None) -> None:
    """Train the open trials that no other process trains."""
    ledger, watcher = Ledger(folder), watcher or ProgressLines()
    keep_freed_memory()
    with ledger.claim(trial_ids) as mine:
        left = [trial_id for trial_id in mine if ledger.is_open(trial_id)]
        if len(left) > 1:
            train_batch(ledger, left, watcher)
        for trial_id in filter(ledger.is_open, left):
            try:
                recipe, label = ledger.recipe(trial_id), trial_label(ledger, trial_id)
                train(recipe, ledger.run_folder(trial_id), watcher, label)
            except Exception as error:
                note_failure(ledger, trial_id, error)


def train_batch(ledger: Ledger, trial_ids: Sequence[str], watcher: Watcher) -> None:
    """Train trials as one batch; if that breaks off as a whole, they stay open."""
    try:
        results = train_many(
            [ledger.recipe(trial_id) for trial_id in trial_ids],
            [ledger.run_folder(trial_id) for trial_id in trial_ids],
            watcher,
            labels=[trial_label(ledger, trial_id) for trial_id in trial_ids],
        )
    except BrokenPipeError:
        raise
    except Exception as error:
        if not isinstance(error, MopsError):
            traceback.print_exception(error)
        return
    for trial_id, result in zip(trial_ids, results, strict=True):
        if isinstance(result, Exception):
            note_failure(ledger, trial_id, result)


def trial_label(ledger: Ledger, trial_id: str) -> Label:
    """Trackers group the trials of a survey, named by candidate and seed."""
    name = ledger.names().get(trial_id, trial_id)
    return Label(name, ledger.folder, group=ledger.folder.resolve().name)


def note_failure(ledger: Ledger, trial_id: str, error: Exception) -> None:
    """A failed trial does not stop the others; a broken pipe means that the survey has ended."""
    if isinstance(error, BrokenPipeError):
        raise error
    is_known = isinstance(error, MopsError)
    reason = str(error) if is_known else f"unexpected {type(error).__name__}: {error}"
    ledger.fail(trial_id, reason)
    if not is_known:
        traceback.print_exception(error)


def main() -> None:
    folder, *trial_ids = sys.argv[1:]
    try:
        train_trials(Path(folder), trial_ids)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
