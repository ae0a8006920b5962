"""`mops plans`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import CONFIG, DATA, ENCODER, JSON, SET, TASKS, read_recipe
from mops.cli.screen import print_table
from mops.errors import UsageError
from mops.units import format_count

if TYPE_CHECKING:
    from mops.config.recipe import Recipe
    from mops.plans.layout import Layout
    from mops.tasks import Task


@click.command()
@click.argument("plan", required=False)
@CONFIG
@DATA
@ENCODER
@TASKS
@SET
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the rows of PLAN as a YAML file.")
@JSON
def command(plan: str | None, as_yaml: bool, as_json: bool, **options: Any) -> None:
    """List the sharing plans with their sizes, or draw one.

    Sizes are for the given tasks and encoder (default: the embedded ones); only the encoder's
    config.json is read. PLAN is a short form or a YAML file. --yaml prints its rows, from which
    you can start a file of your own.

    \b
    Example:
      mops plans --data sample
      mops plans hybrid:3
    """
    if as_yaml:
        print_rows(plan)
        return
    if not (options["config"] or options["data"] or Path("mops.yaml").is_file()):
        options["data"] = "sample"
    recipe = read_recipe(**options)
    layouts = layouts_of(recipe, plan)
    if as_json:
        facts = [facts_of(layout) for layout in layouts]
        echo_json(facts[0] if plan else facts)
    elif plan:
        draw_one(layouts[0])
    else:
        list_all(layouts, recipe.encoder)


def layouts_of(recipe: Recipe, name: str | None) -> list[Layout]:
    """The named plan, or an example of each, for the recipe's tasks and encoder."""
    from mops.model.sources import find_encoder
    from mops.plans.layout import lay_out
    from mops.plans.parser import every_plan, read_plan

    shape = find_encoder(recipe.encoder, ["config.json"]).shape
    values = with_labels(recipe)
    reading = recipe.training.reading(values)
    plans = [read_plan(name)] if name else every_plan(shape.depth, tuple(values))
    return [lay_out(plan, list(values.values()), shape, reading) for plan in plans]


def print_rows(plan: str | None) -> None:
    from mops.plans.parser import read_plan
    from mops.yaml_io import format_yaml

    if plan is None:
        raise UsageError("--yaml prints the rows of one plan: run `mops plans PLAN --yaml`")
    click.echo(format_yaml(read_plan(plan).to_data()), nl=False)


def with_labels(recipe: Recipe) -> dict[str, Task]:
    """The tasks; labels missing from the recipe are read from the training files."""
    from mops.data.dataset import read_dataset

    values = recipe.task_values()
    if all(task.labels or task.is_similarity for task in values.values()):
        return dict(values)
    return dict(read_dataset(recipe, wanted=()).tasks)


def facts_of(layout: Layout) -> dict[str, Any]:
    return {
        "name": layout.plan.name,
        "about": layout.plan.about,
        "source": layout.plan.source,
        "parameters": {
            "total": layout.parameters,
            "trained": layout.trained,
            "per_owner": dict(layout.sizes),
        },
    }


def draw_one(layout: Layout) -> None:
    from mops.plans.picture import draw

    plan = layout.plan
    click.echo(f"{plan.name}: {plan.about}" if plan.about else plan.name)
    click.echo(f"source: {plan.source}\n" if plan.source else "")
    click.echo(draw(layout))
    click.echo(
        f"\n{format_count(layout.parameters)} parameters in {len(layout.sizes)} owners, "
        f"{format_count(layout.trained)} of them trained"
    )


def list_all(layouts: list[Layout], encoder: str) -> None:
    base = layouts[0].parameters
    rows = [
        [
            layout.plan.name,
            layout.plan.about,
            format_count(layout.parameters),
            format_count(layout.trained),
            f"{layout.parameters / base:.2f} x",
        ]
        for layout in layouts
    ]
    tasks = ", ".join(layouts[0].tasks)
    print_table(
        f"plans for {tasks} on {encoder}",
        ["plan", "description", "parameters", "trained", f"of {layouts[0].plan.name}"],
        rows,
        "prefix any plan with 'frozen+' to freeze the encoder; `mops plans PLAN` draws one",
    )
