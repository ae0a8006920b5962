"""The properties that every plan must have, over the catalog, written and random plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
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
    hidden_states_start_as_those_of_the_encoder,
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
# Of the families that compute something else than BERT, all plans are slow tests.
FEW = ("shared", "separate", "hybrid:2", "layers:FSIF", "lora:8", "pals:both-different", "tree")
FEW += ("one layer for all", "criss-cross", "one of each kind", "frozen layers, own tops")


def cases() -> Iterator[Any]:
    for family, plan in product(("bert", "modernbert", "electra"), PLANS):
        is_fast = family == "bert" or plan.name in FEW
        marks = () if is_fast else (pytest.mark.slow,)
        yield pytest.param(family, plan, id=f"{family}-{plan.name}", marks=marks)


Property = Callable[[SharingPlan, str], None]
over_families = pytest.mark.parametrize(("family", "plan"), list(cases()))
over_properties = pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)


@over_families
@over_properties
def test_property(holds: Property, family: str, plan: SharingPlan) -> None:
    holds(plan, family)


@over_families
def test_bundle(family: str, plan: SharingPlan, tmp_path: Path) -> None:
    a_bundle_answers_the_same_from_disk(plan, family, tmp_path / "model")


@pytest.fixture(scope="module")
def states(encoder_folder: Any) -> Callable[[str], dict[str, list[Tensor]]]:
    """What transformers' model of a family gives for the segments of every task."""
    from transformers import AutoModel

    @cache
    def states_of(family: str) -> dict[str, list[Tensor]]:
        model = AutoModel.from_pretrained(encoder_folder(family)).eval()
        network = build_network("shared", shape=tiny_shape(family), reading=READING)
        found: dict[str, list[Tensor]] = {task: [] for task in NAMES}
        with torch.inference_mode():
            for segment in mixed_segments(network):
                given = {"input_ids": torch.tensor(segment.ids).long()[None]}
                if network.layout.encoder.types:
                    given["token_type_ids"] = torch.tensor(segment.types).long()[None]
                found[segment.tasks[0]].append(model(**given).last_hidden_state[0])
        return found

    return states_of


@over_families
def test_hidden_states_at_the_start(
    family: str,
    plan: SharingPlan,
    encoder_folder: Any,
    states: Callable[[str], dict[str, list[Tensor]]],
) -> None:
    pool: Any = "pooler" if family == "bert" else "mean"  # some families have none
    reading = replace(reading_for(plan), pool=pool)
    network = build_network(plan, encoder_folder(family), reading=reading)
    if has_a_copy_per_layer(network):
        hidden_states_start_as_those_of_the_encoder(network, states(family))


def test_most_plans_have_a_copy_per_layer() -> None:
    without = [
        p.name for p in PLANS if not has_a_copy_per_layer(build_network(p, reading=reading_for(p)))
    ]
    assert without == ["one layer for all", "one layer per task", "criss-cross"]


# ------------------------------------------------------------------ random plans


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "modernbert", "electra"])
@over_properties
def test_property_of_random_plans(holds: Property, family: str) -> None:
    few(given(plans)(lambda plan: holds(plan, family)))()


@few
@given(plans)
def test_routes_name_exactly_the_owners(plan: SharingPlan) -> None:
    """The owners with a size, a rate and users are those on some route; none is without a user."""
    layout = lay_out(plan, THREE_TASKS, tiny_shape(), READING)
    passed = {owner for route in layout.routes.values() for owner in route.owners}
    assert passed == set(layout.sizes) == set(layout.rates) == set(layout.users)
    assert all(layout.users.values())
