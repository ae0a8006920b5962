"""Short forms: what a person types for a plan. The table is filled by `plans.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mops.errors import PlanError
from mops.sharing import SharingPlan

Build = Callable[[str], SharingPlan]  # from what stands after the colon
Examples = Callable[[int, tuple[str, ...]], tuple[str, ...]]  # for a depth and task names


@dataclass(frozen=True, kw_only=True)
class ShortForm:
    """One line of the table of plans."""

    form: str
    about: str
    source: str
    build: Build
    examples: Examples


SHORT_FORMS: dict[str, ShortForm] = {}


def short_form(
    form: str, *, about: str, source: str, examples: Examples | None = None
) -> Callable[[Build], Build]:
    """Enter a plan into the table, under the word before the colon."""

    def enter(build: Build) -> Build:
        SHORT_FORMS[re.split(r"[:\[]", form)[0]] = ShortForm(
            form=form,
            about=about,
            source=source,
            build=build,
            examples=examples or always(form),
        )
        return build

    return enter


def always(*texts: str) -> Examples:
    return lambda depth, tasks: texts


# ------------------------------------------------------------------ what stands after the colon


def whole_number(form: str, argument: str, *, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", argument) or int(argument) < least:
        at_least = f" of {least} or more" if least else ""
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stands a whole number{at_least}, "
            f"as {form}:3"
        )
    return int(argument)


def above_zero(form: str, argument: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]+)?", argument) or not float(argument) > 0:
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stands a number above 0, as {form}:0.01"
        )
    return float(argument)


def letters_of(form: str, argument: str, allowed: str) -> str:
    if not argument or set(argument) - set(allowed):
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stand the letters "
            f"{', '.join(allowed)} only, one per layer, as {form}:{allowed * 2}"
        )
    return argument
