"""The properties that every plan must have, over the catalog, written and random plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from properties import (
    PROPERTIES,
    READING,
    a_bundle_answers_the_same_from_disk,
    has_a_copy_per_layer,
    hidden_states_start_as_those_of_bert,
    reading_for,
)
from random_plans import few, plans
from torch import Tensor
from written_plans import WRITTEN

from building import DEPTH, NAMES, THREE_TASKS, as_plan, build_network, mixed_segments, tiny_shape
from mops.plans.catalog import every_plan
from mops.plans.layout import lay_out
from mops.plans.rows import SharingPlan

TYPED = (
    *(f"hybrid:{k}" for k in range(DEPTH + 1)),
    "layers:FSIF",
    "layers:ISFI",
    "layers:IFFS",
    "late:S",
    "late:IIII",
    "late:ISS/paraphrase+similarity",
    "late:SSS/sentiment+similarity",
    "late:SI/sentiment+paraphrase+similarity",
)
PLAIN = [*every_plan(DEPTH, NAMES), *map(as_plan, TYPED), *map(as_plan, WRITTEN)]
FROZEN = ("shared", "separate", "hybrid:2", "layers:FSIF", "late:ISS/paraphrase+similarity")
PLANS = list(
    {p.name: p for p in [*PLAIN, *(as_plan(f"frozen+{text}") for text in FROZEN)]}.values()
)
over_plans = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
over_properties = pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)


@over_plans
@over_properties
def test_property(holds: Callable[[SharingPlan], None], plan: SharingPlan) -> None:
    holds(plan)


@over_plans
def test_bundle(plan: SharingPlan, tmp_path: Path) -> None:
    a_bundle_answers_the_same_from_disk(plan, tmp_path / "model")


@pytest.fixture(scope="module")
def bert_states(encoder_folder: Any) -> dict[str, list[Tensor]]:
    """What transformers' BERT gives for the segments of every task."""
    from transformers import BertModel

    model = BertModel.from_pretrained(encoder_folder("bert")).eval()
    network = build_network("shared", reading=READING)
    found: dict[str, list[Tensor]] = {task: [] for task in NAMES}
    with torch.inference_mode():
        for segment in mixed_segments(network):
            ids, types = (torch.tensor(x).long()[None] for x in (segment.ids, segment.types))
            hidden = model(input_ids=ids, token_type_ids=types).last_hidden_state
            found[segment.tasks[0]].append(hidden[0])
    return found


@over_plans
def test_hidden_states_at_the_start(
    plan: SharingPlan, encoder_folder: Any, bert_states: dict[str, list[Tensor]]
) -> None:
    network = build_network(plan, encoder_folder("bert"), reading=reading_for(plan))
    if has_a_copy_per_layer(network):
        hidden_states_start_as_those_of_bert(network, bert_states)


def test_most_plans_have_a_copy_per_layer() -> None:
    without = [
        p.name for p in PLANS if not has_a_copy_per_layer(build_network(p, reading=reading_for(p)))
    ]
    assert without == ["one layer for all", "one layer per task", "criss-cross"]


# ------------------------------------------------------------------ random plans


@pytest.mark.slow
@over_properties
def test_property_of_random_plans(holds: Callable[[SharingPlan], None]) -> None:
    few(given(plans)(holds))()


@few
@given(plans)
def test_routes_name_exactly_the_owners(plan: SharingPlan) -> None:
    """The owners with a size, a rate and users are those on some route; none is without a user."""
    layout = lay_out(plan, THREE_TASKS, tiny_shape(), READING)
    passed = {owner for route in layout.routes.values() for owner in route.owners}
    assert passed == set(layout.sizes) == set(layout.rates) == set(layout.users)
    assert all(layout.users.values())
