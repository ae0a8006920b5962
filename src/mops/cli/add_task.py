"""`mops add-task`"""

from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import TrainingScreen
from mops.cli.options import (
    CONFIG,
    DATA,
    DEVICE,
    DRY_RUN,
    JSON,
    MORE_TRAIN,
    PATH,
    RECIPE,
    SEED,
    SET,
    TASKS,
    read_recipe,
    run_folder,
    stack,
)
from mops.cli.screen import echo_yaml, respond
from mops.cli.train import show
from mops.plans.catalog import DEFAULT, EXAMPLE

PLAN = click.option(
    "--plan", metavar="SHORT_OR_FILE",
    help=f"What the new task has for itself, for example {EXAMPLE}; {DEFAULT}: only its head. "
    "[default: what the model's plan gives to any task]",
)  # fmt: skip
LIKE = click.option(
    "--like", metavar="TASK",
    help="The task whose weights the new one uses, frozen, and starts its own copies from. "
    "[default: the first that reads as many texts]",
)  # fmt: skip


@click.command()
@click.argument("model", type=PATH)
@stack(CONFIG, DATA, TASKS, PLAN, LIKE, SEED, DEVICE, SET, RECIPE, MORE_TRAIN)
@click.option("--out", type=PATH, help="Folder of the run; default runs/PLAN-SEED.")
@DRY_RUN
@JSON
def command(
    model: Path, like: str | None, out: Path | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Add a task to a trained model; the others answer as before.

    MODEL is the folder `model` of a run. The recipe names only the new task and its training.
    Everything in the model is frozen, and the data of its tasks are not read. The folder of the
    run is like that of `mops train`; its model answers old and new tasks.

    \b
    Example:
      mops add-task runs/first/model --config new.yaml --plan lora:8 --out runs/second
    """
    from mops.training.grow import growth_recipe
    from mops.training.machine import keep_freed_memory

    recipe = growth_recipe(model, read_recipe(**options, default="good"), like)
    if dry_run:
        echo_yaml(recipe.to_yaml())
        return
    keep_freed_memory()
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        run = mops.train(recipe, out or run_folder(recipe), screen)
    respond(as_json, run.record.to_data(), show, run)
