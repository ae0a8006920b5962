"""Growth: new tasks join a trained model whose owners are frozen, so that its answers stay.

A recipe with a `base` is trained like any other. Its plan is that of the base with rows for the new
tasks, its tasks are the new ones, and its network starts from the weights of the base.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.dataset import read_dataset
from mops.errors import RecipeError, nearest
from mops.plans.joining import join_plan, moved_owners
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import Reading
from mops.predict.bundle import Bundle, load_bundle
from mops.tasks import Task
from mops.training.machine import prepare_machine
from mops.training.prepare import Prepared
from mops.training.tracking import Tell, refuse_missing_trackers

OF_THE_BASE = ("pool", "features", "max_length")  # keys of `training` that all tasks have in common


def growth_recipe(folder: str | Path, recipe: Recipe, like: str | None = None) -> Recipe:
    """The complete recipe with which the tasks of `recipe` join a bundle.

    Its `plan`, if it names one, says what the new tasks have for themselves. Everything else is
    that of the task `like`; by default the first that reads as many texts.
    """
    base = load_bundle(folder)
    for problem in contradictions(base, recipe):
        raise RecipeError(problem)
    known, tasks = base.layout.tasks, recipe.task_values()
    if like is not None and like not in known:
        raise RecipeError(f"no task {like!r} in {folder}; it has {', '.join(known)}."
                          f"{nearest(like, known)}")  # fmt: skip
    likes = {name: like or most_like(task, known) for name, task in tasks.items()}
    own = recipe.sharing_plan() if "plan" in recipe.model_fields_set else None
    data, pair = recipe.to_data(), base.layout.reading.pair
    training = {key: getattr(base.layout.reading, key) for key in OF_THE_BASE}
    training |= {"pair": pair} if isinstance(pair, str) else {}
    data["training"] |= {"train_tasks": list(tasks)} | training
    data["encoder"] = base.config["encoder_name"]
    data["plan"] = join_plan(base.layout.plan, list(known.values()), likes, own).to_data()
    grown = to_recipe(data | {"base": str(Path(folder).resolve())}, where="add-task")
    lay_out_growth(base, grown, tasks)
    return grown


def contradictions(base: Bundle, recipe: Recipe) -> Iterator[str]:
    """Keys of the recipe that the bundle has decided otherwise, and names that are taken."""
    reading, training = base.layout.reading, recipe.training
    for name in recipe.tasks:
        if name in base.layout.tasks:
            yield (
                f"tasks.{name}: the model {base.folder} has a task of this name already; "
                "choose another name"
            )
    name = base.config["encoder_name"]
    if "encoder" in recipe.model_fields_set and recipe.encoder != name:
        yield f"encoder is {recipe.encoder!r}, the model's is {name!r}; remove this key"
    common = (*OF_THE_BASE, *(["pair"] if isinstance(reading.pair, str) else []))
    for key in (key for key in common if key in training.model_fields_set):
        given, theirs = getattr(training, key), getattr(reading, key)
        if set(given.values() if isinstance(given, dict) else [given]) != {theirs}:
            yield f"training.{key} is {given!r}, the model's is {theirs!r}; remove this key"


def most_like(task: Task, known: Mapping[str, Task]) -> str:
    """The first known task that reads as many texts, else the first."""
    alike = [name for name, other in known.items() if other.is_pair == task.is_pair]
    return (alike or list(known))[0]


def prepare_growth(recipe: Recipe, tell: Tell) -> Prepared:
    """`prepare` for a recipe with a base: only the data of the new tasks are read."""
    assert recipe.base is not None
    device = prepare_machine(recipe.training)
    refuse_missing_trackers(recipe.training)
    tell("reading data")
    base, dataset = load_bundle(recipe.base), read_dataset(recipe)
    layout = lay_out_growth(base, recipe, dataset.tasks)
    recipe = recipe.with_labels(dataset.tasks)
    return Prepared(recipe, dataset, base.source, layout, device, base)


def lay_out_growth(base: Bundle, recipe: Recipe, tasks: Mapping[str, Task]) -> Layout:
    """The plan for the old and the new tasks; refused if it changes an old one's answers."""
    old, own = base.layout, recipe.training.reading(dict(tasks))
    pair: Any = old.reading.pair
    if isinstance(pair, Mapping):
        chosen = own.pair if isinstance(own.pair, Mapping) else dict.fromkeys(tasks, own.pair)
        pair = {**pair, **chosen}
    reading: Reading = replace(old.reading, pair=pair, heads={**old.reading.heads, **own.heads})
    everyone = [*old.tasks.values(), *tasks.values()]
    layout = lay_out(recipe.sharing_plan(), everyone, old.encoder, reading)
    for owner in moved_owners(old, layout):
        if layout.rates[owner]:
            raise RecipeError(
                f"{owner!r} belongs to the model {base.folder} and would learn; name all its "
                f"tasks under `frozen` of the plan: {', '.join(old.tasks)}"
            )
    return layout
