"""Inject faults for some minutes, and write how often each was survived.

    python -m faults --minutes 15 --lanes 2

Each lane is a process that forks commands. A fault counts when it happened: a command may end
before the moment that was drawn. The exit code is 1 if anything was lost, wrong or unclear.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from faults.commands import (
    NEVER,
    ROOT,
    SHIM,
    Subject,
    World,
    in_out,
    predict_words,
    run_result,
    start,
    survey_result,
    survey_words,
    train_words,
)
from faults.injections import (
    FAULTS,
    LOST,
    OLD,
    OUTCOMES,
    REFUSED,
    RESUMED,
    SERVER_FAULTS,
    UNCLEAR,
    WRONG,
    Fault,
    Trial,
)

RESULT = ROOT / "faults" / "result.json"
Tally = dict[str, Counter[str]]  # "subject: fault" -> outcomes
SHARES = {"train": 9, "cache": 4, "predict": 5, "survey": 1, "serve": 2}  # how often each is drawn
SUBJECTS = {
    "train": Subject("train", train_words, in_out(run_result)),
    "cache": Subject(
        "cache",
        lambda world, place: train_words(world, place, "frozen+late:SI"),
        in_out(run_result),
    ),
    "predict": Subject(
        "predict", predict_words, lambda place: {"": (place / "out/answers.csv").read_bytes()}
    ),
    "survey": Subject("survey", survey_words, in_out(survey_result)),
}


class Lane:
    """A process that injects one fault after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.tally = folder, random.Random(seed), Tally()
        self.world, self.number = World(folder.parent / "world"), 0
        self.calm: dict[str, dict[str, Any]] = {}  # what a subject gives undisturbed
        folder.mkdir()
        for module in ("mops.training.run", "mops.cli.train", "mops.serve.app", "torch._dynamo"):
            __import__(module)

    def new_place(self) -> Path:
        self.number += 1
        (place := self.folder / str(self.number)).mkdir()
        return place

    def reference(self, name: str) -> dict[str, Any]:
        """Result, seconds and calls of a subject that nothing disturbs."""
        if name not in self.calm:
            place, begin, subject = self.new_place(), time.monotonic(), SUBJECTS[name]
            words = subject.words(self.world, place)
            process = start(words, place, f"write:{NEVER}:5:{place}/:{place}.mark")
            if process.wait():
                raise SystemExit(f"{name} fails undisturbed: {process.text}")
            counts = json.loads(process.log.with_suffix(".counts").read_text("utf-8"))
            self.calm[name] = {
                "reference": subject.result(place),
                "seconds": time.monotonic() - begin,
                "counts": counts | {"clock": 100},
            }
        return self.calm[name]

    def inject(self, name: str) -> None:
        """One fault of a random kind into this subject."""
        place = self.new_place()
        if name == "serve":
            kind = self.draw.choice(list(SERVER_FAULTS))
            self.count(name, kind, SERVER_FAULTS[kind](self.world, place, self.draw), place)
            return
        fault = self.draw.choice([fault for fault in FAULTS if name in fault.subjects])
        trial = Trial(
            self.world, SUBJECTS[name], **self.reference(name), place=place, draw=self.draw
        )
        if name == "predict":
            (place / "out").mkdir()
            (place / "out" / "answers.csv").write_bytes(OLD)
        if fault.inject(trial):
            outcome = self.judge(trial, fault)
            self.count(name, fault.name, outcome, place)
        else:
            shutil.rmtree(place)

    def judge(self, trial: Trial, fault: Fault) -> str:
        out = trial.place / "out" / "answers.csv"
        if trial.subject.name == "predict":  # the old output or the whole new one
            there = out.read_bytes() if out.is_file() else b""
            if there not in (OLD, *trial.reference.values()):
                return LOST
        outcome = trial.outcome(is_damaged=fault.is_damage)
        if trial.subject.name == "cache" and outcome in (RESUMED, REFUSED):
            shutil.rmtree(trial.place / "out")  # the cache alone remains
            process = trial.start()
            if process.wait() != 0 or not trial.is_same():
                return WRONG
        return outcome

    def count(self, name: str, kind: str, outcome: str, place: Path) -> None:
        self.tally.setdefault(f"{name}: {kind}", Counter())[outcome] += 1
        is_good = outcome in (RESUMED, REFUSED)
        if is_good:
            shutil.rmtree(place)
        print(f"{name}: {kind}: {outcome}{'' if is_good else f' in {place}'}", flush=True)


def work(folder: Path, seed: int, seconds: float) -> None:
    """A lane until the time is over; its tally is a file."""
    end, lane = time.monotonic() + seconds, Lane(folder, seed)
    names, shares = list(SHARES), list(SHARES.values())
    while time.monotonic() < end:
        lane.inject(*lane.draw.choices(names, shares))
        (folder / "tally.json").write_text(json.dumps(lane.tally), "utf-8")


def run_lanes(folder: Path, lanes: int, seed: int, minutes: float) -> Tally:
    shim = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source], check=True)
    words = [sys.executable, "-m", "faults", "--minutes", str(minutes), "--lane"]
    environment = os.environ | {
        "LD_PRELOAD": str(shim), SHIM: str(shim), "OMP_NUM_THREADS": "1", "FAULT": "",
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [*words, str(folder / f"lane{n}"), "--seed", str(seed + n)], env=environment
        )
        for n in range(lanes)
    ]
    if any(process.wait() for process in processes):
        raise SystemExit("a lane failed; its message is above")
    total: Tally = {}
    for n in range(lanes):
        tally = json.loads((folder / f"lane{n}" / "tally.json").read_text("utf-8"))
        for kind, outcomes in tally.items():
            total.setdefault(kind, Counter()).update(outcomes)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--lane", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    if given.lane:
        work(given.lane, given.seed, 60 * given.minutes)
    else:
        run(given)


def run(given: argparse.Namespace) -> None:
    """A world, the lanes in it, their result as a file and a line."""
    folder = Path(tempfile.mkdtemp(prefix="mops-faults-"))
    world = World(folder / "world")
    world.make()
    words = ["train", *world.source(), "--plan", "hybrid:1", "--out", str(folder / "world" / "run")]
    subprocess.run([sys.executable, "-m", "mops", *words], check=True, capture_output=True)
    tally = run_lanes(folder, given.lanes, given.seed, given.minutes)
    result = {"minutes": given.minutes, "lanes": given.lanes, "seed": given.seed, "faults": tally}
    given.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    sums = Counter[str]()
    for outcomes in tally.values():
        sums.update(outcomes)
    print(", ".join(f"{outcome} {sums[outcome]}" for outcome in OUTCOMES), "of", sums.total())
    if sums[LOST] or sums[WRONG] or sums[UNCLEAR]:
        sys.exit(f"the folders of these trials are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
