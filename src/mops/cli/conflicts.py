"""`mops conflicts`"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.options import JSON, read_recipe, recipe_options

if TYPE_CHECKING:
    from mops.evaluate.agreement import CosineCell
    from mops.evaluate.conflicts import Conflicts

FEW_PAIRS = 3  # tables of their own; with more pairs one table shows their average
OWN = (
    "size: ratio of the gradients' norms. own: two batches of the same task, the agreement that "
    "noise leaves"
)
NO_PICTURE = 'no heat map: it needs matplotlib; pip install "mops-nlp[report]"'


@click.command()
@recipe_options
@click.option("--steps", type=int, default=200, show_default=True, help="Steps of training.")
@click.option("--every", type=int, default=5, show_default=True, help="Steps between measurements.")
@click.option(
    "--out", type=click.Path(path_type=Path),
    help="Folder of the results; default runs/conflicts-PLAN-SEED.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the complete recipe and stop.")
@JSON
def command(
    steps: int, every: int, out: Path | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Measure where the tasks' gradients disagree.

    Trains as `mops train` would, for --steps steps. At every measured step each task's loss alone
    gives a gradient on the weights that tasks share; the cosine of two tasks' gradients says
    whether they pull the same way. The folder gets conflicts.json and the heat map
    heatmap.svg and heatmap.png. docs/conflicts.md says how to read them.

    \b
    Example:
      mops conflicts --data sample --steps 100 --out runs/conflicts
    """
    from mops.cli.screen import TrainingScreen

    budget = f"training.max_steps={steps}"
    recipe = read_recipe(**options | {"settings": (*options["settings"], budget)})
    if dry_run:
        click.echo(recipe.to_yaml(), nl=False)
        return
    from mops.training.conflicts import conflicts
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()

    name = recipe.sharing_plan().name
    place = f"conflicts-{re.sub('[^a-zA-Z0-9_-]+', '-', name)}-{recipe.training.seed}"
    folder = out or Path("runs") / place
    with TrainingScreen(name) as screen:
        found = conflicts(recipe, folder, steps=steps, every=every, watcher=screen)
    pictures = draw(found, folder)
    if as_json:
        click.echo(found.to_json(), nl=False)
        return
    show(found)
    for path in (folder / "conflicts.json", *pictures):
        click.echo(path)


def draw(found: Conflicts, folder: Path) -> list[Path]:
    """The heat map, where matplotlib is there."""
    from mops.cli.screen import print_warnings
    from mops.reports.figures.conflicts import draw_heatmap

    try:
        return draw_heatmap(found, folder)
    except ModuleNotFoundError:
        print_warnings([NO_PICTURE])
        return []


# ------------------------------------------------------------------ tables


def show(found: Conflicts) -> None:
    from mops.cli.screen import OUT

    info = found.info
    if len(found.pairs) <= FEW_PAIRS:
        for pair in found.pairs:
            show_pair(found, pair)
    else:
        show_average(found)
    OUT.print(
        f"cosine of the tasks' gradients, mean ± one standard error over "
        f"{len(info['measured_steps'])} measured steps; near 0 is normal in many dimensions. "
        f"* below 0, p < {info['level']:g} after Holm over {len(found.owners)} cells "
        f"({len(found.places)} for all). below 0: share of steps. {OWN}\n"
    )
    for sentence in found.advice:
        OUT.print(sentence)
    OUT.print()


def show_pair(found: Conflicts, pair: tuple[str, ...]) -> None:
    from mops.cli.screen import print_table

    cells = [cell for cell in found.owners if cell.tasks == pair]
    whole = [cell for cell in found.places if cell.tasks == pair]
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


def show_average(found: Conflicts) -> None:
    from mops.cli.screen import print_table

    whole = [cell for cell in found.averages if cell.part == "all"]
    parts = parts_of(found.owners)
    rows = []
    for cell in whole:
        pairs = [one for one in found.places if one.place == cell.place]
        lowest = min(pairs, key=lambda one: one.mean)
        rows.append(
            [
                cell.place,
                *part_columns(found.averages, cell.place, parts),
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
    print_table(f"average of {len(found.pairs)} pairs of tasks", columns, rows)


def own_of(pairs: Sequence[CosineCell]) -> str:
    """Of all tasks, on average."""
    values = {task: own for c in pairs for task, own in zip(c.tasks, c.own, strict=True)}
    return f"{sum(values.values()) / len(values):.2f}"


def parts_of(cells: Sequence[CosineCell]) -> list[str]:
    """The parts that layers have; other places have one part only."""
    return list(dict.fromkeys(cell.part for cell in cells if cell.layer is not None))


def part_columns(cells: Sequence[CosineCell], place: str, parts: Sequence[str]) -> list[str]:
    here = {cell.part: cell for cell in cells if cell.place == place}
    return [f"{here[part].mean:z.3f}{mark(here[part])}" if part in here else "" for part in parts]


def mark(cell: CosineCell) -> str:
    return "*" if cell.is_conflict else " "
