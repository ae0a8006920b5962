"""Composes one recipe from what a user names: a recipe file, a folder of data, single keys."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mops.config.recipe import BY_TASK, Recipe, to_recipe
from mops.data.folders import FILE_SETS, recognise
from mops.data.frames import FOLDER, Frame, frame_tasks, is_name
from mops.errors import RecipeError, UsageError, nearest
from mops.plans.catalog import is_plan_file, read_plan
from mops.yaml_io import read_own_yaml, read_yaml

SAMPLE = "sample"  # the embedded data
SPLITS = ("train", "validation", "test")
RECIPES = Path(__file__).parents[1] / "config" / "recipes.yaml"


def compose_recipe(
    *,
    recipe: str | None = None,
    config: str | Path | None = None,
    data: str | Path | Frame | None = None,
    data_folder: str | Path = FOLDER,
    encoder: str | None = None,
    plan: str | Mapping[str, Any] | None = None,
    tasks: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | None = None,
    set: Mapping[str, Any] | None = None,
    more_train: Sequence[tuple[str, str, float]] = (),
) -> Recipe:
    """A recipe from a file, a folder or tables in memory; later arguments override earlier ones.

    Tables (DataFrames, lists of dicts) are written once into `data_folder`, and their columns
    decide what the tasks are (docs/python.md). `recipe` names settings for training that come with
    mops: fast, good, best; `more_train` adds training files: (task, file, weight).
    """
    composed = read_base(config, data, data_folder)
    if recipe is not None:
        composed["training"] = named_training(recipe) | mapping(composed.get("training"))
    options = {"encoder": encoder, "plan": plan, "training.seed": seed, "training.device": device}
    given = {key: value for key, value in options.items() if value is not None} | dict(set or {})
    for key, value in given.items():
        set_key(composed, key, value)
    for task, file, weight in more_train:
        add_file(composed, task, file, weight)
    relative_to(composed, Path.cwd())
    entries = composed.get("tasks") or {}
    if isinstance(entries, dict):
        composed["tasks"] = choose_tasks(entries, tasks)
        left_out = [name for name in entries if name not in composed["tasks"]]
        forget_tasks(mapping(composed.get("training")), left_out)
    if is_plan_file(composed.get("plan")):  # its rows go into the recipe, which then is complete
        composed["plan"] = read_plan(composed["plan"]).to_data()
    composed = {key: value for key, value in composed.items() if value is not None}
    return to_recipe(composed, where=str(config or "recipe"))


def given_recipe(given: Recipe | str | Path) -> Recipe:
    """A recipe, or the one in a file."""
    if isinstance(given, Recipe):
        return given
    if is_name(given):
        return compose_recipe(config=given)
    raise RecipeError(
        f"a recipe is needed, found a {type(given).__name__}; allowed: a Recipe or the name of its "
        "file; mops.recipe(data=...) makes one of tables, files and folders"
    )


def add_file(recipe: Mapping[str, Any], task: str, file: str, weight: float) -> None:
    """One more training file of a task."""
    entries = mapping(recipe.get("tasks"))
    if task not in entries:
        raise RecipeError(
            f"no task {task!r} for {file}; there are {', '.join(entries)}.{nearest(task, entries)}"
        )
    own = entries[task].get("train")
    files = own if isinstance(own, dict) else {own: 1.0} if own else {}
    entries[task]["train"] = files | {file: weight}


def named_training(name: str) -> dict[str, Any]:
    """The settings of a recipe that comes with mops."""
    recipes = read_own_yaml(RECIPES)
    if name not in recipes:
        known = ", ".join(recipes)
        raise RecipeError(f"no recipe {name!r}; there are {known}.{nearest(name, recipes)}")
    return dict(recipes[name]["training"])


def read_base(
    config: str | Path | None, data: str | Path | Frame | None, folder: str | Path
) -> dict[str, Any]:
    """The recipe file, the tasks of a folder or of tables, or the file with these tasks."""
    recipe: dict[str, Any] = {}
    if config is not None:
        recipe = relative_to(read_yaml(Path(config)), Path(config).resolve().parent)
    if data is not None:
        recipe["tasks"] = tasks_in(str(data)) if is_name(data) else frame_tasks(data, folder)
    if not recipe:
        raise RecipeError(
            "no data is named; give `data` (a CS224N or GLUE folder, a data file, or 'sample' for "
            "the embedded data) or `config`, a recipe (`mops init DIR` writes one for your files)"
        )
    return recipe


def tasks_in(data: str) -> dict[str, Any]:
    """The tasks of a known folder, of a data file, or the three embedded ones, with the columns of
    CS224N.
    """
    if data == SAMPLE:  # a folder of that name is ./sample
        folder, tasks = Path(__file__).parent / "sample", {}
        for (known,) in (FILE_SETS["ids-sst"], FILE_SETS["quora"], FILE_SETS["sts"]):
            files = {split: str(folder / f"{known.task}-{split}.csv") for split in SPLITS}
            tasks[known.task] = known.entry(files)
        return tasks
    if data.endswith((".yaml", ".yml")):
        raise RecipeError(f"{data} is no data; give a recipe as `config`")
    if Path(data).is_file():
        return frame_tasks({"train": data})
    if tasks := recognise(data):
        return tasks
    raise RecipeError(
        f"{data} is not a folder of the CS224N or GLUE layout; "
        f"`mops init {data}` writes a recipe for your own files, to be used as config"
    )


def choose_tasks(entries: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The named tasks; without names all but those that join only when named."""
    for name in names or ():
        if name not in entries:
            raise RecipeError(
                f"no task {name!r}; there are {', '.join(entries)}.{nearest(name, entries)}"
            )
    chosen = names or [n for n, e in entries.items() if not is_optional(e)] or list(entries)
    for name in chosen:
        mapping(entries[name]).pop("optional", None)
    return {name: entries[name] for name in chosen}


