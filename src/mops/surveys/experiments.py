"""Named experiments: the surveys of the papers, and one of everything. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from mops.config.methods import AGGREGATORS
from mops.config.recipe import Recipe
from mops.config.training import ScheduleName
from mops.data.compose import is_optional, tasks_in
from mops.errors import RecipeError, nearest
from mops.model.sources import find_encoder
from mops.plans.catalog import fsi
from mops.plans.parser import parse_plan
from mops.plans.rows import Feed, Gradient
from mops.plans.shapes import EncoderShape
from mops.surveys.design import Survey, to_survey
from mops.yaml_io import read_yaml

DEFAULT = "everything"
NOMINAL_GFLOPS = 200.0  # matrix products of a machine with two cores
# Frozen and shared layers in twelfths of the depth, the others individual: all mixtures in steps of
# a third, and the 1-7-4 of Pahari and Shimada.
MIXTURES = (
    (0, 12), (0, 8), (0, 4), (0, 0), (4, 8), (4, 4), (4, 0), (8, 4), (8, 0), (12, 0), (1, 7),
)  # fmt: skip
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)  # of late layers, in widths of the encoder
OTHER_GRADIENTS: tuple[Gradient, ...] = ("stop", "full")  # the short form has frozen-head
SHARED_BY_GROUPS = ("ISS", "SSI", "SIS")
WEIGHTS = (
    (0.4, 0.4, 0.2), (0.4, 0.2, 0.4), (0.2, 0.4, 0.4),
    (0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5),
)  # fmt: skip
ROWS = 8  # of a task in each step
WHOLE_BATCH = ("together", "mixed")  # schedules whose steps have rows of every task


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One entry of experiments.yaml."""

    name: str
    about: str
    source: str  # the publication that it reproduces
    differs: str = ""  # how it differs from the source
    baseline: str
    single: str = ""
    hours: float
    seeds: int = 3
    joins: Sequence[str] = ()
    tasks: tuple[int, int] = (1, 99)  # fewest and most
    pairs: int = 0  # fewest tasks with two texts
    needs: str = ""  # these numbers in words
    advice: str = "add one"
    blocks: Sequence[dict[str, Any]] = field(repr=False)


