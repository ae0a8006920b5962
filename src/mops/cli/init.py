"""`mops init`"""

from pathlib import Path

import click

from mops.api.progress import ERR
from mops.cli.options import PATH
from mops.cli.screen import echo
from mops.data.folders import infer_tasks
from mops.data.starter import starter
from mops.errors import DataError, RecipeError
from mops.files import write_text


@click.command()
@click.argument("source", metavar="FOLDER|FILE", type=PATH)
@click.option("--out", type=PATH, help="Recipe file; default mops.yaml in the folder.")
def command(source: Path, out: Path | None) -> None:
    """Write a commented starter recipe for a folder of data files, or for one file.

    Files are grouped by name (reviews-train.csv, reviews-dev.csv). What their columns hold decides
    which are texts and labels, and what kind of task each label is. The recipe says why beside
    each line, with alternatives, and names what it leaves out. Read and correct it, then run
    `mops check --config FOLDER/mops.yaml`.

    \b
    Example:
      mops init my-data/
      mops init tickets.csv
    """
    path = out or (source.parent if source.is_file() else source) / "mops.yaml"
    if path.exists():
        raise RecipeError(f"{path} exists already; choose another file with --out, or delete it")
    with ERR.status(f"reading {source}"):
        tasks, skipped = infer_tasks(source)
    for reason in skipped:
        echo(f"skipped {reason}", is_error=True)
    if not tasks:
        raise DataError(
            f"{source}: no file looks like a task; it needs csv, tsv, jsonl or parquet files with "
            "a column of texts and a column of labels"
        )
    write_text(path, starter(tasks, skipped, path.parent))
    for name, proposal in tasks.items():
        about = proposal.why.get("label", proposal.why[""])
        echo(f"{name}: {proposal.entry['type']}, {proposal.entry['label']}: {about}", is_error=True)
    echo(f"wrote {path} with {len(tasks)} tasks: {', '.join(tasks)}")
    echo(f"next: mops check --config {path}")
