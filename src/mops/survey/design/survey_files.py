"""A survey out of a YAML file: the short form with one block, or the complete design. No torch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mops.data.compose import compose_recipe, relative_to
from mops.errors import RecipeError
from mops.outside import read_yaml
from mops.parsing import is_plan_file, read_plan
from mops.recipes import Recipe, to_recipe

BLOCK = ("set", "axes")  # at the top: the one block of a short form
FORM = "a survey has `recipe` and `axes` (dotted key: [values]), or `blocks` of these"


def survey_in(file: Path) -> dict[str, Any]:
    """The mapping in a file that looks like a survey."""
    data = read_yaml(file)
    if not {"axes", "blocks"} & set(data):
        is_recipe = "tasks" in data or "training" in data
        known = "it is a recipe; name it with --config" if is_recipe else FORM
        raise RecipeError(f"{file} is no survey: it has neither `axes` nor `blocks`; {known}")
    return {"name": file.stem, **data}


def plain_survey(
    data: Mapping[str, Any], recipe: Recipe | None, folder: Path, where: str
) -> dict[str, Any]:
    """The complete form: the recipe itself, blocks, seeds one by one, plans as rows."""
    found = copy.deepcopy(dict(data))
    found["recipe"] = base_of(found.get("recipe"), recipe, folder, where)
    if set(BLOCK) & set(found):
        if "blocks" in found:
            raise RecipeError(f"{where}: either `blocks`, or one block with `set` and `axes`")
        block = {key: found.pop(key) for key in BLOCK if key in found}
        found["blocks"] = [{key: value for key, value in block.items() if value is not None}]
    check_axes(found.get("blocks"), where)
    found["blocks"] = with_plan_rows(found.get("blocks"), folder)
    found["seeds"] = seeds_of(found.get("seeds", 1))
    return found


def base_of(given: Any, recipe: Recipe | None, folder: Path, where: str) -> dict[str, Any]:
    """The base recipe: a file beside the survey, the recipe itself, or the one that was given."""
    if isinstance(given, str):
        return compose_recipe(config=folder / given).to_data()
    if isinstance(given, dict):
        found = relative_to(dict(given), folder.resolve())
        return to_recipe(found, where=f"{where}: recipe").to_data()
    if given is not None:
        raise RecipeError(f"{where}: `recipe` is a file or a mapping; found {given!r}")
    if recipe is None:
        raise RecipeError(f"{where}: no `recipe` is named; name a recipe file, or give --data")
    return recipe.to_data()


def check_axes(blocks: Any, where: str) -> None:
    """An axis is a list with at least one value."""
    for block in blocks if isinstance(blocks, list) else ():
        axes = block.get("axes") if isinstance(block, dict) else None
        for key, values in axes.items() if isinstance(axes, dict) else ():
            if not isinstance(values, list) or not values:
                raise RecipeError(
                    f"{where}: the axis {key!r} is {values!r}; it is a list of one value or more, "
                    "and a key with one value for all belongs under `set`"
                )


def with_plan_rows(blocks: Any, folder: Path) -> Any:
    """Plan files beside the survey become their rows."""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            for place in (block.get("set"), block.get("axes")):
                if isinstance(place, dict) and "plan" in place:
                    place["plan"] = plan_rows(place["plan"], folder)
    return blocks


def plan_rows(given: Any, folder: Path) -> Any:
    """The rows in a plan file, so that the survey stands alone; other plans as they are."""
    if isinstance(given, list):
        return [plan_rows(plan, folder) for plan in given]
    return read_plan(str(folder / given)).to_data() if is_plan_file(given) else given


def seeds_of(given: Any) -> Any:
    """A number of seeds is 1, 2, 3, ...; anything else as it is, each once."""
    if isinstance(given, int):
        return list(range(1, given + 1))
    return list(dict.fromkeys(given)) if isinstance(given, list | tuple) else given
