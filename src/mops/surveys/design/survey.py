"""Which candidate others are compared with, and which has a model per task: found by name.

A survey as data: a base recipe and what varies; its candidates and trials. No torch.
A survey out of a YAML file: the short form with one block, or the complete design. No torch.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mops.config.recipe import Recipe, to_recipe
from mops.config.training import Count, Strict
from mops.data.compose import compose_recipe, relative_to
from mops.errors import RecipeError, nearest
from mops.plans.catalog import SINGLE
from mops.plans.parser import is_plan_file, read_plan
from mops.surveys.design.expansion import Point, expand, value_at
from mops.surveys.ledger import Candidate, Trial
from mops.yaml_io import format_yaml, read_yaml, to_value


def complete(survey: Survey, baseline: str = "", single: str = "") -> Survey:
    """The baseline (default: the first) and the single-task candidate by their names.

    A plan stands for its first candidate.
    """
    names = [candidate.name for candidate in survey.candidates()]
    found = resolved(survey, baseline, "baseline") if baseline else names[0]
    alone = resolved(survey, single, "single") if single else model_per_task(survey, found)
    return survey.model_copy(update={"baseline": found, "single": alone})


def resolved(survey: Survey, wanted: str, what: str) -> str:
    found = match(survey, wanted)
    if not found:
        names = [candidate.name for candidate in survey.candidates()]
        shown = "; ".join(names[:8]) + ("; ..." if len(names) > 8 else "")
        raise RecipeError(
            f"survey {survey.name!r}: {what} {wanted!r} is no candidate; candidates are {shown}."
            f"{nearest(wanted, names)}"
        )
    return found


def match(survey: Survey, wanted: str) -> str:
    """The candidate of this name, or the first one with this plan; empty when there is none."""
    candidates = survey.candidates()
    named = (c.name for c in candidates if wanted in (c.name, c.name.partition(", ")[0]))
    return next((c.name for c in candidates if c.name == wanted), next(named, ""))


def model_per_task(survey: Survey, baseline: str) -> str | None:
    """The candidate with plan `separate`; of several the one most like the baseline."""
    base = survey.find(baseline).settings
    alone = [c for c in survey.candidates() if c.recipe.plan == SINGLE]
    alike = [sum(base.get(key) == value for key, value in c.settings.items()) for c in alone]
    return alone[alike.index(max(alike))].name if alone else None


def followed(old: Survey, new: Survey, name: str, is_same: bool) -> str:
    """What a candidate is called after a change; empty when it is not there any more."""
    if is_same and name:
        place = [candidate.name for candidate in old.expanded].index(name)
        return new.expanded[place].name
    return match(new, name) or match(new, name.partition(", ")[0]) if name else ""


Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Block(Strict):
    """Candidates that vary together: all combinations of the axes, on the same settings."""

    set: dict[str, Any] = Field(
        default_factory=dict, description="dotted key of the recipe -> its value in this block"
    )
    axes: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="dotted key -> the values to compare; `a+b` sets two keys to the same value",
    )

    def points(self) -> list[dict[str, Any]]:
        """What each combination sets."""
        found = []
        for values in product(*self.axes.values()):
            given = dict(self.set)
            for key, value in zip(self.axes, values, strict=True):
                given |= dict.fromkeys(key.split("+"), value)
            found.append(given)
        return found

    def with_axis(self, key: str, values: Sequence[Any]) -> Block:
        """The same block with other values of a key, whether it was set, varied or not named."""
        place = next((axis for axis in self.axes if key in axis.split("+")), key)
        kept = {name: value for name, value in self.set.items() if name not in place.split("+")}
        return Block(set=kept, axes={**self.axes, place: list(values)})


class Survey(Strict):
    """A base recipe, blocks of settings, seeds, and what all candidates are compared with."""

    name: str = Field(description="of the survey")
    source: str = Field("", description="what it reproduces")
    recipe: dict[str, Any] = Field(description="what all candidates have in common")
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)] = Field(
        description="the candidates of all blocks together"
    )
    steps: Count | None = Field(
        None, description="of every trial, instead of what its recipe says; stages in proportion"
    )
    evaluations: Count | None = Field(
        None, description="of every trial at most, evenly spread; on large data they take long"
    )
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = Field((1,), description="of trials")
    baseline: str = Field("", description="name of the candidate that others are compared with")
    single: str | None = Field(None, description="name of the candidate with a model per task")
    on: Literal["report", "test"] = Field(
        "report", description="rows that judge: half of validation, or the test files"
    )

    @cached_property
    def expanded(self) -> tuple[Candidate, ...]:
        """A candidate for each combination, in order; equal recipes are the same candidate."""
        points = [Point(given, block.axes) for block in self.blocks for given in block.points()]
        return expand(
            self.recipe,
            points,
            steps=self.steps,
            evaluations=self.evaluations,
            with_test=self.on == "test",
        )

    def candidates(self) -> tuple[Candidate, ...]:
        return tuple({candidate.name: candidate for candidate in self.expanded}.values())

    def trials(self) -> tuple[Trial, ...]:
        """Seed by seed, so that an unfinished survey has all candidates with the first seeds."""
        return tuple(c.trial(seed) for seed in self.seeds for c in self.candidates())

    def to_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def to_yaml(self) -> str:
        return format_yaml(self.to_data())

    # -------------------------------------------------------------- variants

    def with_plans(self, plans: Sequence[str | Mapping[str, Any]]) -> Survey:
        """Other plans in every block: short forms, YAML files or rows."""
        given = plan_rows(list(plans), Path())
        return self.changed(blocks=[block.with_axis("plan", given) for block in self.blocks])

    def with_values(self, key: str, values: Sequence[Any]) -> Survey:
        """Other values of one key; the baseline's own value stays, to compare them with."""
        home = self.blocks[self.block_of(self.baseline)]
        own = value_at(self.find(self.baseline).recipe.to_data(), key)
        kept = [own] if own is not None and own not in values else []
        values = plan_rows(list(values), Path()) if key == "plan" else values
        blocks = [
            block.with_axis(key, [*(kept if block is home else ()), *values])
            for block in self.blocks
        ]
        return self.changed(blocks=blocks)

    def with_settings(self, settings: Mapping[str, Any]) -> Survey:
        """Keys that hold for every candidate, whatever the survey says of them."""
        varied = {part for block in self.blocks for axis in block.axes for part in axis.split("+")}
        for key in settings:
            if key in varied:
                raise RecipeError(
                    f"survey {self.name!r} varies {key}; it cannot also be set for all: "
                    "leave it out, or give its values"
                )
        blocks = [Block(set={**block.set, **settings}, axes=block.axes) for block in self.blocks]
        return self.changed(blocks=blocks)

    def with_steps(self, steps: int, evaluations: int | None = None) -> Survey:
        """The same number of steps in every trial; what counts in steps is scaled with it."""
        return self.changed(steps=steps, evaluations=evaluations or self.evaluations)

    def with_seeds(self, seeds: int | Sequence[int]) -> Survey:
        return self.changed(seeds=seeds_of(seeds))

    def changed(self, **fields: Any) -> Survey:
        """Other fields; the baseline and the single-task candidate are found again."""
        data = {**self.model_dump(), "baseline": "", "single": None, **fields}
        new = to_value(Survey, data, where=f"survey {self.name!r}", error=RecipeError)
        is_same = len(new.expanded) == len(self.expanded) and "blocks" not in fields
        return complete(
            new,
            baseline=followed(self, new, self.baseline, is_same),
            single=followed(self, new, self.single or "", is_same),
        )

    # -------------------------------------------------------------- names

    def find(self, name: str) -> Candidate:
        return next(candidate for candidate in self.candidates() if candidate.name == name)

    def block_of(self, name: str) -> int:
        """The number of the block that a candidate comes from."""
        place = [candidate.name for candidate in self.expanded].index(name)
        counts = (n for n, block in enumerate(self.blocks) for _ in block.points())
        return list(counts)[place]


def to_survey(
    data: Mapping[str, Any],
    recipe: Recipe | None = None,
    *,
    folder: Path | None = None,
    where: str = "survey",
) -> Survey:
    """Plain data as a survey with its candidates known, or one line that says what is wrong."""
    found = plain_survey(data, recipe, folder or Path.cwd(), where)
    wanted = {key: found.pop(key, None) or "" for key in ("baseline", "single")}
    return complete(to_value(Survey, found, where=where, error=RecipeError), **wanted)


def read_survey(path: str | Path, recipe: Recipe | None = None) -> Survey:
    """The survey in a file. `recipe` is the base of a file that names none."""
    file = Path(path)
    return to_survey(survey_in(file), recipe, folder=file.parent, where=str(file))


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
