"""`mops conflicts`"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import TrainingScreen, print_warnings
from mops.cli.options import DRY_RUN, JSON, PATH, read_recipe, recipe_options, run_folder
from mops.cli.screen import OUT, echo, echo_yaml, print_table, respond
from mops.evaluate.conflicts import OutputCell

MARKS = {True: "*", False: " "}  # significantly below 0
NO_HEATMAP = 'no heat map, because matplotlib is missing: pip install "mops-nlp[report]"'


@click.command()
@recipe_options
@click.option("--steps", type=int, default=200, help="Training steps.")
@click.option("--every", type=int, default=5, help="Steps between measurements.")
@click.option("--out", type=PATH, help="Folder of results; default runs/conflicts-PLAN-SEED.")
@DRY_RUN
@JSON
def command(
    steps: int, every: int, out: Path | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Measure where the gradients of tasks conflict, and how their outputs correlate.

    Trains like `mops train` for --steps steps. Each measurement computes every task's gradient on
    the shared weights; the cosine between two tasks' gradients says whether they agree. At the end
    the tasks answer the same texts: those with correlated outputs may share their last layers.
    Writes conflicts.json and, with matplotlib, heatmap.svg and heatmap.png. docs/conflicts.md
    explains how to read them.

    \b
    Example:
      mops conflicts --data sample --steps 100 --out runs/conflicts
    """
    recipe = read_recipe(**options, max_steps=steps)
    if dry_run:
        return echo_yaml(recipe.to_yaml())
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()
    folder = out or run_folder(recipe, "conflicts-")
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        measured = mops.conflicts(recipe, folder, steps=steps, every=every, watcher=screen)
    try:
        from mops.reports.figures.conflicts import draw_heatmap

        pictures = draw_heatmap(measured, folder)
    except ModuleNotFoundError:
        pictures = []
        print_warnings([NO_HEATMAP])
    files = [folder / "conflicts.json", *pictures]
    return respond(as_json, asdict(measured), show, measured, files)


def show(measured: mops.Conflicts, files: Sequence[Path]) -> None:
    parts = list(dict.fromkeys(cell.part for cell in measured.owners if cell.layer is not None))
    for pair in measured.pairs:
        show_pair(measured, pair, parts)
    OUT.print(
        f"cosine of two tasks' gradients, mean ± one standard error over "
        f"{len(measured.info['measured_steps'])} measured steps; values near 0 are normal in high "
        f"dimensions. * below 0 with p < {measured.info['level']:g} after Holm's correction over "
        f"{len(measured.owners)} cells ({len(measured.places)} for `all`). below 0: fraction of "
        "steps. size: ratio of the gradient norms. own: cosine between two batches of the same "
        "task, the most that their noise allows\n"
    )
    if measured.outputs:
        show_outputs(measured.outputs)
    OUT.print("\n".join(measured.advice), end="\n\n")
    echo("\n".join(map(str, files)))


def show_outputs(cells: Sequence[OutputCell]) -> None:
    rows = [
        [" and ".join(cell.tasks), cell.rows_of, f"{cell.rows}", f"{cell.correlation:z.2f}",
         f"{cell.low:z.2f} to {cell.high:z.2f}", *(f"{value:z.2f}" for value in cell.own)]
        for cell in cells
    ]  # fmt: skip
    columns = [
        "outputs of",
        "on texts of",
        "rows",
        "correlation",
        "95 %",
        "own\nfirst",
        "own\nsecond",
    ]
    note = (
        "after the last step; a task of single texts gives the mean over the texts of a pair. own: "
        "correlation of a task's outputs with its labels"
    )
    print_table("correlation of the outputs", columns, rows, note)


def show_pair(measured: mops.Conflicts, pair: tuple[str, ...], parts: Sequence[str]) -> None:
    """A row for each place, with the cosine of each part of it; only layers have parts."""
    rows = []
    for cell in (cell for cell in measured.places if cell.tasks == pair):
        own = [part for part in measured.owners if (part.place, part.tasks) == (cell.place, pair)]
        cosines = {part.part: f"{part.mean:z.3f}{MARKS[part.is_conflict]}" for part in own}
        whole = f"{cell.mean:z.3f} ± {cell.stderr:.3f}{MARKS[cell.is_conflict]}"
        numbers = (f"{value:.2f}" for value in (cell.negative, cell.norm_ratio, *cell.own))
        rows.append([cell.place, *(cosines.get(part, "") for part in parts), whole, *numbers])
    columns = ["where", *parts, "all", "below\n0", "size", *(f"own\n{task}" for task in pair)]
    print_table(" and ".join(pair), columns, rows)
