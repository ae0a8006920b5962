"""Named experiments: the surveys of the papers, and one of everything. No torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from mops.config.recipe import Recipe
from mops.config.training import AGGREGATORS, ScheduleName
from mops.data.compose import is_optional, tasks_in
from mops.errors import RecipeError, nearest
from mops.model.sources import find_encoder
from mops.plans.catalog import fsi, parse_plan
from mops.plans.rows import Feed, Gradient, Per
from mops.surveys.design import Survey, to_survey
from mops.yaml_io import read_own_yaml

DEFAULT = "everything"
# Frozen and shared layers in twelfths of the depth, the others individual: all mixtures in steps of
# a third, and the 1-7-4 of Pahari and Shimada.
MIXTURES = (
    (0, 12), (0, 8), (0, 4), (0, 0), (4, 8), (4, 4), (4, 0), (8, 4), (8, 0), (12, 0), (1, 7),
)  # fmt: skip
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)  # of late layers, in widths of the encoder
PARALLEL = ("parallel", "parallel-weighted", "both-different")  # PALs in the layers
OTHER_GRADIENTS: tuple[Gradient, ...] = ("stop", "full")  # the short form has frozen-head
SHARED_BY_GROUPS, MOST_GROUPED = ("ISS", "SSI", "SIS"), 5
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
    for name, entry in read_own_yaml(Path(__file__).with_suffix(".yaml"))["experiments"].items()
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise RecipeError(
            f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or a YAML file of your "
            f"own.{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def named_survey(name: str, recipe: Recipe) -> Survey:
    """A named experiment on the tasks, the data and the encoder of a recipe."""
    entry, tasks = find_experiment(name), recipe.task_values().values()
    fewest, most = entry.tasks
    if not fewest <= len(tasks) <= most or sum(task.is_pair for task in tasks) < entry.pairs:
        raise RecipeError(
            f"experiment {name!r} needs {entry.needs}; the tasks are {', '.join(recipe.tasks)}; "
            f"{entry.advice}"
        )
    design = {"blocks": entry.blocks, "baseline": entry.baseline, "single": entry.single}
    own = {"name": name, "source": entry.source, "seeds": entry.seeds}
    data = own | fill_in(design, list_values(recipe))
    return to_survey(data, recipe, where=f"experiment {name}")


def tasks_for(name: str, data: str) -> list[str] | None:
    """The tasks of a folder, with optional tasks that join this experiment; None: the default."""
    joins = find_experiment(name).joins
    entries = tasks_in(data) if joins else {}
    if not set(joins) & set(entries):
        return None
    return [task for task, entry in entries.items() if not is_optional(entry) or task in joins]


def fill_in(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with values for names; a list that stands for a name is spliced."""
    if isinstance(template, dict):
        return {fill_in(key, values): fill_in(part, values) for key, part in template.items()}
    if isinstance(template, list):
        parts: list[Any] = []
        for part in template:
            value = fill_in(part, values)
            parts += value if isinstance(part, str) and isinstance(value, list) else [value]
        return parts
    if not isinstance(template, str):
        return template
    if whole := re.fullmatch(r"{(\w+)}", template):
        return values[whole[1]]
    return re.sub(r"{(\w+)}", lambda name: str(values[name[1]]), template)