EXPERIMENTS = {
    name: Experiment(name=name, **entry)
    for name, entry in read_yaml(Path(__file__).with_suffix(".yaml"))["experiments"].items()
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise RecipeError(
            f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or a YAML file of your "
            f"own.{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def named_survey(name: str, recipe: Recipe, seeds: int | list[int] | None = None) -> Survey:
    """A named experiment on the tasks, the data and the encoder of a recipe."""
    entry, given = find_experiment(name), Given(recipe)
    fewest, most = entry.tasks
    if not fewest <= len(given.tasks) <= most or len(given.pairs) < entry.pairs:
        raise RecipeError(
            f"experiment {name!r} needs {entry.needs}; the tasks are {', '.join(recipe.tasks)}; "
            f"{entry.advice}"
        )
    data = {
        "name": name,
        "source": entry.source,
        "seeds": entry.seeds if seeds is None else seeds,
        **{key: given.fill_in(getattr(entry, key)) for key in ("blocks", "baseline", "single")},
    }
    return to_survey(data, recipe, where=f"experiment {name}")


def tasks_for(name: str, data: str) -> list[str] | None:
    """The tasks of a folder, with optional tasks that join this experiment; None: the default."""
    joins = find_experiment(name).joins
    entries = tasks_in(data) if joins else {}
    if not set(joins) & set(entries):
        return None
    return [task for task, entry in entries.items() if not is_optional(entry) or task in joins]


# ------------------------------------------------------------------ {names} in experiments.yaml


@dataclass(frozen=True)
class Given:
    """The tasks and the encoder of a recipe, on which an experiment may depend."""

    recipe: Recipe

    @cached_property
    def pairs(self) -> list[str]:
        return [name for name, task in self.recipe.task_values().items() if task.is_pair]

    @cached_property
    def tasks(self) -> list[str]:
        """Names, single texts before pairs, as the papers order them."""
        return sorted(self.recipe.tasks, key=lambda name: name in self.pairs)

    @cached_property
    def encoder(self) -> EncoderShape:
        return find_encoder(self.recipe.encoder, ["config.json"]).shape

    def fill_in(self, template: Any) -> Any:
        """The template with values for names; a list that stands for a name is spliced."""
        if isinstance(template, dict):
            return {key: self.fill_in(part) for key, part in template.items()}
        if isinstance(template, list):
            parts: list[Any] = []
            for part in template:
                value = self.fill_in(part)
                parts += value if isinstance(part, str) and isinstance(value, list) else [value]
            return parts
        if not isinstance(template, str):
            return template
        if whole := re.fullmatch(r"{(\w+)}", template):
            return VALUES[whole[1]](self)
        return re.sub(r"{(\w+)}", lambda name: str(VALUES[name[1]](self)), template)


def write_mixtures(given: Given) -> list[str]:
    depth, words = given.encoder.depth, []
    for frozen, shared in MIXTURES:
        first, second = round(depth * frozen / 12), round(depth * (frozen + shared) / 12)
        words.append("F" * first + "S" * (second - first) + "I" * (depth - second))
    return [f"layers:{word}" for word in dict.fromkeys(words)]


def write_edges(given: Given) -> list[str]:
    """Each edge alone, and the first task to all others; two tasks have only one edge."""
    first, *others = given.tasks
    edges = [f"{a}>{b}" for a, b in combinations(given.tasks, 2)]
    edges.append(",".join(f"{first}>{later}" for later in others))
    return [f"progressive:{edge}" for edge in edges if len(others) > 1]


def write_feeds(given: Given) -> list[dict[str, Any]]:
    rows = [Feed(source="*", target="*", gradient=gradient) for gradient in OTHER_GRADIENTS]
    plan = parse_plan("progressive")
    return [replace(plan, name=f"{plan.name}-{r.gradient}", feeds=(r,)).to_data() for r in rows]


def write_widths(given: Given) -> list[dict[str, Any]]:
    plan, plans = parse_plan("frozen+late:SIS"), []
    for width in (round(given.encoder.width * part) for part in WIDTHS):
        late = tuple(replace(row, width=width) for row in plan.late)
        plans.append(replace(plan, name=f"{plan.name} of {width}", late=late).to_data())
    return plans


def write_groups(given: Given) -> list[str]:
    """Three tasks: each pair. More: all partitions into two or more groups without singletons."""
    groupings = [groups for groups in partitions(given.tasks) if len(groups) > 1]
    if len(given.tasks) == 3:
        groupings = [[pair] for pair in combinations(given.tasks, 2)]
    words = [",".join("+".join(group) for group in groups) for groups in groupings]
    return [f"late:{regime}/{word}" for regime in SHARED_BY_GROUPS for word in words]


def partitions(tasks: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """All ways to divide tasks into groups of two or more."""
    if not tasks:
        yield []
        return
    first, *others = tasks
    for count in range(1, len(others) + 1):
        for chosen in combinations(others, count):
            left = [task for task in others if task not in chosen]
            yield from ([(first, *chosen), *rest] for rest in partitions(left))


def write_heads(given: Given) -> dict[str, Any] | str:
    tasks = given.recipe.task_values().values()
    heads = {task.name: {"kind": "cosine", "project": True} for task in tasks if task.is_similarity}
    return heads or "linear"


VALUES: dict[str, Callable[[Given], Any]] = {
    # of the encoder
    "encoder": lambda given: given.recipe.encoder,
    "width": lambda given: given.encoder.width,
    "all_shared": lambda given: "S" * given.encoder.depth,
    "all_individual": lambda given: "I" * given.encoder.depth,
    "half": lambda given: f"hybrid:{given.encoder.depth // 2}",
    "thirds": lambda given: f"layers:{fsi(given.encoder.depth)}",
    "hybrids": lambda given: [f"hybrid:{k}" for k in range(given.encoder.depth)],
    "mixtures": write_mixtures,
    "widths": write_widths,
    # of the tasks
    "alone": lambda given: [
        [task] for task in given.tasks if task not in given.pairs or given.pairs == given.tasks
    ],
    "fed": lambda given: ["progressive"] if len(given.tasks) > 1 else [],
    "edges": write_edges,
    "other_gradients": write_feeds,
    "groups": write_groups,
    "cosine_heads": write_heads,
    "equal_weights": lambda given: dict.fromkeys(given.tasks, round(1 / len(given.tasks), 6)),
    "weights": lambda given: [dict(zip(given.tasks, three, strict=True)) for three in WEIGHTS],
    "rows_of_all": lambda given: ROWS * len(given.tasks),
    # of the package; under Adam `mean` moves as the sum does, and some ways need a solver
    "aggregators": lambda _: [n for n, way in AGGREGATORS.items() if not way.needs and n != "mean"],
    "turns": lambda _: [name for name in get_args(ScheduleName) if name not in WHOLE_BATCH],
}
