"""A row of a plan that would do nothing is refused: the user believes that it does something."""

from __future__ import annotations

from typing import Any

import pytest

from building import NAMES, THREE_TASKS, tiny_shape
from mops.errors import PlanError
from mops.plans.layout import lay_out
from mops.plans.parser import parse_plan
from mops.plans.rows import Copies, Late, Rate, SharingPlan
from mops.plans.shapes import Reading

EVERYTHING = Rate(owner="*", factor=1.0)


def test_a_rate_that_concerns_no_owner() -> None:
    plan = SharingPlan(name="typo", rates=(Rate(owner="layer0*", factor=0.0), EVERYTHING))
    with pytest.raises(PlanError, match=r"'layer0\*' concerns no owner; owners are called emb"):
        lay_out(plan, THREE_TASKS, tiny_shape(), Reading())


def test_layers_that_fall() -> None:
    plan = SharingPlan(name="falls", copies=(Copies(part="*", per=("task",), layers=(2, 1)),))
    with pytest.raises(PlanError, match="the lower first"):
        lay_out(plan, THREE_TASKS, tiny_shape(), Reading())


@pytest.mark.parametrize(
    "rows",
    [
        {"copies": (Copies(part="*", per=(), groups=(NAMES[:2],)),)},
        {"late": (Late(per=("layer",), groups=(NAMES[:2],)),)},
    ],
)
def test_groups_where_nothing_is_per_task(rows: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="only where `per` names task"):
        SharingPlan(name="idle", **rows)


def test_groups_where_no_late_layer_is_shared() -> None:
    with pytest.raises(PlanError, match="no layer is shared"):
        parse_plan("late:II/paraphrase+similarity")
