"""`mops plans`"""

from pathlib import Path
from typing import Any

import click

from mops.cli.options import JSON, read_recipe, source_options
from mops.cli.screen import echo, echo_yaml, print_table, respond
from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.errors import UsageError
from mops.model.sources import find_encoder
from mops.plans.catalog import every_plan, read_plan
from mops.plans.layout import Layout, lay_out
from mops.plans.picture import draw
from mops.tables import format_count
from mops.yaml_io import format_yaml


@click.command()
@click.argument("plan", required=False)
@source_options
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
        if plan is None:
            raise UsageError("--yaml prints the rows of one plan: run `mops plans PLAN --yaml`")
        return echo_yaml(format_yaml(read_plan(plan).to_data()))
    if not (options["config"] or options["data"] or Path("mops.yaml").is_file()):
        options["data"] = "sample"
    recipe = read_recipe(**options)
    layouts = lay_out_plans(recipe, plan)
    if plan:
        return respond(as_json, size_facts(layouts[0]), draw_one, layouts[0])
    return respond(as_json, list(map(size_facts, layouts)), list_all, layouts, recipe.encoder)


def size_facts(layout: Layout) -> dict[str, Any]:
    facts = {key: getattr(layout.plan, key) for key in ("name", "about", "source")}
    sizes = {"total": layout.parameters, "trained": layout.trained, "per_owner": dict(layout.sizes)}
    return {**facts, "parameters": sizes}


def lay_out_plans(recipe: Recipe, name: str | None) -> list[Layout]:
    """The named plan, or an example of each, for the recipe's tasks and encoder.

    Labels that the recipe does not name are read from the training files.
    """
    shape, tasks = find_encoder(recipe.encoder, ["config.json"]).shape, recipe.task_values()
    if not all(task.labels or not task.answer.has_labels for task in tasks.values()):
        tasks = dict(read_dataset(recipe, wanted=()).tasks)
    reading = recipe.training.reading(tasks)
    plans = [read_plan(name)] if name else every_plan(shape.depth, tuple(tasks))
    return [lay_out(plan, list(tasks.values()), shape, reading) for plan in plans]


def draw_one(layout: Layout) -> None:
    plan = layout.plan
    echo(f"{plan.name}: {plan.about}" if plan.about else plan.name)
    echo(f"source: {plan.source}\n" if plan.source else "")
    echo(draw(layout))
    echo(
        f"\n{format_count(layout.parameters)} parameters in {len(layout.sizes)} owners, "
        f"{format_count(layout.trained)} of them trained"
    )


def list_all(layouts: list[Layout], encoder: str) -> None:
    first = layouts[0]
    rows = [
        [layout.plan.name, layout.plan.about, format_count(layout.parameters),
         format_count(layout.trained), f"{layout.parameters / first.parameters:.2f} x"]
        for layout in layouts
    ]  # fmt: skip
    print_table(
        f"plans for {', '.join(first.tasks)} on {encoder}",
        ["plan", "description", "parameters", "trained", f"of {first.plan.name}"],
        rows,
        "prefix any plan with 'frozen+' to freeze the encoder; `mops plans PLAN` draws one",
    )
