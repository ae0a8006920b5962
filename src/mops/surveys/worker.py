"""The process that trains the trials of one job: python -m mops.surveys.worker FOLDER ID...

It writes its progress to stdout, one JSON object per line, and ends when nobody reads it any more.
"""

import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mops.errors import MopsError, RunError
from mops.surveys.ledger import Ledger
from mops.training.batched import train_many
from mops.training.machine import keep_freed_memory
from mops.training.run import Paused, Run, train_until
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

    def phase(self, name: str) -> None:
        self.write(phase=name)

    def write(self, **facts: Any) -> None:
        self.last = time.monotonic()
        try:
            print(json.dumps({"total": self.total, **facts}), flush=True)
        except BrokenPipeError:  # the survey has ended; not an error of the trial
            raise KeyboardInterrupt from None


def train_trials(folder: Path, trial_ids: Sequence[str], watcher: Watcher | None = None) -> None:
    """Train the open trials that no other process trains; a failure does not stop the others."""
    ledger, watcher = Ledger(folder), watcher or ProgressLines()
    keep_freed_memory()
    with ledger.claim(trial_ids) as mine:
        left = ledger.open_ids(mine)
        if len(left) > 1:
            train_batch(ledger, left, watcher)
        for trial_id in filter(ledger.is_open, left):
            try:
                recipe, label = ledger.recipe(trial_id), trial_label(ledger, trial_id)
                until = ledger.pause(trial_id)["until"]
                run = train_until(recipe, ledger.run_folder(trial_id), watcher, label, until)
                note_pause(ledger, trial_id, run, until)
            except MopsError as error:
                ledger.fail(trial_id, str(error))
            except Exception as error:
                ledger.fail(trial_id, f"unexpected {type(error).__name__}: {error}")
                traceback.print_exception(error)


def train_batch(ledger: Ledger, trial_ids: Sequence[str], watcher: Watcher) -> None:
    """Train trials as one batch; if that breaks off as a whole, they stay open."""
    until = ledger.pause(trial_ids[0])["until"]
    try:
        results = train_many(
            [ledger.recipe(trial_id) for trial_id in trial_ids],
            [ledger.run_folder(trial_id) for trial_id in trial_ids],
            watcher,
            labels=[trial_label(ledger, trial_id) for trial_id in trial_ids],
            until=until,
        )
    except Exception as error:
        traceback.print_exception(error)
        return
    for trial_id, result in zip(trial_ids, results, strict=True):
        if isinstance(result, RunError):
            ledger.fail(trial_id, str(result))
        else:
            note_pause(ledger, trial_id, result, until)


def note_pause(ledger: Ledger, trial_id: str, run: Run | Paused, until: float) -> None:
    if isinstance(run, Paused):
        ledger.note_pause(trial_id, reached=until, score=run.score, seconds=run.seconds)


def trial_label(ledger: Ledger, trial_id: str) -> Label:
    """Trackers group the trials of a survey, named by candidate and seed."""
    name = ledger.names().get(trial_id, trial_id)
    return Label(name, ledger.folder, group=ledger.folder.resolve().name)


if __name__ == "__main__":
    survey_folder, *ids = sys.argv[1:]
    try:
        train_trials(Path(survey_folder), ids)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
