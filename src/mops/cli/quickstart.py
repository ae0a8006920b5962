"""`mops quickstart`"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import click

from mops.cli.options import ENCODER
from mops.errors import RunError
from mops.plans import FIRST_LOOK

STEPS = 120
STOPPED = 130  # exit code of a run that was interrupted and can go on
SETTINGS = ("per_task_batch_size=8", "learning_rate=2e-4", "eval_steps=60")


@click.command()
@ENCODER
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/quickstart"), show_default=True,
    help="Folder of the runs.",
)  # fmt: skip
@click.option("--steps", type=int, default=STEPS, show_default=True, help="Steps of each plan.")
def command(encoder: str | None, out: Path, steps: int) -> None:
    """Train three plans on the embedded data and compare them with their costs.

    Three tasks (sentiment, paraphrase, similarity), one small encoder, a few minutes, no network.

    \b
    Example:
      mops quickstart
    """
    from mops.cli.screen import OUT
    from mops.cli.tables import print_comparison
    from mops.records import read_record

    folders = [out / re.sub("[^a-z0-9]+", "-", plan) for plan in FIRST_LOOK]
    for plan, folder in zip(FIRST_LOOK, folders, strict=True):
        train_alone(plan, folder, encoder, steps)
    records = [read_record(folder / "record.json") for folder in folders]
    print_comparison(
        f"three ways to share, {steps} steps each, the embedded sample",
        records,
        "on the report half of validation, ± one standard error; one seed: differences within "
        "two of them mean nothing",
    )
    OUT.print(f"results in {out}: a folder per plan, its model in model/", soft_wrap=True)
    OUT.print(
        f"try one:  printf 'sentence\\nA lovely film.\\n' | mops predict {folders[0]}/model -",
        soft_wrap=True,
    )


def train_alone(plan: str, folder: Path, encoder: str | None, steps: int) -> None:
    """In a process of its own, so that its peak memory is its own."""
    words = [sys.executable, "-P", "-m", "mops", "train", "--data", "sample", "--plan", plan]
    words += ["--out", str(folder), "--set", f"training.max_steps={steps}"]
    words += [word for setting in SETTINGS for word in ("--set", f"training.{setting}")]
    words += ["--encoder", encoder] if encoder else []
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # the child got it too and saves its state
                child.wait()
    if child.returncode == STOPPED:
        raise KeyboardInterrupt("stopped; the same command goes on where it was")
    if child.returncode:
        raise RunError(f"training {plan} failed; see above")
