"""Reads a plan: a short form, a YAML file or a mapping becomes a `SharingPlan`."""

from __future__ import annotations

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
    if argument and ":" not in entry.form:
        raise PlanError(f"plan {text!r}: {entry.form!r} takes nothing after a colon")
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
    if isinstance(given, str) and not is_plan_file(given):
        return parse_plan(given)
    data = read_yaml(Path(given), PlanError) if isinstance(given, str) else given
    where = f"plan {given}" if isinstance(given, str) else "plan"
    return to_value(SharingPlan, data, where=where, error=PlanError)


def every_plan(depth: int, tasks: tuple[str, ...]) -> list[SharingPlan]:
    """An example of each short form that fits an encoder of this depth and these tasks."""
    return [parse_plan(text) for s in SHORT_FORMS.values() for text in s.examples(depth, tasks)]
