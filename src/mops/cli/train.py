"""`mops train`"""

from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import TrainingScreen, print_warnings
from mops.cli.options import (
    DRY_RUN,
    JSON,
    PATH,
    STRICT,
    read_recipe,
    run_folder,
    training_options,
)
from mops.cli.screen import OUT, echo, echo_yaml, print_parts, respond
from mops.data.dataset import read_dataset
from mops.data.doubts import refuse_leaks


@click.command()
@training_options
@click.option("--out", type=PATH, help="Folder of the run; default runs/PLAN-SEED.")
@STRICT
@DRY_RUN
@JSON
def command(out: Path | None, strict: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Train one plan and save the model.

    The folder of the run holds recipe.yaml, record.json, curve.jsonl, predictions/ and the bundle
    model/. To resume an interrupted run, give the same command again.

    \b
    Example:
      mops train --data sample --recipe fast --out runs/first
    """
    recipe = read_recipe(**options, default="good")
    if dry_run:
        echo_yaml(recipe.to_yaml())
        return
    if strict:
        refuse_leaks(read_dataset(recipe).leaks)
    from mops.training.distributed import is_first_process
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()
    folder = out or run_folder(recipe)
    if not is_first_process():  # only the first process prints
        mops.train(recipe, folder)
        return
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        run = mops.train(recipe, folder, screen)
    respond(as_json, run.record.to_data(), show, run)


def show(run: mops.Run) -> None:
    if run.was_finished:
        OUT.print(f"{run.folder} already holds this finished run; nothing to do")
    print_parts(run.facts)
    print_warnings(run.record.warnings)
    echo(f"record  {run.folder / 'record.json'}\nmodel   {run.model}")
