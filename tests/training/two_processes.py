"""Started twice by torchrun: trains one recipe after the other, and notes how each ended.

A case is {"out", "recipe", "stop_at"}: a file of cases and a folder for the notes are given.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import mops
from mops.config.recipe import to_recipe
from mops.training.tracking import Watcher


class Stopper(Watcher):
    """At a step, SIGTERM goes to the other process."""

    def __init__(self, at: int, other: Path) -> None:
        self.at, self.other = at, other

    def step(self, step: int, facts: object) -> None:
        if step == self.at:
            os.kill(int(self.other.read_text("utf-8")), signal.SIGTERM)


def main(cases: Path, notes: Path) -> None:
    rank = int(os.environ["RANK"])
    (notes / f"pid-{rank}").write_text(str(os.getpid()), "utf-8")
    ends = []
    for case in json.loads(cases.read_text("utf-8")):
        watcher = Stopper(case.get("stop_at", 0), notes / f"pid-{1 - rank}")
        end = "finished"
        try:
            mops.train(to_recipe(case["recipe"]), case["out"], watcher)
        except BaseException as error:
            end = f"{type(error).__name__}: {error}"
        ends.append(end)
    (notes / f"ends-{rank}.json").write_text(json.dumps(ends), "utf-8")


main(Path(sys.argv[1]), Path(sys.argv[2]))
