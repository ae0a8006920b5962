"""A survey as data: a base recipe and what varies; its candidates and trials. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mops.errors import RecipeError
from mops.outside import format_yaml, to_value
from mops.recipes import Recipe
from mops.settings import Count, Strict
from mops.survey.baselines import complete, followed
from mops.survey.expansion import Point, expand, value_at
from mops.survey.survey_files import plain_survey, plan_rows, seeds_of, survey_in
from mops.survey.trials import Candidate, Trial

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
