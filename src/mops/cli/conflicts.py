"""`mops conflicts`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.options import DRY_RUN, JSON, PATH, read_recipe, recipe_options, run_folder
from mops.cli.screen import OUT, TrainingScreen, print_table, print_warnings

if TYPE_CHECKING:
    from mops.evaluate.conflicts import Conflicts, CosineCell

FEW_PAIRS = 3  # have a table each; more pairs are averaged in one table
MARKS = {True: "*", False: " "}  # significantly below 0
NO_HEATMAP = 'no heat map, because matplotlib is missing: pip install "mops-nlp[report]"'


@click.command()
@recipe_options
@click.option("--steps", type=int, default=200, show_default=True, help="Training steps.")
@click.option("--every", type=int, default=5, show_default=True, help="Steps between measurements.")
@click.option("--out", type=PATH, help="Folder of results; default runs/conflicts-PLAN-SEED.")
@DRY_RUN
@JSON
def command(
    steps: int, every: int, out: Path | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Measure where the gradients of tasks conflict.

    Trains like `mops train` for --steps steps. Each measurement computes every task's gradient on
    the shared weights; the cosine between two tasks' gradients says whether they agree. Writes
    conflicts.json and, with matplotlib, heatmap.svg and heatmap.png. docs/conflicts.md explains
    how to read them.

    \b
    Example:
      mops conflicts --data sample --steps 100 --out runs/conflicts
    """
    budget = f"training.max_steps={steps}"
    recipe = read_recipe(**options | {"settings": (*options["settings"], budget)})
    if dry_run:
        click.echo(recipe.to_yaml(), nl=False)
        return
    from mops.reports.figures.conflicts import draw_heatmap
    from mops.training.conflicts import conflicts
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()
    folder = out or run_folder(recipe, "conflicts-")
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        measured = conflicts(recipe, folder, steps=steps, every=every, watcher=screen)
    try:
        pictures = draw_heatmap(measured, folder)
    except ModuleNotFoundError:
        pictures = []
        print_warnings([NO_HEATMAP])
    if as_json:
        click.echo(measured.to_json(), nl=False)
        return
    show(measured)
    for path in (folder / "conflicts.json", *pictures):
        click.echo(path)


# ------------------------------------------------------------------ tables


def show(measured: Conflicts) -> None:
    parts = list(dict.fromkeys(cell.part for cell in measured.owners if cell.layer is not None))
    if len(measured.pairs) <= FEW_PAIRS:
        for pair in measured.pairs:
            show_pair(measured, pair, parts)
    else:
        show_average(measured, parts)
    OUT.print(
        f"cosine of two tasks' gradients, mean ± one standard error over "
        f"{len(measured.info['measured_steps'])} measured steps; values near 0 are normal in high "
        f"dimensions. * below 0 with p < {measured.info['level']:g} after Holm's correction over "
        f"{len(measured.owners)} cells ({len(measured.places)} for `all`). below 0: fraction of "
        "steps. size: ratio of the gradient norms. own: cosine between two batches of the same "
        "task, the most that their noise allows\n"
    )
    OUT.print("\n".join(measured.advice), end="\n\n")


def show_pair(measured: Conflicts, pair: tuple[str, ...], parts: Sequence[str]) -> None:
    cells = [cell for cell in measured.owners if cell.tasks == pair]
    rows = [
        [
            *part_columns(cells, cell.place, parts),
            f"{cell.mean:z.3f} ± {cell.stderr:.3f}{MARKS[cell.is_conflict]}",
            *(f"{value:.2f}" for value in (cell.negative, cell.norm_ratio, *cell.own)),
        ]
        for cell in measured.places
        if cell.tasks == pair
    ]
    columns = ["where", *parts, "all", "below\n0", "size", *(f"own\n{task}" for task in pair)]
    print_table(" and ".join(pair), columns, rows)


def show_average(measured: Conflicts, parts: Sequence[str]) -> None:
    """Averages over the pairs, with the pair that has the lowest cosine."""
    rows = []
    for cell in measured.averages:
        if cell.part == "all":
            pairs = [pair for pair in measured.places if pair.place == cell.place]
            lowest = min(pairs, key=lambda pair: pair.mean)
            own = {task: value for p in pairs for task, value in zip(p.tasks, p.own, strict=True)}
            averages = (cell.negative, cell.norm_ratio, sum(own.values()) / len(own))
            rows.append(
                [
                    *part_columns(measured.averages, cell.place, parts),
                    f"{cell.mean:z.3f} ",
                    f"{cell.stderr:.3f}",
                    *(f"{value:.2f}" for value in averages),
                    f"{sum(pair.is_conflict for pair in pairs)} of {len(pairs)}",
                    f"{' and '.join(lowest.tasks)} {lowest.mean:z.3f}{MARKS[lowest.is_conflict]}",
                ]
            )
    columns = ["where", *parts, "all", "±", "below\n0", "size", "own", "conflicts", "lowest"]
    print_table(f"average of {len(measured.pairs)} pairs of tasks", columns, rows)


def part_columns(cells: Sequence[CosineCell], place: str, parts: Sequence[str]) -> list[str]:
    """The place, and the mean cosine of each part of it; only layers have parts."""
    texts = {c.part: f"{c.mean:z.3f}{MARKS[c.is_conflict]}" for c in cells if c.place == place}
    return [place, *(texts.get(part, "") for part in parts)]