def list_values(recipe: Recipe) -> dict[str, Any]:
    """Name -> its value for the tasks and the encoder of a recipe."""
    kinds = recipe.task_values()
    pairs = [name for name, task in kinds.items() if task.is_pair]
    tasks = sorted(kinds, key=pairs.__contains__)  # single texts first, as the papers order them
    single = [name for name in tasks if name not in pairs] or tasks
    shape = find_encoder(recipe.encoder, ["config.json"]).shape
    cosine = {"kind": "cosine", "project": True}
    return {
        # of the encoder
        "encoder": recipe.encoder,
        "width": shape.width,
        "all_shared": "S" * shape.depth,
        "all_individual": "I" * shape.depth,
        "half": f"hybrid:{shape.depth // 2}",
        "thirds": f"layers:{fsi(shape.depth)}",
        "hybrids": [f"hybrid:{k}" for k in range(shape.depth)],
        "mixtures": list(dict.fromkeys(mix_layers(shape.depth, *m) for m in MIXTURES)),
        "pals_apart": [project_apart(place) for place in PARALLEL],
        "widths": [late_layers(round(shape.width * part)) for part in WIDTHS],
        # of the tasks
        **{f"task{number}": name for number, name in enumerate(tasks, start=1)},
        "alone": [[task] for task in single],
        "each_task": [[task] for task in tasks],
        "each_pair": [list(pair) for pair in combinations(tasks, 2)],
        "fed": ["progressive"] if len(tasks) > 1 else [],
        "edges": list_edges(tasks),
        "other_gradients": [feed_all(gradient) for gradient in OTHER_GRADIENTS],
        "normed_feeds": feed_normed(),
        "groups": list_groups(tasks),
        "cosine_heads": {n: cosine for n, t in kinds.items() if t.kind.has_cosine} or "linear",
        "equal_weights": dict.fromkeys(tasks, round(1 / len(tasks), 6)),
        "rows_of_all": ROWS * len(tasks),
        # of the package; under Adam `mean` moves as the sum does, and some ways need a solver
        "aggregators": [n for n, way in AGGREGATORS.items() if not way.needs and n != "mean"],
        "turns": [name for name in get_args(ScheduleName) if name not in WHOLE_BATCH],
    }


def mix_layers(depth: int, frozen: int, shared: int) -> str:
    first, second = round(depth * frozen / 12), round(depth * (frozen + shared) / 12)
    return "layers:" + "F" * first + "S" * (second - first) + "I" * (depth - second)


def late_layers(width: int) -> dict[str, Any]:
    plan = parse_plan("frozen+late:SIS")
    late = tuple(replace(row, width=width) for row in plan.late)
    return replace(plan, name=f"{plan.name} of {width}", late=late).to_data()


def feed_all(gradient: Gradient) -> dict[str, Any]:
    plan, row = parse_plan("progressive"), Feed(source="*", target="*", gradient=gradient)
    return replace(plan, name=f"{plan.name}-{gradient}", feeds=(row,)).to_data()


def feed_normed() -> dict[str, Any]:
    plan = replace(parse_plan("progressive"), late=parse_plan("late:N").late)
    return replace(plan, name="progressive-norm").to_data()


def project_apart(place: str) -> dict[str, Any]:
    """PALs with projections of their own in every layer, as in the PALs / EmBERT report."""
    plan = parse_plan(f"pals:{place}")
    own: dict[str, Per] = {"down": ("layer", "task"), "up": ("layer", "task")}
    additions = tuple(replace(row, per={**row.per, **own}) for row in plan.additions)
    return replace(plan, name=f"{plan.name}-apart", additions=additions).to_data()


def list_edges(tasks: Sequence[str]) -> list[str]:
    """Each edge alone, and the first task to all others; two tasks have only one edge."""
    first, *others = tasks
    edges = [f"{a}>{b}" for a, b in combinations(tasks, 2)]
    edges.append(",".join(f"{first}>{later}" for later in others))
    return [f"progressive:{edge}" for edge in edges if len(others) > 1]


def list_groups(tasks: Sequence[str]) -> list[str]:
    """Three tasks: each pair. Four or five: each division into two groups without singletons."""
    first, *others = tasks[:MOST_GROUPED]
    groupings: list[list[tuple[str, ...]]] = [[pair] for pair in combinations(tasks, 2)]
    if len(others) > 2:
        chosen = [c for size in range(1, len(others) - 1) for c in combinations(others, size)]
        groupings = [[(first, *c), tuple(t for t in others if t not in c)] for c in chosen]
    words = [",".join("+".join(group) for group in groups) for groups in groupings]
    return [f"late:{regime}/{word}" for regime in SHARED_BY_GROUPS for word in words]
