"""Feeds as rows: the edges that a short form makes."""

from __future__ import annotations

from typing import Any

import pytest

from building import THREE_TASKS, as_plan, tiny_shape
from mops.plans.catalog import parse_plan
from mops.plans.layout import lay_out
from mops.plans.shapes import Reading

CROSS = Reading()


def fed(source: str, target: str) -> dict[str, Any]:
    return {"name": "fed", "feeds": [{"source": source, "target": target}]}


def edges(short: str) -> list[tuple[str, str]]:
    return [(feed.source, feed.target) for feed in parse_plan(short).feeds]


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ("progressive:a>b", ["ab"]),
        ("progressive:a>b>c", ["ab", "ac", "bc"]),
        ("progressive:a>b,a>c", ["ab", "ac"]),
        ("progressive:a>b,a>b>c", ["ab", "ac", "bc"]),
        ("progressive", ["**"]),
    ],
)
def test_edges_of_a_chain(short: str, expected: list[str]) -> None:
    assert edges(short) == [(pair[0], pair[1]) for pair in expected]
    assert parse_plan(short).name == short


def test_open_ends_of_a_row() -> None:
    """`*` stands for every task before, or behind, in the order of single texts and pairs."""
    layout = lay_out(as_plan(fed("*", "similarity")), THREE_TASKS, tiny_shape(), CROSS)
    sources = {name: [f.source for f in route.feeds] for name, route in layout.routes.items()}
    assert sources == {
        "sentiment": [],
        "paraphrase": [],
        "similarity": ["sentiment", "paraphrase"],
    }


def test_a_pair_in_one_sequence_may_feed_a_single_text() -> None:
    layout = lay_out(as_plan(fed("paraphrase", "sentiment")), THREE_TASKS, tiny_shape(), CROSS)
    assert layout.head_input("sentiment").fields[1:] == (1,)


@pytest.mark.parametrize(
    ("gradient", "trained"),
    [
        ("stop", set()),
        ("frozen-head", {"pooler"}),
        ("full", {"pooler", "late1", "head/sentiment"}),
        (0.5, {"pooler", "late1", "head/sentiment"}),
    ],
)
def test_what_the_loss_of_a_fed_task_trains(gradient: str | float, trained: set[str]) -> None:
    plan = fed("sentiment", "similarity") | {"late": [{"per": []}]}
    plan["feeds"][0]["gradient"] = gradient
    reading = Reading(pool="pooler")
    route = lay_out(as_plan(plan), THREE_TASKS, tiny_shape(), reading).routes["similarity"]
    assert set(route.upstream) == {"pooler", "late1", "head/sentiment"}
    assert set(route.upstream_trained) == trained
