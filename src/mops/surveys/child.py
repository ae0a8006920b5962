"""The process that trains the trials of one job, and tells on stdout how it goes.

python -m mops.surveys.child FOLDER ID...

Each line is a JSON object. When nobody reads them any more, the survey is gone, and so is this.
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
from mops.training.batched.family import why_not
from mops.training.batched.run import prepare_many, train_many
from mops.training.prepare import keep_memory
from mops.training.run import train
from mops.training.step import StepFacts
from mops.training.tracking import Label
from mops.training.trainer import Silent

EVERY = 0.5  # seconds between lines about steps
STOPPED = 130  # exit code: asked to stop, can go on


class Teller(Silent):
    """A watcher that writes lines."""

    def __init__(self) -> None:
        self.total = 1
        self.told = 0.0

    def begin(self, total: int, done: int) -> None:
        self.total = total
        self.tell(step=done)

    def step(self, step: int, facts: StepFacts) -> None:
        if time.monotonic() - self.told > EVERY:
            self.tell(step=step)

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        self.tell(step=step)

    def phase(self, name: str) -> None:
        self.tell(phase=name)

    def tell(self, **facts: Any) -> None:
        self.told = time.monotonic()
        print(json.dumps({"total": self.total, **facts}), flush=True)


def work(folder: Path, trial_ids: Sequence[str], teller: Teller | None = None) -> None:
    """Train those of the trials that are open and that nobody else trains."""
    ledger, teller = Ledger(folder), teller or Teller()
    keep_memory()
    with ledger.claim(trial_ids) as mine:
        left = [trial_id for trial_id in mine if ledger.is_open(trial_id)]
        together = stackable(ledger, left) if len(left) > 1 else []
        if together:
            train_together(ledger, together, teller)
        for trial_id in left:
            if trial_id not in together:
                train_alone(ledger, trial_id, teller)


def train_alone(ledger: Ledger, trial_id: str, teller: Teller) -> None:
    try:
        recipe, label = ledger.recipe(trial_id), trial_label(ledger, trial_id)
        train(recipe, ledger.run_folder(trial_id), teller, label)
    except Exception as error:
        note_failure(ledger, trial_id, error)


def stackable(ledger: Ledger, trial_ids: Sequence[str]) -> list[str]:
    """Those that can be trained as one batch; one that cannot even begin is trained alone."""
    try:
        ready = prepare_many([ledger.recipe(trial_id) for trial_id in trial_ids], lambda _: None)
    except MopsError:
        return []
    return [of for of, one in zip(trial_ids, ready, strict=True) if not why_not(one)]


def train_together(ledger: Ledger, trial_ids: Sequence[str], teller: Teller) -> None:
    recipes = [ledger.recipe(trial_id) for trial_id in trial_ids]
    folders = [ledger.run_folder(trial_id) for trial_id in trial_ids]
    results: Sequence[object]
    try:
        labels = [trial_label(ledger, trial_id) for trial_id in trial_ids]
        results = train_many(recipes, folders, teller, labels=labels)
    except Exception as error:
        results = [error] * len(trial_ids)
    for trial_id, result in zip(trial_ids, results, strict=True):
        if isinstance(result, Exception) and not ledger.is_finished(trial_id):
            note_failure(ledger, trial_id, result)


def trial_label(ledger: Ledger, trial_id: str) -> Label:
    """Trackers show the trials of a survey together, by candidate and seed."""
    name = ledger.names().get(trial_id, trial_id)
    return Label(name, ledger.folder, group=ledger.folder.resolve().name)


def note_failure(ledger: Ledger, trial_id: str, error: Exception) -> None:
    """A trial that failed does not stop the others; one whose survey is gone has not failed."""
    if isinstance(error, BrokenPipeError):
        raise error
    known = isinstance(error, MopsError)
    ledger.fail(trial_id, str(error) if known else f"unexpected {type(error).__name__}: {error}")
    if not known:
        traceback.print_exception(error)


def main() -> None:
    folder, *trial_ids = sys.argv[1:]
    try:
        work(Path(folder), trial_ids)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
