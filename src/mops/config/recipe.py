"""The recipe: everything one run needs, as plain data; a run can be repeated from it alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from mops.config.training import AGGREGATORS, LOSS_WEIGHTS, SUM, Strict, TaskEntry, Training
from mops.errors import RecipeError, nearest
from mops.kinds.answers import LABELS
from mops.plans.catalog import DEFAULT, read_plan
from mops.plans.layout import Layout, lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, check_length
from mops.tasks import Task
from mops.yaml_io import format_yaml, read_own_yaml, to_value


class Recipe(Strict):
    """Tasks, data, encoder, plan and training of one run."""

    encoder: str = Field(
        "minilm", description="the bundled one, a folder, or a hub name (`name@revision`)"
    )
    tasks: dict[str, TaskEntry] = Field(description="by name")
    plan: str | dict[str, Any] = Field(DEFAULT, description="a short form, a YAML file, or rows")
    training: Training = Field(default_factory=Training, description="how it is trained")
    base: str | None = Field(
        None, description="a trained model that these tasks join; `mops add-task` writes this key"
    )

    def sharing_plan(self) -> SharingPlan:
        return read_plan(self.plan)

    def task_values(self) -> dict[str, Task]:
        return {name: entry.task(name) for name, entry in self.tasks.items()}

    def layout(self, tasks: Mapping[str, Task], encoder: EncoderShape) -> Layout:
        """The plan applied to these tasks (with their labels known) on this encoder."""
        if self.base:
            raise RecipeError(
                f"this recipe adds {', '.join(tasks)} to the trained model {self.base}; "
                "only `mops add-task` and `mops train` can do that"
            )
        reading = self.training.reading(dict(tasks))
        check_length(reading, encoder)
        return lay_out(self.sharing_plan(), list(tasks.values()), encoder, reading)

    def with_labels(self, tasks: Mapping[str, Task]) -> Self:
        """The complete recipe, with what was read from the data."""
        learnt = {n: {key: getattr(task, key) for key in LEARNT} for n, task in tasks.items()}
        entries = {n: entry.model_copy(update=learnt[n]) for n, entry in self.tasks.items()}
        return self.model_copy(update={"tasks": entries})

    def in_fold(self, number: int = 1) -> Self:
        """The training of one fold; the recipe itself where it has none."""
        if not (count := self.training.folds):
            return self
        fold = {"split": None, "fold": (number, count)}
        entries = {name: entry.model_copy(update=fold) for name, entry in self.tasks.items()}
        training = self.training.model_copy(update={"folds": None})
        return self.model_copy(update={"tasks": entries, "training": training})

    def to_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def to_yaml(self) -> str:
        return format_yaml(self.to_data())

    def identity(self, *ignored: str) -> dict[str, Any]:
        """What names the recipe in digests: its data without these keys of `training`.

        Keys at their defaults are left out, so that a version with a new key finds old work.
        """
        ignored_keys = {"training": set(ignored)}
        return self.model_dump(mode="json", exclude_defaults=True, exclude=ignored_keys)


LEARNT = ("labels", "scale", "class_weights")  # from the training rows, where it is silent
BY_TASK = ("loss_weights", "pair", "per_task_batch_size", "task_steps", "train_tasks")
FORMER = {  # other spelling -> how the key is written here
    other: key
    for key, spellings in read_own_yaml(Path(__file__).with_name("spellings.yaml")).items()
    for other in spellings
}


def to_recipe(data: dict[str, Any], *, where: str = "recipe") -> Recipe:
    """Plain data as a recipe, or one line that says what is wrong with it."""
    training = data.get("training")
    for key in training if isinstance(training, dict) else ():
        if key in FORMER:
            raise RecipeError(f"{where}: training.{key} is written {FORMER[key]}")
    recipe = to_value(Recipe, data, where=where, error=RecipeError)
    for problem in find_problems(recipe):
        raise RecipeError(f"{where}: {problem}")
    recipe.sharing_plan()
    return recipe


def find_problems(recipe: Recipe) -> Iterator[str]:
    """Contradictions between keys, each of which is valid alone."""
    if not recipe.tasks:
        yield "no tasks; a recipe needs at least one under `tasks`"
    training, tasks = recipe.training, recipe.task_values()
    yield from unknown_tasks(training, list(tasks))
    yield from stage_problems(training)
    yield from fold_problems(recipe)
    yield from empty_problems(recipe)
    yield from method_problems(training)
    for name in training.augment.swap if training.augment else ():
        if not tasks[name].is_pair:
            pairs = ", ".join(n for n, task in tasks.items() if task.is_pair) or "none here"
            yield (
                f"training.augment.swap names {name!r}, which reads one text; "
                f"allowed: pair tasks ({pairs}); remove it"
            )
    for name in tasks if training.augment and training.augment.word_dropout else ():
        if tasks[name].answer.reads_words:
            yield f"training.augment.word_dropout would drop words of {name!r} but not their tags"
    reading = training.reading(tasks)
    for name, head in reading.heads.items():
        if head.kind == "cosine" and reading.of(name).pair != "bi":
            yield f"the cosine head of {name!r} needs training.pair: bi"


def unknown_tasks(training: Training, tasks: list[str]) -> Iterator[str]:
    """Settings per task for tasks that do not exist, and batch sizes that are missing."""
    sizes = training.per_task_batch_size
    if isinstance(sizes, dict) and (missing := sorted(set(tasks) - set(sizes))):
        yield f"training.per_task_batch_size lacks {', '.join(missing)}"
    named: dict[str, Any] = {
        **{key: getattr(training, key) for key in BY_TASK},
        "augment.swap": training.augment.swap if training.augment else (),
        **{f"stages.{n}.tasks": stage.tasks for n, stage in enumerate(training.stages)},
    }
    for key, names in named.items():
        for name in names if isinstance(names, dict | tuple) else ():
            if name not in tasks:
                known = f"the tasks are {', '.join(tasks)}.{nearest(name, tasks)}"
                yield f"training.{key} names {name!r}; {known}"


def fold_problems(recipe: Recipe) -> Iterator[str]:
    """Parts of the training rows that are no folds."""
    for name, entry in recipe.tasks.items():
        if (entry.fold or recipe.training.folds) and entry.validation:
            yield (
                f"task {name!r} has a `validation` file, but folds are made of the training rows; "
                f"remove `validation` (set tasks.{name}.validation to null), or name it as `test`"
            )
        if entry.fold and entry.fold[0] > entry.fold[1]:
            yield f"task {name!r}: `fold` is {list(entry.fold)}; write the second of five as [2, 5]"


def empty_problems(recipe: Recipe) -> Iterator[str]:
    """Empty cells that cannot mean that there is no label."""
    for name, entry in recipe.tasks.items():
        is_list = entry.task(name).answer is LABELS and len(entry.label_columns) == 1
        if entry.empty == "no_labels" and not is_list:
            yield (
                f"task {name!r}: `empty: no_labels` belongs to a multilabel with one label "
                "column; leave it out"
            )


def stage_problems(training: Training) -> Iterator[str]:
    if training.stages and training.max_steps:
        yield (
            f"training.max_steps is {training.max_steps} and training.stages has steps of its "
            "own; remove max_steps"
        )
    for n, stage in enumerate(training.stages):
        for name in stage.tasks:
            if name not in (training.train_tasks or stage.tasks):
                yield (
                    f"training.stages.{n}.tasks names {name!r}, but training.train_tasks has only "
                    f"{', '.join(training.train_tasks)}; add it there or remove it here"
                )


def method_problems(training: Training) -> Iterator[str]:
    """Unknown ways to weigh losses and to combine gradients."""
    for key, also, methods in (
        ("loss_weights", "a number per task, ", LOSS_WEIGHTS),
        ("gradients", "", (SUM, *AGGREGATORS)),
    ):
        given = getattr(training, key)
        if isinstance(given, str) and given not in methods:
            allowed = f"{also}{', '.join(methods)}.{nearest(given, methods)}"
            yield f"training.{key} is {given!r}; allowed: {allowed}"


def differing_key(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> str:
    """The first dotted key in which two recipes differ, with both values; empty when equal.

    Trackers (`report_to`) do not count.
    """
    for key in dict.fromkeys((*there, *here)):
        a, b = there.get(key), here.get(key)
        if f"{prefix}{key}" == "training.report_to":
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            if inner := differing_key(a, b, f"{prefix}{key}."):
                return inner
        elif a != b:
            return f"{prefix}{key}: {a!r} there, {b!r} here"
    return ""
