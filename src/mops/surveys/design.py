"""A survey as data: a base recipe, the settings that vary, seeds and the baseline. No torch."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from mops.config.recipe import Recipe, to_recipe
from mops.config.training import Count, Strict
from mops.data.compose import change_files, compose_recipe, relative_to, set_key
from mops.errors import RecipeError, UsageError, nearest
from mops.plans.catalog import SINGLE, is_plan_file, read_plan
from mops.surveys.expansion import Block, limit_evaluations, name_candidates, rescale
from mops.surveys.ledger import Candidate, Round, Trial
from mops.yaml_io import format_yaml, read_yaml, to_value

Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Survey(Strict):
    """A base recipe, blocks of settings, seeds, and the candidate to compare with."""

    name: str = Field(description="of the survey")
    source: str = Field("", description="the publication that it reproduces")
    recipe: dict[str, Any] = Field(description="the settings that all candidates share")
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)] = Field(
        description="the candidates of all blocks together"
    )
    steps: Count | None = Field(
        None, description="steps of every trial, overriding its recipe; stages are scaled"
    )
    evaluations: Count | None = Field(
        None, description="evaluations of every trial at most, evenly spread"
    )
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = Field(
        (1,), description="random seeds; each candidate is trained once with each"
    )
    budget: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds of a race, which trains round by round instead of all seeds"
    )
    baseline: str = Field("", description="name of the candidate that others are compared with")
    single: str | None = Field(None, description="name of the candidate with a model per task")
    rounds: tuple[Round, ...] = Field(
        (), description="of a race, or of seeds that were added later"
    )
    on: Literal["report", "test"] = Field(
        "report",
        description="rows that judge: those of validation, cross-fitted, or the test files",
    )

    @field_validator("seeds", mode="before")
    @classmethod
    def list_seeds(cls, given: Any) -> Any:
        """A number of seeds means 1, 2, 3, ...; a list stays, each seed once."""
        if isinstance(given, int):
            return list(range(1, given + 1))
        return list(dict.fromkeys(given)) if isinstance(given, list | tuple) else given

    @cached_property
    def expanded(self) -> tuple[Candidate, ...]:
        """A candidate for each combination, in order; equal recipes give the same candidate."""
        points = self.points()
        data = [self.with_point(given) for given in points]
        if self.steps is not None:
            varies = [b.varies("training.max_steps") for b in self.blocks for _ in b.points()]
            rescale(data, varies, self.steps)
        if self.evaluations is not None:
            limit_evaluations(data, self.evaluations, is_exact=self.budget is not None)
        contents, drafts = [], dict[str, Candidate]()  # by content, without names
        for read, given in zip(valid_recipes(data, points), points, strict=True):
            # Test files that do not judge are not read.
            recipe = read if self.on == "test" else without_tests(read)
            contents.append(json.dumps(recipe.to_data(), sort_keys=True))
            drafts.setdefault(contents[-1], Candidate("", given, recipe))
        axes = [axis for block in self.blocks for axis in block.axes]
        named = dict(zip(drafts, name_candidates(list(drafts.values()), axes), strict=True))
        return tuple(named[content] for content in contents)

    def with_point(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe with the settings of a combination, as plain data."""
        data = copy.deepcopy(self.recipe)
        for key, value in given.items():
            if key == "training.seed":
                advice = "name them under `seeds` of the survey"
                raise RecipeError(f"a survey does not set {key}: {advice}")
            set_key(data, key, copy.deepcopy(value))
        return data

    def points(self) -> list[dict[str, Any]]:
        """The settings of each combination, in the order of `expanded`."""
        return [point for block in self.blocks for point in block.points()]

    def candidates(self) -> tuple[Candidate, ...]:
        return tuple({candidate.name: candidate for candidate in self.expanded}.values())

    def trials(self) -> tuple[Trial, ...]:
        """Seed by seed, so that an unfinished survey has all candidates with the first seeds."""
        seeds = () if self.budget else self.seeds
        own = [c.trial(seed) for seed in seeds for c in self.candidates()]
        added = [trial for entry in self.rounds for trial in self.trials_of(entry)]
        return tuple({trial.name: trial for trial in (*own, *added)}.values())

    def with_round(self, entry: Round) -> Survey:
        return self.model_copy(update={"rounds": (*self.rounds, entry)})

    def with_more_seeds(self, count: int, only: Sequence[str] = ()) -> Survey:
        names = [self.resolved("only", name) for name in only]
        names = names or [candidate.name for candidate in self.candidates()]
        first = 1 + max(trial.seed for trial in self.trials())
        seeds = tuple(range(first, first + count))
        return self.with_round(Round(candidates=tuple(names), seeds=seeds, why="seeds were added"))

    def with_data(self, folder: Path) -> Survey:
        """The same files in another folder."""
        recipe = copy.deepcopy(self.recipe)
        change_files(recipe, lambda file: str(folder.resolve() / Path(file).name))
        return self.changed(recipe=recipe)

    def with_encoder(self, encoder: str) -> Survey:
        """The same encoder at another place."""
        return self.changed(recipe=self.recipe | {"encoder": local_folder(encoder)})

    def trials_of(self, entry: Round) -> list[Trial]:
        named = [c for c in self.candidates() if c.name in entry.candidates]
        return [candidate.trial(seed) for seed in entry.seeds for candidate in named]

    def to_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def to_yaml(self) -> str:
        return format_yaml(self.to_data())

    def with_plans(self, plans: Sequence[str | Mapping[str, Any]]) -> Survey:
        """Other plans: short forms, YAML files or rows.

        A plan joins the blocks that have a plan of its family, whose settings suit it; if there is
        none, the block of the first candidate.
        """
        homes = [n for n, block in enumerate(self.blocks) for _ in block.points()]
        families = [candidate.recipe.sharing_plan().family for candidate in self.expanded]
        members: dict[int, list[Any]] = {}
        for row in plan_rows(list(plans), Path()):
            family = read_plan(row).family
            own = {n for n, other in zip(homes, families, strict=True) if other == family}
            for n in own or {0}:
                members.setdefault(n, []).append(row)
        blocks = [self.blocks[n].with_axis("plan", rows) for n, rows in sorted(members.items())]
        return self.changed(blocks=blocks)

    def with_values(self, values: Mapping[str, Sequence[Any]]) -> Survey:
        """Other values of keys: in the blocks that vary a key, in all of them if none does."""
        blocks = list(self.blocks)
        for key, given in values.items():
            if key == "plan":
                raise RecipeError("plans to compare are given as `plan`, not among `values`")
            # A survey may be continued from another folder.
            known = [local_folder(value) if key == "encoder" else value for value in given]
            varies = [block.varies(key) for block in blocks]
            chosen = varies if any(varies) else [True] * len(blocks)
            pairs = zip(blocks, chosen, strict=True)
            blocks = [block.with_axis(key, known) if own else block for block, own in pairs]
        return self.changed(blocks=blocks)

    def with_settings(self, settings: Mapping[str, Any]) -> Survey:
        """Keys that hold for every candidate and override those of the survey."""
        varied = [key for key in settings if any(block.varies(key) for block in self.blocks)]
        if both := ", ".join(sorted(varied)):
            advice = "it cannot also be set for all candidates. Leave it out, or give its values"
            raise RecipeError(f"survey {self.name!r} varies {both}; {advice}")
        blocks = [Block(set={**block.set, **settings}, axes=block.axes) for block in self.blocks]
        return self.changed(blocks=blocks)

    def changed(self, **fields: Any) -> Survey:
        """Other fields; the baseline and the single-task candidate are looked up again."""
        data = {**self.model_dump(), "baseline": "", "single": None, **fields}
        new = to_value(Survey, data, where=f"survey {self.name!r}", error=RecipeError)
        is_same = len(new.expanded) == len(self.expanded) and "blocks" not in fields

        def renamed(name: str) -> str:
            if is_same and name:
                return new.expanded[[old.name for old in self.expanded].index(name)].name
            return new.match(name) or new.match(name.partition(", ")[0])

        return new.completed(renamed(self.baseline), renamed(self.single or ""))

    def match(self, wanted: str) -> str:
        """The candidate of this name, or the first one with this plan; empty if there is none."""
        names = [candidate.name for candidate in self.candidates()]
        with_plan = (name for name in names if wanted and wanted == name.partition(", ")[0])
        return wanted if wanted in names else next(with_plan, "")

    def completed(self, baseline: str = "", single: str = "") -> Survey:
        """The survey with the full names of its baseline (default: the first) and `single`."""
        baseline = self.resolved("baseline", baseline) or self.candidates()[0].name
        alone = self.resolved("single", single) or self.model_per_task(baseline)
        return self.model_copy(update={"baseline": baseline, "single": alone})

    def resolved(self, key: str, wanted: str) -> str:
        name = self.match(wanted)
        if wanted and not name:
            names = [candidate.name for candidate in self.candidates()]
            shown = "; ".join(names[:8]) + ("; ..." if len(names) > 8 else "")
            raise RecipeError(
                f"survey {self.name!r}: {key} {wanted!r} is no candidate; candidates are {shown}."
                f"{nearest(wanted, names)}"
            )
        return name

    def model_per_task(self, baseline: str) -> str | None:
        """The candidate with plan `separate`; among several the one most like the baseline."""
        settings = {c.name: c.settings.items() for c in self.candidates()}
        alone = [c.name for c in self.candidates() if c.recipe.plan == SINGLE]
        alike = {name: sum(both in settings[baseline] for both in settings[name]) for name in alone}
        return max(alone, key=alike.__getitem__, default=None)


