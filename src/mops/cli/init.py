"""`mops init`"""

import json
import os
from pathlib import Path
from typing import Any

import click

from mops.cli.options import PATH
from mops.data.dataset import SPLITS
from mops.data.folders import infer_tasks, recognise
from mops.errors import DataError, RecipeError
from mops.files import write_text
from mops.plans.catalog import DEFAULT, FIRST_LOOK


@click.command()
@click.argument("folder", type=PATH)
@click.option("--out", type=PATH, help="Recipe file; default FOLDER/mops.yaml.")
def command(folder: Path, out: Path | None) -> None:
    """Write a commented starter recipe for a folder of data files.

    Files are grouped by name (reviews-train.csv, reviews-dev.csv); columns and task types are
    inferred. Read and correct the recipe, then run `mops check --config FOLDER/mops.yaml`.

    \b
    Example:
      mops init my-data/
    """
    path = out or folder / "mops.yaml"
    if path.exists():
        raise RecipeError(f"{path} exists already; choose another file with --out, or delete it")
    tasks, skipped = recognise(folder), list[str]()
    if not tasks:
        tasks, skipped = infer_tasks(folder)
    for reason in skipped:
        click.echo(f"skipped {reason}", err=True)
    if not tasks:
        raise DataError(
            f"{folder}: no file looks like a task; it needs csv, tsv, jsonl or parquet files with "
            "a text column (text, sentence, sentence1/sentence2, ...) and a label column"
        )
    write_text(path, starter(tasks, path.parent))
    click.echo(f"wrote {path} with {len(tasks)} tasks: {', '.join(tasks)}")
    click.echo(f"next: mops check --config {path}")


def starter(tasks: dict[str, Any], folder: Path) -> str:
    """The text of a recipe, with comments on what to change."""
    lines = []
    for name, entry in tasks.items():
        lines.append(f'  "{name}":\n')
        for key, value in entry.items():
            shown = os.path.relpath(value, folder.resolve()) if key in SPLITS else value
            lines.append(f"    {key}: {json.dumps(shown, ensure_ascii=False)}\n")
    return "".join([HEAD, *lines, TAIL])


HEAD = """\
# A recipe for mops. Paths are relative to this file. All keys: docs/recipe.md
#   mops check --config THIS     validate the data, without training
#   mops train --config THIS     train the plan below
encoder: minilm            # bundled; or a folder with config.json + model.safetensors

tasks:                     # inferred from the files: correct what is wrong
"""
TAIL = f"""
plan: {DEFAULT}               # `mops plans` lists the others: {", ".join(FIRST_LOOK[1:])}, ...

# `mops train` uses the settings of `--recipe good`; `--recipe fast` and `best` are the others.
# Settings of your own replace them:
# training:
#   num_train_epochs: 3      # or max_steps: 500
#   per_task_batch_size: 16
#   learning_rate: 5.0e-5    # of the encoder
"""
