"""Options that several commands share, and the recipe that they describe."""

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

import mops
from mops.errors import UsageError
from mops.plans.catalog import EXAMPLE

Option = Callable[[Any], Any]


def split_names(names: str) -> list[str] | None:
    return [name.strip() for name in names.split(",") if name.strip()] or None


def parse_setting(setting: str) -> tuple[str, Any]:
    """`training.learning_rate=2e-5` -> its key and its value, read as YAML."""
    from ruamel.yaml.error import YAMLError

    from mops.yaml_io import parse_yaml

    key, sign, value = setting.partition("=")
    if not sign or not key.strip():
        raise UsageError(f"--set {setting!r}: write KEY=VALUE, for example training.max_steps=500")
    try:
        return key.strip(), parse_yaml(value)
    except YAMLError as cause:
        raise UsageError(f"--set {setting!r}: the value is not valid YAML; quote it") from cause


PATH, COUNT = click.Path(path_type=Path), click.IntRange(min=1)
DATA = click.option(
    "--data", metavar="DIR", help="A CS224N or GLUE folder, or 'sample' for the embedded data."
)
CONFIG = click.option("--config", metavar="FILE", type=PATH, help="A recipe (mops.yaml).")
TASKS = click.option("--tasks", metavar="A,B", type=split_names, help="Only these tasks.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ENCODER = click.option(
    "--encoder", metavar="NAME_OR_DIR", help="'minilm', a folder, or a name on the hub."
)
PLAN = click.option(
    "--plan", metavar="SHORT_OR_FILE", help=f"A sharing plan, for example {EXAMPLE}."
)
SET = click.option(
    "--set", "settings", metavar="KEY=VALUE", type=parse_setting, multiple=True,
    help="Set one key of the recipe, for example training.max_steps=500. Repeatable.",
)  # fmt: skip
SEED = click.option("--seed", type=int, help="Random seed.")
DEVICE = click.option(
    "--device", metavar="DEVICE", help="Device for tensors: auto, cpu, cuda, cuda:1, mps."
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the complete recipe and exit.")


def stack(*options: Option) -> Option:
    """One decorator for several options, in the order of the help."""
    return lambda function: reduce(lambda f, option: option(f), reversed(options), function)


source_options = stack(CONFIG, DATA, ENCODER, TASKS, SET)
recipe_options = stack(CONFIG, DATA, ENCODER, PLAN, TASKS, SEED, DEVICE, SET)


def read_recipe(
    *,
    config: Path | None,
    data: str | None,
    settings: tuple[tuple[str, Any], ...] = (),
    max_steps: int | None = None,
    **given: Any,
) -> mops.Recipe:
    """The recipe that the options describe; without any, `mops.yaml` in the current folder."""
    if config is None and data is None and Path("mops.yaml").is_file():
        config = Path("mops.yaml")
    steps = {} if max_steps is None else {"training.max_steps": max_steps}
    return mops.recipe(config=config, data=data, set=dict(settings) | steps, **given)


def run_folder(recipe: mops.Recipe, prefix: str = "") -> Path:
    """The default folder of a run: runs/PLAN-SEED."""
    name = re.sub("[^a-zA-Z0-9_-]+", "-", recipe.sharing_plan().name)
    return Path("runs") / f"{prefix}{name}-{recipe.training.seed}"
