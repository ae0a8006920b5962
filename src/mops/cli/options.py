"""Options that several commands share, and the recipe that they describe."""

import math
import re
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click
from ruamel.yaml.error import YAMLError

import mops
from mops.errors import UsageError
from mops.plans.catalog import EXAMPLE
from mops.yaml_io import parse_yaml

Option = Callable[[Any], Any]
AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


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


def amount(example: str, units: Mapping[str, float]) -> Callable[..., float | None]:
    """The callback of an option: a number above zero, in the unit whose factor is 1."""

    def convert(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        match = AMOUNT.fullmatch(text)
        unit = match[2].lower() if match else ""
        if match is None or unit not in units or not 0 < float(match[1]) < math.inf:
            allowed = ", ".join(name or "or none" for name in units)
            raise UsageError(
                f"{option.opts[0]} {text!r}: write a number above 0 and its unit ({allowed}), "
                f"for example {example}"
            )
        return float(match[1]) * units[unit]

    return convert


NUMBER = amount("40M", {"k": 1e3, "m": 1e6, "b": 1e9, "": 1.0})
TIME = amount("20ms", {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0})
BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
SIZE = amount("2GB", BYTES)
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
