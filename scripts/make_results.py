"""Train many plans on the CS224N files under one budget and write docs/results.md.

python scripts/make_results.py --data DIR              train what is missing, time, write the page
python scripts/make_results.py --data DIR --no-train   time what is not timed yet, write the page

Each plan is a run of its own (`mops train`, one thread, two at a time); a finished run is never
repeated and an interrupted one goes on where it was. The runs meet a busy machine, so times come
from a pass of its own at the end: a few steps of every plan in turn, again and again, on one
thread, in processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from mops.files import write_text
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
BASELINE = PLANS[0]
TASKS = ("sentiment", "paraphrase", "similarity")
SETTINGS: dict[str, Any] = {
    "training.max_steps": 240,
    "training.eval_steps": 120,
    "training.per_task_batch_size": 16,
    "training.learning_rate": 1e-4,
    "training.threads": 1,
    **{f"tasks.{task}.test": None for task in TASKS},  # no labels there: nothing to score
}
ROUNDS, TIMED_STEPS = 3, 2  # of the timing pass; one more step of each warms up
TWO_ERRORS = 2.0


# ------------------------------------------------------------------ training


def folder_of(out: Path, plan: str) -> Path:
    return out / re.sub("[^a-zA-Z0-9_-]+", "-", plan)


def settings_words() -> list[str]:
    words = (f"{key}={'null' if value is None else value}" for key, value in SETTINGS.items())
    return [word for setting in words for word in ("--set", setting)]


def train_plan(plan: str, data: str, folder: Path) -> str:
    """One plan in a process of its own; what it says goes into a file beside its folder."""
    if (folder / "record.json").is_file():
        return f"{plan}: finished before"
    log = folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-P", "-m", "mops", "train", "--data", data, "--plan", plan]
    words += ["--out", str(folder), *settings_words()]
    with log.open("a", encoding="utf-8") as lines:
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        code = subprocess.run(words, stdout=lines, stderr=lines, env=one_thread, check=False)
    return f"{plan}: {'finished' if not code.returncode else f'FAILED, see {log}'}"


# ------------------------------------------------------------------ timing


def time_plans(data: str, path: Path) -> dict[str, float]:
    """Plan -> processor seconds of a training step: the median over interleaved rounds."""
    if path.is_file():
        return dict(json.loads(path.read_text("utf-8")))
    import mops
    from mops.data.schedule import plan_steps
    from mops.fit.prepare import batch_maker, prepare, training_data

    ready = prepare(mops.recipe(data=data, plan=BASELINE, set=SETTINGS), lambda _: None)
    rows = training_data(ready)
    schedule = plan_steps({name: len(of) for name, of in rows.items()}, ready.recipe.training)
    take = batch_maker(ready, rows)
    batches = [
        take({t: schedule.places(t, 16 * n, 16) for t in TASKS}) for n in range(TIMED_STEPS + 1)
    ]
    seconds: dict[str, list[float]] = {plan: [] for plan in PLANS}
    for _ in range(ROUNDS):
        for plan in PLANS:
            seconds[plan] += list(time_steps(ready, plan, batches))[1:]
            print(f"timed {plan}: {median(seconds[plan]):.3f} s", flush=True)
    found = {plan: median(values) for plan, values in seconds.items()}
    write_text(path, json.dumps(found, indent=2))
    return found


def time_steps(ready: Any, plan: str, batches: list[Any]) -> Iterator[float]:
    from mops.encoder.network import Network
    from mops.encoder.pretrained import load_pretrained
    from mops.fit.rates import build_optimiser
    from mops.fit.step import take_step
    from mops.layout import lay_out
    from mops.parsing import read_plan

    base, training = ready.layout, ready.recipe.training
    tasks = list(base.tasks.values())
    layout = lay_out(read_plan(plan), tasks, base.encoder, base.reading)
    network = Network(layout, dropout=training.dropout, head_dropout=training.head_dropout)
    load_pretrained(network, ready.source)
    optimiser = build_optimiser(network, training)
    for step, batch in enumerate(batches):
        started = time.process_time()
        take_step(network, optimiser, batch, training, step=step, total=len(batches))
        yield time.process_time() - started


# ------------------------------------------------------------------ the page


def score_of(record: Record, task: str) -> tuple[float, float]:
    part = record.scores["tasks"][task]["report"]
    return part[record.scores["main"][task]], part["stderr"]


def error_of_mean(record: Record) -> float:
    """Of the overall score: the tasks' errors are independent, their rows are different."""
    return float(sum(score_of(record, task)[1] ** 2 for task in TASKS) ** 0.5 / len(TASKS))


