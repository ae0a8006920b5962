"""`mops remove-task`"""

from pathlib import Path

import click

from mops.cli.options import PATH
from mops.cli.screen import echo


@click.command()
@click.argument("model", type=PATH)
@click.argument("task")
@click.option("--out", type=PATH, required=True, help="Folder of the new model.")
def command(model: Path, task: str, out: Path) -> None:
    """Remove a task from a trained model.

    MODEL is the folder `model` of a run; it stays as it is. The new model has no weights that only
    TASK used, and the answers of the other tasks do not change.

    \b
    Example:
      mops remove-task runs/first/model similarity --out models/smaller
    """
    from mops.predict.bundle import load_bundle
    from mops.predict.editing import remove_task

    layout = remove_task(load_bundle(model), task, out)
    echo(f"model   {out}: {', '.join(layout.tasks)}, {layout.parameters:,} parameters")