def is_optional(entry: Any) -> bool:
    return bool(mapping(entry).get("optional"))


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one: the recipe is validated later."""
    return value if isinstance(value, dict) else {}


def forget_tasks(training: dict[str, Any], names: list[str]) -> None:
    """Remove tasks that were not chosen from the settings by task and the lists of tasks."""
    stages = training.get("stages")
    places = [(training, key) for key in (*BY_TASK, "head")]
    places += [(mapping(training.get("augment")), "swap")]
    places += [(mapping(s), "tasks") for s in (stages if isinstance(stages, list) else ())]
    for place, key in places:
        values = place.get(key)
        if isinstance(values, dict):
            place[key] = {name: value for name, value in values.items() if name not in names}
        if isinstance(values, list):
            place[key] = [name for name in values if name not in names]
            if values and not place[key] and key != "swap":  # an empty list would mean all tasks
                raise RecipeError(
                    f"`{key}` of training names only {', '.join(map(str, values))}, which are not "
                    "among the chosen tasks; choose one of them too, or change the setting"
                )


def set_key(data: dict[str, Any], dotted: str, value: Any) -> None:
    """`training.max_steps` = 100 inside nested mappings."""
    *path, last = dotted.split(".")
    for step in path:
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
        if not isinstance(data, dict):
            raise UsageError(f"{dotted}: {step!r} is not a mapping")
    data[last] = value


def change_files(recipe: Mapping[str, Any], change: Callable[[str], str]) -> None:
    """Give the local files of all tasks other paths."""

    def changed(file: str) -> str:
        return file if file.startswith("hub:") else change(file)

    for entry in map(mapping, mapping(recipe.get("tasks")).values()):
        for split in SPLITS:
            if isinstance(file := entry.get(split), str):
                entry[split] = changed(file)
            elif isinstance(file, dict):  # several training files with weights
                entry[split] = {changed(str(name)): weight for name, weight in file.items()}


def relative_to(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The recipe with absolute paths: files, encoder and plan are looked up in `folder`."""
    change_files(data, lambda file: str((folder / file).resolve()))
    training = mapping(data.get("training"))
    if isinstance(teachers := training.get("teachers"), list | tuple):
        training["teachers"] = [
            str((folder / name).resolve()) if isinstance(name, str) else name for name in teachers
        ]
    for key in ("encoder", "base"):
        if isinstance(data.get(key), str) and (folder / data[key]).is_dir():
            data[key] = str((folder / data[key]).resolve())
    if is_plan_file(data.get("plan")):
        data["plan"] = str((folder / data["plan"]).resolve())
    return data
