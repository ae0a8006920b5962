"""Options that several commands share, and the recipe that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.errors import UsageError
from mops.plans.catalog import EXAMPLE

if TYPE_CHECKING:
    from mops.config.recipe import Recipe

Option = Callable[[Any], Any]
PATH = click.Path(path_type=Path)

DATA = click.option(
    "--data", metavar="DIR", help="A CS224N or GLUE folder, or 'sample' for the embedded data."
)
CONFIG = click.option("--config", metavar="FILE", type=PATH, help="A recipe (mops.yaml).")
TASKS = click.option("--tasks", metavar="A,B", help="Only these tasks.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ENCODER = click.option(
    "--encoder", metavar="NAME_OR_DIR", help="'minilm', a folder, or a name on the hub."
)
PLAN = click.option(
    "--plan", metavar="SHORT_OR_FILE", help=f"A sharing plan, for example {EXAMPLE}."
)
SET = click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True,
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


recipe_options = stack(CONFIG, DATA, ENCODER, PLAN, TASKS, SEED, DEVICE, SET)
options_without_plan = stack(CONFIG, DATA, ENCODER, TASKS, SEED, DEVICE, SET)


def read_recipe(
    *,
    config: Path | None,
    data: str | None,
    tasks: str | None,
    settings: tuple[str, ...],
    **given: Any,
) -> Recipe:
    """The recipe that the options describe; without any, `mops.yaml` in the current folder."""
    from mops.data.compose import compose_recipe

    if config is None and data is None and Path("mops.yaml").is_file():
        config = Path("mops.yaml")
    changes = dict(map(parse_setting, settings))
    return compose_recipe(config=config, data=data, tasks=split_names(tasks), set=changes, **given)


def split_names(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",") if name.strip()] if names else None


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


def run_folder(recipe: Recipe, prefix: str = "") -> Path:
    """The default folder of a run: runs/PLAN-SEED."""
    name = re.sub("[^a-zA-Z0-9_-]+", "-", recipe.sharing_plan().name)
    return Path("runs") / f"{prefix}{name}-{recipe.training.seed}"