def row(plan: str, record: Record, seconds: dict[str, float]) -> list[str]:
    overall = record.scores["overall"]["report"]
    scores = (score_of(record, task) for task in TASKS)
    minutes = seconds[plan] * record.train_info["steps"] / 60
    return [
        f"`{plan}`",
        f"{overall['overall']:.3f} ± {error_of_mean(record):.3f}",
        f"{overall['overall_normalised']:.3f}",
        *(f"{value:.3f} ± {error:.3f}" for value, error in scores),
        f"{record.costs['parameters'] / 1e6:.2f}",
        f"{record.costs['trained_parameters'] / 1e6:.2f}",
        f"{minutes:.1f}",
        f"{seconds[plan] / seconds[BASELINE]:.2f}",
    ]


HEADER = [
    "plan", "overall", "normalised", *TASKS, "parameters (M)", "trained (M)",
    "training (min)", "a step, of the first",
]  # fmt: skip


def table(records: dict[str, Record], seconds: dict[str, float]) -> list[str]:
    rows = [HEADER, ["---", *("---:" for _ in HEADER[1:])]]
    rows += [row(plan, record, seconds) for plan, record in records.items()]
    return [f"| {' | '.join(cells)} |" for cells in rows]


def differences(records: dict[str, Record]) -> list[str]:
    """Per task and overall: which plans differ from the baseline by more than two errors."""
    base = records[BASELINE]
    found = []
    for name in ("overall", *TASKS):
        apart = {"above": [], "below": []}
        for plan, record in records.items():
            one, error = measure(record, name)
            other, base_error = measure(base, name)
            if abs(one - other) > TWO_ERRORS * (error**2 + base_error**2) ** 0.5:
                apart["above" if one > other else "below"].append(f"`{plan}` ({one - other:+.3f})")
        texts = [f"{side}: {', '.join(plans)}" for side, plans in apart.items() if plans]
        found.append(f"- {name}: {'; '.join(texts) or 'none'}")
    return found


def measure(record: Record, name: str) -> tuple[float, float]:
    if name == "overall":
        return record.scores["overall"]["report"]["overall"], error_of_mean(record)
    return score_of(record, name)


INTRO = f"""# Results

<!-- generated by scripts/make_results.py; do not edit -->

Sixteen plans on the CS224N files (SST-5, Quora pairs, STS), each trained once with one equal small
budget: {SETTINGS["training.max_steps"]} steps of {SETTINGS["training.per_task_batch_size"]} rows of
every task (minutes of one core, see the table), the bundled encoder, `pair: cross`, learning rate
{SETTINGS["training.learning_rate"]:g} (heads 1e-3), seed 11711, everything else as by default. That
is less than a pass over any set, so the scores say who learns quickly, not who is best in the end.

```
python scripts/make_results.py --data DIR    # DIR: the folder with the CS224N files
```

Scores are on the report half of the validation rows (the best state was chosen on the other half),
± one standard error by bootstrap over rows. **One seed**: the error says how far other rows would
move a score, not how far another seed would; differences within two errors mean nothing, and some
beyond them may be the seed's. `overall` is the plain mean, `normalised` has (r+1)/2 in place of
the correlation. Training time counts training steps only: processor time on one thread, the median
of {ROUNDS * TIMED_STEPS} steps per plan, measured in turn on the same batches, times the steps; how
far `shared`, `late:...` and `progressive` differ, whose encoders do the same work, is the noise of
this measurement. The bundled encoder was tuned on sentence pairs that include Quora duplicates, so
the paraphrase column is no clean transfer result. A frozen encoder with `pair: cross` sees pairs as
it never did before; the README has such a plan with `pair: bi` and more steps.
"""


def write_page(records: dict[str, Record], seconds: dict[str, float]) -> None:
    facts = next(iter(records.values())).meta_info
    parts = [
        INTRO,
        *table(records, seconds),
        "",
        f"Overall and by task, further than two standard errors of the difference from "
        f"`{BASELINE}` (no correction for so many comparisons: expect one in twenty by chance):",
        "",
        *differences(records),
        "",
        f"{facts['processor']}, torch {facts['packages']['torch']}.",
        "",
    ]
    write_text(PAGE, "\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="the folder with the CS224N files")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    parser.add_argument("--no-train", action="store_true", help="only what is there")
    options = parser.parse_args()
    if not options.no_train:
        with ThreadPoolExecutor(options.jobs) as pool:
            for line in pool.map(
                lambda plan: train_plan(plan, options.data, folder_of(options.out, plan)), PLANS
            ):
                print(line, flush=True)
    paths = {plan: folder_of(options.out, plan) / "record.json" for plan in PLANS}
    records = {plan: read_record(path) for plan, path in paths.items() if path.is_file()}
    missing = [plan for plan in PLANS if plan not in records]
    if missing:
        sys.exit(f"no record of {', '.join(missing)}; run again without --no-train")
    write_page(records, time_plans(options.data, options.out / "seconds.json"))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
