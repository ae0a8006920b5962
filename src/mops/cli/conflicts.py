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
LEGEND = (
    "size: ratio of the gradient norms. own: cosine between two batches of the same task, the most "
    "that their noise allows"
)
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
    from mops.training.conflicts import conflicts
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()

    folder = out or run_folder(recipe, "conflicts-")
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        measured = conflicts(recipe, folder, steps=steps, every=every, watcher=screen)
    pictures = draw(measured, folder)
    if as_json:
        click.echo(measured.to_json(), nl=False)
        return
    show(measured)
    for path in (folder / "conflicts.json", *pictures):
        click.echo(path)


def draw(measured: Conflicts, folder: Path) -> list[Path]:
    """The heat map, if matplotlib is installed."""
    from mops.reports.figures.conflicts import draw_heatmap

    try:
        return draw_heatmap(measured, folder)
    except ModuleNotFoundError:
        print_warnings([NO_HEATMAP])
        return []


# ------------------------------------------------------------------ tables


def show(measured: Conflicts) -> None:
    info = measured.info
    if len(measured.pairs) <= FEW_PAIRS:
        for pair in measured.pairs:
            show_pair(measured, pair)
    else:
        show_average(measured)
    OUT.print(
        f"cosine of two tasks' gradients, mean ± one standard error over "
        f"{len(info['measured_steps'])} measured steps; values near 0 are normal in high "
        f"dimensions. * below 0 with p < {info['level']:g} after Holm's correction over "
        f"{len(measured.owners)} cells ({len(measured.places)} for `all`). below 0: fraction of "
        f"steps. {LEGEND}\n"
    )
    for sentence in measured.advice:
        OUT.print(sentence)
    OUT.print()


def show_pair(measured: Conflicts, pair: tuple[str, ...]) -> None:
    cells = [cell for cell in measured.owners if cell.tasks == pair]
    whole = [cell for cell in measured.places if cell.tasks == pair]
    parts = parts_of(cells)
    rows = [
        [
            cell.place,
            *part_columns(cells, cell.place, parts),
            f"{cell.mean:z.3f} ± {cell.stderr:.3f}{mark(cell)}",
            f"{cell.negative:.2f}",
            f"{cell.norm_ratio:.2f}",
            *(f"{own:.2f}" for own in cell.own),
        ]
        for cell in whole
    ]
    columns = ["where", *parts, "all", "below\n0", "size", *(f"own\n{task}" for task in pair)]
    print_table(" and ".join(pair), columns, rows)


def show_average(measured: Conflicts) -> None:
    whole = [cell for cell in measured.averages if cell.part == "all"]
    parts = parts_of(measured.owners)
    rows = []
    for cell in whole:
        pairs = [one for one in measured.places if one.place == cell.place]
        lowest = min(pairs, key=lambda one: one.mean)
        rows.append(
            [
                cell.place,
                *part_columns(measured.averages, cell.place, parts),
                f"{cell.mean:z.3f} ",
                f"{cell.stderr:.3f}",
                f"{cell.negative:.2f}",
                f"{cell.norm_ratio:.2f}",
                own_of(pairs),
                f"{sum(one.is_conflict for one in pairs)} of {len(pairs)}",
                f"{' and '.join(lowest.tasks)} {lowest.mean:z.3f}{mark(lowest)}",
            ]
        )
    columns = ["where", *parts, "all", "±", "below\n0", "size", "own", "conflicts", "lowest"]
    print_table(f"average of {len(measured.pairs)} pairs of tasks", columns, rows)


def own_of(pairs: Sequence[CosineCell]) -> str:
    """The mean over all tasks."""
    values = {task: own for c in pairs for task, own in zip(c.tasks, c.own, strict=True)}
    return f"{sum(values.values()) / len(values):.2f}"


def parts_of(cells: Sequence[CosineCell]) -> list[str]:
    """The parts of a layer; other places have a single part."""
    return list(dict.fromkeys(cell.part for cell in cells if cell.layer is not None))


def part_columns(cells: Sequence[CosineCell], place: str, parts: Sequence[str]) -> list[str]:
    here = {cell.part: cell for cell in cells if cell.place == place}
    return [f"{here[part].mean:z.3f}{mark(here[part])}" if part in here else "" for part in parts]


def mark(cell: CosineCell) -> str:
    return "*" if cell.is_conflict else " "
