"""Options that several commands share, and the recipe that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from ruamel.yaml.error import YAMLError

import mops
from mops.errors import UsageError
from mops.plans.catalog import EXAMPLE
from mops.tables import COUNTS, SIZES, TIMES, Unit
from mops.yaml_io import parse_yaml, read_yaml

Option = Callable[[Any], Any]


def split_names(names: str) -> list[str] | None:
    return [name.strip() for name in names.split(",") if name.strip()] or None


def parse_setting(setting: str) -> tuple[str, Any]:
    """`training.learning_rate=2e-5` -> its key and its value, read as YAML."""
    key, sign, value = setting.partition("=")
    if not sign or not key.strip():
        raise UsageError(f"--set {setting!r}: write KEY=VALUE, for example training.max_steps=500")
    try:
        return key.strip(), parse_yaml(value)
    except YAMLError as cause:
        raise UsageError(f"--set {setting!r}: the value is not valid YAML; quote it") from cause


def parse_values(text: str) -> tuple[str, list[Any]]:
    """`training.learning_rate=1e-5,1e-4` -> the key and the values to compare, read as YAML."""
    key, sign, listed = text.partition("=")
    try:
        values = parse_yaml(f"[{listed}]")
    except YAMLError as cause:
        raise UsageError(f"--values {text!r}: not valid YAML values; quote them") from cause
    if not sign or not key.strip() or not isinstance(values, list) or not values:
        raise UsageError(
            f"--values {text!r}: write KEY=A,B, for example training.learning_rate=1e-5,1e-4"
        )
    return key.strip(), values


def parse_file(given: str) -> tuple[str, str, float]:
    """`sentiment=phrases.csv@0.5` -> the task, the file and its weight (1 without one)."""
    task, sign, rest = given.partition("=")
    if not sign or not task.strip() or not rest.strip():
        raise UsageError(
            f"--more-train {given!r}: write TASK=FILE or TASK=FILE@WEIGHT, for example "
            "sentiment=phrases.csv@0.5"
        )
    file, at, weight = rest.rpartition("@")
    try:
        return task.strip(), file if at else rest, float(weight) if at else 1.0
    except ValueError:  # the file's name has an @
        return task.strip(), rest, 1.0


def amount(unit: Unit) -> Callable[..., float | None]:
    """The callback of an option that takes a number with a unit."""

    def convert(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
        return None if text is None else unit.read(text, option.opts[0])

    return convert


NUMBER, TIME, SIZE = amount(COUNTS), amount(TIMES), amount(SIZES)
PATH, COUNT = click.Path(path_type=Path), click.IntRange(min=1)
DATA = click.option(
    "--data",
    metavar="DIR",
    help="A CS224N or GLUE folder, a data file, or 'sample' for the embedded data.",
)
CONFIG = click.option("--config", metavar="FILE", type=PATH, help="A recipe (mops.yaml).")
TASKS = click.option("--tasks", metavar="A,B", type=split_names, help="Only these tasks.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ENCODER = click.option(
    "--encoder", metavar="NAME_OR_DIR", help="'minilm', a folder, or NAME[@REVISION] on the hub."
)
PLAN = click.option(
    "--plan", metavar="SHORT_OR_FILE", help=f"A sharing plan, for example {EXAMPLE}."
)
SET = click.option(
    "--set", "settings", metavar="KEY=VALUE", type=parse_setting, multiple=True,
    help="Set one key of the recipe, for example training.max_steps=500. Repeatable.",
)  # fmt: skip
RECIPE = click.option(
    "--recipe", metavar="NAME",
    help="Settings that come with mops: fast, good, best or plain (the default of every key). "
    "[default: good, unless --config has a `training` of its own]",
)  # fmt: skip
MORE_TRAIN = click.option(
    "--more-train", metavar="TASK=FILE", type=parse_file, multiple=True,
    help="One more training file of a task; TASK=FILE@0.5 takes half of its rows in each pass. "
    "Repeatable.",
)  # fmt: skip
FOLDS = click.option(
    "--folds", type=click.IntRange(min=2), metavar="N",
    help="N-fold cross-validation, for few rows: N trainings, each judging the rows that it did "
    "not see.",
)  # fmt: skip
SEED = click.option("--seed", type=int, help="Random seed.")
DEVICE = click.option(
    "--device", metavar="DEVICE", help="Device for tensors: auto, cpu, cuda, cuda:1, mps."
)
BACKEND = click.option(
    "--backend", type=click.Choice(["torch", "onnx"]),
    help="What computes: torch, or ONNX Runtime, for which a bundle is exported first. "
    "[default: onnx for a folder of `mops export --to onnx`, else torch]",
)  # fmt: skip
ADDRESS = click.option(
    "--address", metavar="HOST:PORT", help="A Ray cluster; default: this machine."
)
STRICT = click.option("--strict", is_flag=True, help="Leaks between splits or tasks are an error.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the complete recipe and exit.")


def stack(*options: Option) -> Option:
    """One decorator for several options, in the order of the help."""
    return lambda function: reduce(lambda f, option: option(f), reversed(options), function)


source_options = stack(CONFIG, DATA, ENCODER, TASKS, SET)
recipe_options = stack(CONFIG, DATA, ENCODER, PLAN, TASKS, SEED, DEVICE, SET)
training_options = stack(recipe_options, RECIPE, MORE_TRAIN, FOLDS)


def read_recipe(
    *,
    config: Path | None,
    data: str | None,
    settings: tuple[tuple[str, Any], ...] = (),
    max_steps: int | None = None,
    folds: int | None = None,
    default: str | None = None,
    **given: Any,
) -> mops.Recipe:
    """The recipe that the options describe; without any, `mops.yaml` in the current folder.

    `default` names the settings of a recipe that has none of its own.
    """
    if config is None and data is None and Path("mops.yaml").is_file():
        config = Path("mops.yaml")
    if default and not given.get("recipe"):
        has_own = config is not None and "training" in read_yaml(config)
        given["recipe"] = None if has_own else default
    steps = {} if max_steps is None else {"training.max_steps": max_steps}
    own = {} if folds is None else {"training.folds": folds}
    return mops.recipe(config=config, data=data, set=dict(settings) | steps | own, **given)


def load_predictor(model: Path, device: str | None, backend: str | None) -> mops.Predictor:
    """The model of a folder, ready to predict on a device."""
    return mops.load(*find_model(model, device, backend))


def find_model(model: Path, device: str | None, backend: str | None) -> tuple[Path, str]:
    """The folder and the device with which a model is computed as these options say."""
    from mops.predict.bundle import GRAPH, load_bundle
    from mops.training.machine import choose_device

    is_exported = (model / GRAPH).is_file()
    if is_exported and backend == "torch":
        raise UsageError(
            f"{model} is an exported model without weights for torch; leave out --backend, or "
            "pass the bundle that was exported"
        )
    if is_exported or backend == "onnx":
        device = "cpu" if device in (None, "auto") else device
    if backend == "onnx" and not is_exported:
        from mops.predict.onnx import require_onnx

        require_onnx()
        from mops.export.onnx import export_bundle

        scratch = click.get_current_context().with_resource(TemporaryDirectory())
        (model,) = export_bundle(load_bundle(model), Path(scratch, "model"))
    return model, choose_device(device or "auto")


def run_folder(recipe: mops.Recipe, prefix: str = "") -> Path:
    """The default folder of a run: runs/PLAN-SEED."""
    name = re.sub("[^a-zA-Z0-9_-]+", "-", recipe.sharing_plan().name)
    return Path("runs") / f"{prefix}{name}-{recipe.training.seed}"