def without_tests(recipe: Recipe) -> Recipe:
    tasks = {name: e.model_copy(update={"test": None}) for name, e in recipe.tasks.items()}
    return recipe.model_copy(update={"tasks": tasks})


def valid_recipes(
    data: Sequence[dict[str, Any]], points: Sequence[Mapping[str, Any]]
) -> list[Recipe]:
    """The recipes of all points; a wrong one is named by the settings that others do not have."""
    recipes, errors = [], dict[int, str]()
    for number, plain in enumerate(data):
        try:
            recipes.append(to_recipe(plain, where="survey"))
        except UsageError as error:
            errors[number] = str(error).removeprefix("survey: ")
    if not errors:
        return recipes
    number, told = next(iter(errors.items()))
    own = {k: v for k, v in points[number].items() if any(p.get(k) != v for p in points)}
    is_common = len(errors) == len(data) and len(set(errors.values())) == 1
    words = ", ".join(f"{k}={v.get('name') if isinstance(v, dict) else v}" for k, v in own.items())
    who = "" if is_common or not words else f", candidate {words[:100]}"
    raise RecipeError(f"survey{who}: {told}")


def read_survey(path: str | Path, recipe: Recipe | None = None) -> Survey:
    """The survey in a YAML file. `recipe` is the base of a file that names none."""
    file = Path(path)
    data = read_yaml(file)
    if not {"axes", "blocks"} & set(data):
        raise RecipeError(
            f"{file} is no survey: it has neither `axes` (dotted key: [values]) nor `blocks` of "
            "these; a recipe is given as `config`"
        )
    return to_survey({"name": file.stem, **data}, recipe, folder=file.parent, where=str(file))


