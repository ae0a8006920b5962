"""Recipe: everything one run needs, as plain data; a run can be repeated from its recipe alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from mops.config.training import AGGREGATORS, LOSS_WEIGHTS, SUM, Strict, TaskEntry, Training
from mops.errors import RecipeError, nearest
from mops.plans.catalog import DEFAULT
from mops.plans.layout import Layout, lay_out
from mops.plans.parser import read_plan
from mops.plans.rows import SharingPlan
from mops.plans.shapes import FEATURES, EncoderShape, check_length
from mops.tasks import Task
from mops.yaml_io import format_yaml, to_value


class Recipe(Strict):
    """Tasks, data, encoder, plan and training of one run."""

    encoder: str = Field("minilm", description="the bundled one, a folder, or a hub name")
    tasks: dict[str, TaskEntry] = Field(description="by name")
    plan: str | dict[str, Any] = Field(DEFAULT, description="a short form, a YAML file, or rows")
    training: Training = Field(default_factory=Training, description="how it is trained")  # type: ignore[arg-type]

    def sharing_plan(self) -> SharingPlan:
        return read_plan(self.plan)

    def task_values(self) -> dict[str, Task]:
        return {name: entry.task(name) for name, entry in self.tasks.items()}

    def layout(self, tasks: Mapping[str, Task], encoder: EncoderShape) -> Layout:
        """The plan applied to these tasks (with their labels known) on this encoder."""
        reading = self.training.reading(dict(tasks))
        check_length(reading, encoder)
        return lay_out(self.sharing_plan(), list(tasks.values()), encoder, reading)

    def with_labels(self, tasks: Mapping[str, Task]) -> Recipe:
        """The complete recipe: labels that were read from the data are written down."""
        data = self.to_data()
        for name, task in tasks.items():
            if task.labels:
                data["tasks"][name]["labels"] = list(task.labels)
        return Recipe.model_validate(data)

    def to_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def to_yaml(self) -> str:
        return format_yaml(self.to_data())

    def without(self, *keys: str) -> Recipe:
        """The same with these keys of `training` as if nobody had set them."""
        plain = {key: Training.model_fields[key].default for key in keys}
        return self.model_copy(update={"training": self.training.model_copy(update=plain)})


TOLD = "training.report_to"
# transformers' former spellings -> what to write
FORMER = {
    "warmup_ratio": "warmup_steps (a number below 1 is a share of all steps)",
    "evaluation_strategy": "eval_steps",
    "eval_strategy": "eval_steps",
    "save_strategy": "save_steps",
    "per_device_train_batch_size": "per_task_batch_size",
    "per_gpu_train_batch_size": "per_task_batch_size",
    "train_batch_size": "per_task_batch_size",
    "batch_size": "per_task_batch_size",
    "max_seq_length": "max_length",
    "num_epochs": "num_train_epochs",
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "lr_scheduler": "lr_scheduler_type",
    "metric_for_best_model": "best_by",
    "early_stopping_patience": "early_stopping",
    "no_cuda": "device",
    "use_cpu": "device",
    "model_name_or_path": "encoder (at the top of the recipe)",
    "output_dir": "--out (an option of the command)",
    "overwrite_output_dir": "--out (name a new folder)",
    "logging_dir": "--out (curve.jsonl lies there)",
    "group_by_length": "nothing: packing leaves no padding",
    "save_safetensors": "nothing: weights are always safetensors",
    "load_best_model_at_end": "nothing: the best state is always the one that is kept",
}


def to_recipe(data: dict[str, Any], *, where: str = "recipe") -> Recipe:
    """Plain data as a recipe, or one line that says what is wrong with it."""
    training = data.get("training")
    for key in training if isinstance(training, dict) else ():
        if key in FORMER:
            raise RecipeError(f"{where}: training.{key} is written {FORMER[key]}")
    recipe = to_value(Recipe, data, where=where, error=RecipeError)
    check_recipe(recipe, where)
    return recipe


def check_recipe(recipe: Recipe, where: str) -> None:
    """What single keys cannot tell: do the parts fit each other?"""
    if not recipe.tasks:
        raise RecipeError(f"{where}: no tasks; a recipe needs at least one under `tasks`")
    training, tasks = recipe.training, recipe.task_values()
    check_names(training, list(tasks), where)
    check_stages(training, where)
    check_swap(training, tasks, where)
    check_methods(training, where)
    unknown = [name for name in training.features if name not in FEATURES]
    if unknown or not training.features:
        raise RecipeError(f"{where}: features are {', '.join(FEATURES)}; found {unknown or 'none'}")
    for name, head in training.reading(tasks).heads.items():
        if head.kind == "cosine" and training.pair != "bi":
            raise RecipeError(f"{where}: the cosine head of {name!r} needs training.pair: bi")
    recipe.sharing_plan()


def check_names(training: Training, tasks: list[str], where: str) -> None:
    """Keys that hold a value per task name tasks that are there."""
    sizes = training.per_task_batch_size
    if isinstance(sizes, dict) and set(tasks) - set(sizes):
        missing = ", ".join(sorted(set(tasks) - set(sizes)))
        raise RecipeError(f"{where}: training.per_task_batch_size lacks {missing}")
    weights = training.loss_weights
    named: dict[str, Iterable[str]] = {
        "loss_weights": weights if isinstance(weights, dict) else (),
        "per_task_batch_size": sizes if isinstance(sizes, dict) else (),
        "task_steps": training.task_steps,
        "train_tasks": training.train_tasks,
        "augment.swap": training.augment.swap if training.augment else (),
        **{f"stages.{n}.tasks": stage.tasks for n, stage in enumerate(training.stages)},
    }
    for key, names in named.items():
        for name in names:
            if name not in tasks:
                raise RecipeError(
                    f"{where}: training.{key} names {name!r}; the tasks are {', '.join(tasks)}."
                    f"{nearest(name, tasks)}"
                )


def check_stages(training: Training, where: str) -> None:
    if training.stages and training.max_steps:
        raise RecipeError(
            f"{where}: training.max_steps is {training.max_steps} and training.stages has steps of "
            "its own; a run is one or the other: leave max_steps out"
        )
    for n, stage in enumerate(training.stages):
        for name in stage.tasks:
            if name not in (training.train_tasks or stage.tasks):
                raise RecipeError(
                    f"{where}: training.stages.{n}.tasks names {name!r}, but training.train_tasks "
                    f"has only {', '.join(training.train_tasks)}; add it there or leave it out here"
                )


def check_swap(training: Training, tasks: dict[str, Task], where: str) -> None:
    """Only two texts can change places."""
    for name in training.augment.swap if training.augment else ():
        if not tasks[name].is_pair:
            pairs = ", ".join(n for n, task in tasks.items() if task.is_pair) or "none here"
            raise RecipeError(
                f"{where}: training.augment.swap names {name!r}, which reads one text; "
                f"allowed: pair tasks ({pairs}); leave it out"
            )


def check_methods(training: Training, where: str) -> None:
    """Ways to weigh losses and to combine gradients are among the known ones."""
    weights = training.loss_weights
    if isinstance(weights, str) and weights not in LOSS_WEIGHTS:
        raise RecipeError(
            f"{where}: training.loss_weights is {weights!r}; allowed: a number per task, "
            f"{', '.join(LOSS_WEIGHTS)}.{nearest(weights, LOSS_WEIGHTS)}"
        )
    if training.dwa_steps and weights != "dwa":
        raise RecipeError(f"{where}: training.dwa_steps belongs to loss_weights: dwa")
    known = (SUM, *AGGREGATORS)
    if training.gradients not in known:
        raise RecipeError(
            f"{where}: training.gradients is {training.gradients!r}; allowed: {', '.join(known)}."
            f"{nearest(training.gradients, known)}"
        )


def differing_key(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> str:
    """The first dotted key in which two recipes differ, with both values; empty when equal.

    Who is told how a run goes is no difference.
    """
    for key in dict.fromkeys((*one, *other)):
        a, b = one.get(key), other.get(key)
        if f"{prefix}{key}" == TOLD:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            inner = differing_key(a, b, f"{prefix}{key}.")
            if inner:
                return inner
        elif a != b:
            return f"{prefix}{key}: {a!r} there, {b!r} here"
    return ""
