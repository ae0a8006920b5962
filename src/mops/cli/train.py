"""`mops train`"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON, read_recipe, recipe_options

if TYPE_CHECKING:
    from mops.training.run import Run


@click.command()
@recipe_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the run; default runs/PLAN-SEED."
)
@click.option("--dry-run", is_flag=True, help="Print the complete recipe and stop.")
@JSON
def command(out: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Train one plan and save the model.

    The folder of the run holds recipe.yaml, record.json, curve.jsonl, predictions/ and the bundle
    model/. An interrupted run goes on where it was when the same command is given again.

    \b
    Example:
      mops train --data sample --set training.max_steps=100 --out runs/first
    """
    from mops.cli.screen import OUT, TrainingScreen

    recipe = read_recipe(**options)
    if dry_run:
        click.echo(recipe.to_yaml(), nl=False)
        return
    from mops.training.distributed import is_first_process
    from mops.training.machine import keep_freed_memory
    from mops.training.run import train

    keep_freed_memory()
    name = recipe.sharing_plan().name
    folder = out or Path("runs") / f"{re.sub('[^a-zA-Z0-9_-]+', '-', name)}-{recipe.training.seed}"
    if not is_first_process():  # of several; the first one speaks
        train(recipe, folder)
        return
    with TrainingScreen(name) as screen:
        run = train(recipe, folder, screen)
    if as_json:
        import dataclasses

        echo_json(dataclasses.asdict(run.record))
        return
    if run.was_finished:
        OUT.print(f"{folder} holds this run already, finished; nothing was done")
    show(run)


def show(run: Run) -> None:
    from mops.cli.screen import OUT, duration, million, print_warnings
    from mops.cli.tables import print_scores

    record = run.record
    print_scores(f"{record.run_info.plan}", record.scores)
    info, costs = record.train_info, record.costs
    OUT.print(
        f"{info.steps} steps, {duration(costs.train_seconds)} of training, "
        f"{million(costs.parameters)} parameters "
        f"({million(costs.trained_parameters)} trained), "
        f"peak memory {costs.peak_memory_bytes / 2**30:.2f} GiB"
    )
    print_warnings(record.warnings)
    OUT.print(f"record  {run.folder / 'record.json'}", soft_wrap=True)
    OUT.print(f"model   {run.folder / 'model'}", soft_wrap=True)
