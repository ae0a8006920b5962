"""From what a user names (a recipe file, a folder of data, single keys) to one recipe."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.known_datasets import recognise
from mops.errors import RecipeError, UsageError, nearest
from mops.plans.parser import is_plan_file, read_plan
from mops.yaml_io import read_yaml

SAMPLE = "sample"  # the embedded data
SAMPLE_FOLDER = Path(__file__).parent / "sample"
SAMPLE_TASKS: dict[str, dict[str, Any]] = {
    "sentiment": {
        "type": "classification",
        "text": "sentence",
        "label": "sentiment",
        "labels": [0, 1, 2, 3, 4],
    },
    "paraphrase": {
        "type": "pair_classification",
        "text": ["sentence1", "sentence2"],
        "label": "is_duplicate",
        "labels": [0, 1],
    },
    "similarity": {
        "type": "similarity",
        "text": ["sentence1", "sentence2"],
        "label": "similarity",
        "range": [0, 5],
    },
}


def compose_recipe(
    *,
    config: str | Path | None = None,
    data: str | Path | None = None,
    encoder: str | None = None,
    plan: str | Mapping[str, Any] | None = None,
    tasks: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | None = None,
    set: Mapping[str, Any] | None = None,
) -> Recipe:
    """A recipe from a file, a folder, or both; later words win over earlier ones."""
    found = read_base(config, data)
    choices = {
        "encoder": encoder,
        "plan": plan,
        "training.seed": seed,
        "training.device": device,
    }
    given = {key: value for key, value in choices.items() if value is not None} | dict(set or {})
    for key, value in given.items():
        set_key(found, key, value)
    found = relative_to(found, Path.cwd())
    entries = found.get("tasks") or {}
    if isinstance(entries, dict):
        found["tasks"] = choose_tasks(entries, tasks)
        forget_tasks(found, [name for name in entries if name not in found["tasks"]])
    found["encoder"] = absolute_folder(found.get("encoder"))
    if is_plan_file(found.get("plan")):  # its rows go into the recipe, which then stands alone
        found["plan"] = read_plan(found["plan"]).to_data()
    found = {key: value for key, value in found.items() if value is not None}
    return to_recipe(found, where=str(config or "recipe"))


def read_base(config: str | Path | None, data: str | Path | None) -> dict[str, Any]:
    """The recipe file, the recognised folder, or the rest of one with the tasks of the other."""
    found: dict[str, Any] = {}
    if config is not None:
        found = relative_to(read_yaml(Path(config)), Path(config).resolve().parent)
    if data is not None:
        found["tasks"] = tasks_in(str(data))
    if not found:
        raise RecipeError(
            "no data is named; give --data DIR (a CS224N or GLUE folder, or 'sample' for the "
            "embedded data) or --config FILE (`mops init DIR` writes one for your own files)"
        )
    return found


def tasks_in(data: str) -> dict[str, Any]:
    if data == SAMPLE:  # a folder of that name is ./sample
        return sample_tasks()
    found = recognise(data)
    if not found:
        raise RecipeError(
            f"{data} is not a folder of the CS224N or GLUE layout; "
            f"`mops init {data}` writes a recipe for your own files, then use --config"
        )
    return found


def sample_tasks() -> dict[str, Any]:
    """The three embedded tasks."""
    found = copy.deepcopy(SAMPLE_TASKS)
    for name, entry in found.items():
        for split in ("train", "validation", "test"):
            entry[split] = str(SAMPLE_FOLDER / f"{name}-{split}.csv")
    return found


def choose_tasks(entries: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The named tasks; without names all but those that join only when named."""
    for name in names or ():
        if name not in entries:
            raise RecipeError(
                f"no task {name!r}; there are {', '.join(entries)}.{nearest(name, entries)}"
            )
    chosen = names or [n for n, e in entries.items() if not is_optional(e)] or list(entries)
    return {name: without_mark(entries[name]) for name in chosen}


def forget_tasks(found: dict[str, Any], names: list[str]) -> None:
    """Settings per task that speak of tasks that were not chosen."""
    training: Any = found.get("training")
    if not isinstance(training, dict):
        return
    for key in ("loss_weights", "per_task_batch_size", "head", "task_steps", "train_tasks"):
        forget_in(training, key, names)
    forget_in(training.get("augment"), "swap", names)
    stages = training.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        forget_in(stage, "tasks", names)


def forget_in(place: Any, key: str, names: list[str]) -> None:
    """Leave names out of a mapping by task or a list of tasks."""
    values = place.get(key) if isinstance(place, dict) else None
    if isinstance(values, dict):
        place[key] = {name: value for name, value in values.items() if name not in names}
    if isinstance(values, list):
        place[key] = [name for name in values if name not in names]
        if values and not place[key] and key != "swap":  # an empty list would mean all tasks
            raise RecipeError(
                f"`{key}` of training names only {', '.join(map(str, values))}, which --tasks "
                "leaves out; choose one of them too, or set it anew"
            )


def is_optional(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("optional"))


def without_mark(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {key: value for key, value in entry.items() if key != "optional"}


def absolute_folder(encoder: Any) -> Any:
    """A folder is named from the root, so that a recipe means the same everywhere."""
    is_folder = isinstance(encoder, str) and Path(encoder).is_dir()
    return str(Path(encoder).resolve()) if is_folder else encoder


def set_key(data: dict[str, Any], dotted: str, value: Any) -> None:
    """`training.max_steps` = 100 inside nested mappings."""
    *path, last = dotted.split(".")
    for step in path:
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
        if not isinstance(data, dict):
            raise UsageError(f"--set {dotted}: {step!r} is not a mapping")
    data[last] = value


def relative_to(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same recipe with its files named from the root: relative ones lie beside the recipe."""
    tasks = data.get("tasks")
    for entry in tasks.values() if isinstance(tasks, dict) else ():
        for split in ("train", "validation", "test"):
            file = entry.get(split) if isinstance(entry, dict) else None
            if isinstance(file, str) and not file.startswith("hub:"):
                entry[split] = str((folder / file).resolve())
    if isinstance(data.get("encoder"), str) and (folder / data["encoder"]).is_dir():
        data["encoder"] = str((folder / data["encoder"]).resolve())
    if is_plan_file(data.get("plan")):
        data["plan"] = str((folder / data["plan"]).resolve())
    return data