def to_survey(
    data: Mapping[str, Any],
    recipe: Recipe | None = None,
    *,
    folder: Path | None = None,
    where: str = "survey",
) -> Survey:
    """A survey from plain data: the short form with one block, or the complete design."""
    folder = folder or Path.cwd()
    plain = copy.deepcopy(dict(data))
    plain["recipe"] = base_recipe(plain.get("recipe"), recipe, folder, where)
    block = {key: plain.pop(key) for key in ("set", "axes") if key in plain}
    if block and "blocks" in plain:
        raise RecipeError(f"{where}: give either `blocks`, or one block with `set` and `axes`")
    if block:
        plain["blocks"] = [{key: value for key, value in block.items() if value is not None}]
    for part in plain["blocks"] if isinstance(plain.get("blocks"), list) else ():
        for settings in part.values() if isinstance(part, dict) else ():
            if isinstance(settings, dict) and "plan" in settings:
                settings["plan"] = plan_rows(settings["plan"], folder)
    baseline, single = (plain.pop(key, None) or "" for key in ("baseline", "single"))
    return to_value(Survey, plain, where=where, error=RecipeError).completed(baseline, single)


def base_recipe(given: Any, recipe: Recipe | None, folder: Path, where: str) -> dict[str, Any]:
    """The base recipe: a file beside the survey, the recipe itself, or the one from the options."""
    if isinstance(given, str):
        return compose_recipe(config=folder / given).to_data()
    if isinstance(given, dict):
        data = relative_to(dict(given), folder.resolve())
        return to_recipe(data, where=f"{where}: recipe").to_data()
    if given is not None:
        raise RecipeError(f"{where}: `recipe` is a file or a mapping; found {given!r}")
    if recipe is None:
        raise RecipeError(f"{where}: no `recipe` is named; name a recipe file, or give data")
    return recipe.to_data()


def local_folder(encoder: Any) -> Any:
    """The complete path of a folder; other encoders unchanged."""
    is_folder = isinstance(encoder, str) and Path(encoder).is_dir()
    return str(Path(encoder).resolve()) if is_folder else encoder


def plan_rows(given: Any, folder: Path) -> Any:
    """The rows in a plan file, so that the survey stands alone; other plans unchanged."""
    if isinstance(given, list):
        return [plan_rows(plan, folder) for plan in given]
    return read_plan(str(folder / given)).to_data() if is_plan_file(given) else given
