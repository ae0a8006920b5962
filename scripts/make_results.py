"""Train many plans on the CS224N files under one budget and write docs/results.md.

python scripts/make_results.py --data DIR             train what is missing, time, write the page
python scripts/make_results.py --data DIR --status    show what is there

Each plan is a run of its own (`mops train`, one thread, two at a time); a finished run is never
repeated and an interrupted one goes on where it was. Times come from a pass of its own at the end:
a few steps of every plan in turn, again and again, with nothing else running.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mops.records import Record, read_record

PAGE = Path(__file__).parent.parent / "docs" / "results.md"
PLANS = (
    "shared",
    "separate",
    "hybrid:2",
    "hybrid:4",
    "layers:FFSSII",
    "late:SIS",
    "late:ISS/paraphrase+similarity",
    "frozen+late:SSI",
    "progressive",
    "pals:top",
    "pals:parallel-weighted",
    "pals:both-same",
    "embert",
    "lora:8",
    "adapters:64",
    "soft:0.01",
)
TASKS = ("sentiment", "paraphrase", "similarity")
SETTINGS = {
    "training.max_steps": 240,
    "training.eval_steps": 120,
    "training.per_task_batch_size": 16,
    "training.learning_rate": 1e-4,
    "training.threads": 1,
    **{f"tasks.{task}.test": "null" for task in TASKS},  # no labels there: nothing to score
}


def folder_of(out: Path, plan: str) -> Path:
    return out / re.sub("[^a-zA-Z0-9_-]+", "-", plan)


def command_of(plan: str, data: str, folder: Path) -> list[str]:
    words = ["train", "--data", data, "--plan", plan, "--out", str(folder)]
    return words + [w for key, value in SETTINGS.items() for w in ("--set", f"{key}={value}")]


def train_plan(plan: str, data: str, folder: Path) -> str:
    """One plan in a process of its own; what it says goes into a file beside its folder."""
    if (folder / "record.json").is_file():
        return f"{plan}: finished before"
    log = folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as lines:
        words = [sys.executable, "-P", "-m", "mops", *command_of(plan, data, folder)]
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        code = subprocess.run(words, stdout=lines, stderr=lines, env=one_thread, check=False)
    return f"{plan}: {'finished' if not code.returncode else f'FAILED, see {log}'}"


def records_of(out: Path) -> dict[str, Record]:
    found = {plan: folder_of(out, plan) / "record.json" for plan in PLANS}
    return {plan: read_record(path) for plan, path in found.items() if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the folder with the CS224N files")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="plans to train now, separated by blanks")
    options = parser.parse_args()
    wanted = options.only.split() if options.only else PLANS
    with ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(
            lambda plan: train_plan(plan, options.data, folder_of(options.out, plan)), wanted
        ):
            print(line, flush=True)


if __name__ == "__main__":
    main()
