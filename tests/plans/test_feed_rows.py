"""Feeds as rows: which edges a short form makes, and which feeds are refused."""

from __future__ import annotations

from typing import Any

import pytest

from building import THREE_TASKS, as_plan, tiny_shape
from mops.errors import PlanError
from mops.plans.layout import lay_out
from mops.plans.parser import parse_plan
from mops.plans.shapes import HeadShape, Reading

CROSS, BI = Reading(), Reading(pair="bi")


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


@pytest.mark.parametrize("short", ["progressive:a", "progressive:a>a", "progressive:a>b>a"])
def test_a_chain_has_different_tasks(short: str) -> None:
    with pytest.raises(PlanError, match="chains of different tasks, as progressive:a>b>c"):
        parse_plan(short)


def test_open_ends_of_a_row() -> None:
    """`*` stands for every task before, or behind, in the order of single texts and pairs."""
    layout = lay_out(as_plan(fed(("*", "similarity"))), THREE_TASKS, tiny_shape(), CROSS)
    heard = {name: [f.source for f in route.feeds] for name, route in layout.routes.items()}
    assert heard == {
        "sentiment": [],
        "paraphrase": [],
        "similarity": ["sentiment", "paraphrase"],
    }


# ------------------------------------------------------------------ refused


def fed(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    feeds = [{"source": source, "target": target, **more} for source, target in pairs]
    return {"name": "fed", "feeds": feeds}


OWN = {"part": "*", "per": ["layer", "task"]}
TO_PAIR = ("sentiment", "similarity")
COSINE = Reading(heads={"similarity": HeadShape(kind="cosine")}, pair="bi")
MIXED = [
    {"source": "sentiment", "target": "similarity"},
    {"source": "paraphrase", "target": "similarity", "combine": "attention"},
]


@pytest.mark.parametrize(
    ("plan", "reading", "words"),
    [
        (fed(TO_PAIR) | {"copies": [OWN]}, CROSS, "'sentiment' cannot feed 'similarity': they do"),
        (fed(("paraphrase", "sentiment")), BI, "answers two texts, and the later task has one"),
        (fed(TO_PAIR), COSINE, "give the later task another head"),
        (fed(TO_PAIR, what="hidden"), CROSS, "set training.head to mlp, or feed the logits"),
        (fed(TO_PAIR, TO_PAIR[::-1]), CROSS, "sentiment, similarity go round in a circle"),
        (fed(("sentiment", "sentiment")), CROSS, "sentiment go round in a circle"),
        (fed(("sentimant", "similarity")), CROSS, "Did you mean 'sentiment'?"),
        (fed(("sentiment", "sts")), CROSS, "the tasks are sentiment, paraphrase, similarity"),
        ({"name": "fed", "feeds": MIXED}, CROSS, "in one way, concat or attention"),
        (fed(TO_PAIR, gradient=0), CROSS, "gradient is 0, which teaches nobody: write stop"),
        (fed(TO_PAIR, what="words"), CROSS, "what is 'words'; allowed: logits, hidden"),
        (fed(TO_PAIR, combine="sum"), CROSS, "combine is 'sum'; allowed: concat, attention"),
        (
            fed(TO_PAIR, gradient="half"),
            CROSS,
            "gradient is 'half'; allowed: frozen-head, stop, full, or a factor",
        ),
    ],
)
def test_refused_in_one_line(plan: Any, reading: Reading, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        lay_out(as_plan(plan), THREE_TASKS, tiny_shape(), reading)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_one_task_alone_hears_nobody() -> None:
    with pytest.raises(PlanError, match="no task feeds another; it needs two tasks or more"):
        lay_out(parse_plan("progressive"), THREE_TASKS[:1], tiny_shape(), CROSS)


def test_a_pair_in_one_sequence_may_feed_a_single_text() -> None:
    layout = lay_out(as_plan(fed(("paraphrase", "sentiment"))), THREE_TASKS, tiny_shape(), CROSS)
    assert layout.head_input("sentiment").fed == (1,)
