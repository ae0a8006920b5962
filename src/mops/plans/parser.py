"""Reads a plan: a short form, a YAML file or a mapping becomes a `SharingPlan`."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from mops.errors import PlanError, nearest
from mops.plans.catalog import SHORT_FORMS
from mops.plans.rows import TRUNK_FROZEN, SharingPlan
from mops.yaml_io import read_yaml, to_value


def parse_plan(text: str) -> SharingPlan:
    """The plan of a short form, with or without the prefix `frozen+`."""
    short = text.removeprefix("frozen+")
    family, _, argument = short.partition(":")
    if family not in SHORT_FORMS:
        raise PlanError(
            f"unknown plan {text!r}; known are {', '.join(s.form for s in SHORT_FORMS.values())}, "
            f"each also with the prefix 'frozen+', or a YAML file.{nearest(family, SHORT_FORMS)}"
        )
    entry = SHORT_FORMS[family]
    if not re.fullmatch(entry.pattern, argument):
        raise PlanError(f"plan {text!r}: after the colon comes {entry.allowed}")
    plan = entry.build(argument)
    plan = replace(plan, about=plan.about or entry.about, source=entry.source)
    return plan if short == text else freeze_encoder(plan)


def freeze_encoder(plan: SharingPlan) -> SharingPlan:
    """The same plan with frozen pretrained weights; additions and heads still learn."""
    if plan.pull:
        raise PlanError(f"plan 'frozen+{plan.name}': frozen weights cannot be pulled")
    return replace(
        plan,
        name=f"frozen+{plan.name}",
        about=f"{plan.about}; the encoder frozen",
        rates=(*TRUNK_FROZEN, *plan.rates),
    )


def is_plan_file(given: Any) -> bool:
    return isinstance(given, str) and given.endswith((".yaml", ".yml"))


def read_plan(given: str | dict[str, Any]) -> SharingPlan:
    """The plan of a short form, of a YAML file, or of the mapping that such a file contains."""
    if not isinstance(given, str):
        return to_value(SharingPlan, given, where="plan", error=PlanError)
    if not is_plan_file(given):
        return parse_plan(given)
    data = read_yaml(Path(given), PlanError)
    return to_value(SharingPlan, data, where=f"plan {given}", error=PlanError)


def every_plan(depth: int, tasks: tuple[str, ...]) -> list[SharingPlan]:
    """An example of each short form that fits an encoder of this depth and these tasks."""
    return [parse_plan(text) for s in SHORT_FORMS.values() for text in s.texts(depth, tasks)]
