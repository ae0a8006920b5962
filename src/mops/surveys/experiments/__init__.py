"""Named experiments: the surveys of the papers, and one of everything."""

from __future__ import annotations

from mops.config.recipe import Recipe
from mops.data.compose import is_optional, tasks_in
from mops.errors import RecipeError, nearest
from mops.surveys.design import Survey, to_survey
from mops.surveys.experiments import added, everything, habits, late, trunks
from mops.surveys.experiments.table import ENTRIES, NOMINAL_GFLOPS, Experiment, Given, text_of

DEFAULT = "everything"
FAMILIES = [family.__name__ for family in (everything, late, trunks, added, habits)]
EXPERIMENTS = dict(
    sorted(ENTRIES.items(), key=lambda entry: FAMILIES.index(entry[1].build.__module__))
)


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise RecipeError(
            f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or a YAML file of your "
            f"own.{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def named_survey(name: str, recipe: Recipe, seeds: int | list[int] | None = None) -> Survey:
    """A named experiment on the tasks, the data and the encoder of a recipe."""
    entry = find_experiment(name)
    given = Given(name, recipe)
    data = {
        "name": name,
        "source": entry.source,
        "blocks": [block.model_dump() for block in entry.build(given)],
        "seeds": entry.seeds if seeds is None else seeds,
        "baseline": text_of(entry.baseline, given),
        "single": text_of(entry.single, given),
    }
    return to_survey(data, recipe, where=f"experiment {name}")


def tasks_for(name: str, data: str) -> list[str] | None:
    """The tasks of a folder with those that join this experiment; none: as always."""
    joins = find_experiment(name).joins
    found = tasks_in(data) if joins else {}
    if not set(joins) & set(found):
        return None
    return [task for task, entry in found.items() if not is_optional(entry) or task in joins]


__all__ = [
    "DEFAULT",
    "EXPERIMENTS",
    "NOMINAL_GFLOPS",
    "Experiment",
    "find_experiment",
    "named_survey",
    "tasks_for",
]
