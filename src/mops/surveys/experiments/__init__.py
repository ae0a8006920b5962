"""Named experiments: the surveys of the papers, and one of everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mops.config.recipe import Recipe
from mops.data.compose import is_optional, tasks_in
from mops.errors import RecipeError, nearest
from mops.surveys.design import Survey, to_survey
from mops.surveys.experiments.given import Build, Given
from mops.surveys.experiments.late import LATE
from mops.surveys.experiments.settings import SETTINGS
from mops.surveys.experiments.sharing import SHARING
from mops.yaml_io import read_yaml

DEFAULT = "everything"
NOMINAL_GFLOPS = 200.0  # matrix products of a machine with two cores


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One entry of table.yaml, and the function that builds its blocks."""

    name: str
    about: str
    source: str  # the publication that it reproduces
    differs: str = ""  # how it differs from the source
    baseline: str
    single: str = ""
    hours: float
    seeds: int = 3
    joins: Sequence[str] = ()
    build: Build = field(repr=False)


BUILDERS = {**LATE, **SHARING, **SETTINGS}
EXPERIMENTS = {
    name: Experiment(name=name, build=BUILDERS[name], **entry)
    for name, entry in read_yaml(Path(__file__).with_name("table.yaml")).items()
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
    entry, given = find_experiment(name), Given(name, recipe)
    data = {
        "name": name,
        "source": entry.source,
        "blocks": [block.model_dump() for block in entry.build(given)],
        "seeds": entry.seeds if seeds is None else seeds,
        "baseline": given.fill_in(entry.baseline),
        "single": given.fill_in(entry.single),
    }
    return to_survey(data, recipe, where=f"experiment {name}")


def tasks_for(name: str, data: str) -> list[str] | None:
    """The tasks of a folder, with optional tasks that join this experiment; None: the default."""
    joins = find_experiment(name).joins
    entries = tasks_in(data) if joins else {}
    if not set(joins) & set(entries):
        return None
    return [task for task, entry in entries.items() if not is_optional(entry) or task in joins]


__all__ = [
    "DEFAULT",
    "EXPERIMENTS",
    "NOMINAL_GFLOPS",
    "Experiment",
    "find_experiment",
    "named_survey",
    "tasks_for",
]
