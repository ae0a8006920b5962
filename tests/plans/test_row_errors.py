"""Rows that make no sense are refused in one line that says what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from building import DEPTH, THREE_TASKS, as_plan, tiny_shape
from mops.errors import PlanError
from mops.plans.layout import lay_out
from mops.plans.shapes import Reading

BOTTLENECK: dict[str, Any] = {
    "name": "new",
    "kind": "bottleneck",
    "sites": ["beside_layer"],
    "per": {"down": ["task"], "up": ["task"]},
}
VECTOR: dict[str, Any] = {
    "name": "bias",
    "kind": "task_embedding",
    "sites": ["in_attention"],
    "per": {"vector": ["task"]},
}
GATED: dict[str, Any] = {"per": {"down": [], "up": [], "gate": []}, "scale": 0.5}
OWN: dict[str, Any] = {"copies": [{"part": "*", "per": ["layer", "task"]}]}


def added(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"additions": list(rows) or [{**BOTTLENECK, **changes}]}


def pulled(**changes: Any) -> dict[str, Any]:
    return OWN | {"pull": [{"owner": "attention*", "strength": 0.1, **changes}]}


def refusal(rows: dict[str, Any]) -> str:
    with pytest.raises(PlanError) as caught:
        lay_out(as_plan({"name": "x", **rows}), THREE_TASKS, tiny_shape(), Reading())
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("rows", "found", "allowed"),
    [
        (added(scale=float("nan")), "scale", "a finite number"),
        (pulled(strength=float("inf")), "strength", "a finite number"),
        ({"rates": [{"owner": "*", "factor": float("nan")}]}, "rate", "a finite number"),
        (added(kind="adapter"), "'adapter'", "pal, task_embedding, lora, bottleneck"),
        (
            added(sites=["in_attention"]),
            "found in_attention",
            "after_attention, after_feedforward, beside_layer, on_top",
        ),
        (added(sites=["on_top", "below"]), "found below", "a bottleneck sits at"),
        (added(sites=[]), "found None", "a bottleneck sits at"),
        (added(per={"down": []}), "names down", "the parts down, up (and gate)"),
        (added(per={"down": [], "up": [], "mid": []}), "mid", "the parts down, up"),
        (added(per={}), "names none", "the parts down, up"),
        (added(per={"down": ["row"], "up": []}), "['row']", "layer and task"),
        (added(BOTTLENECK, BOTTLENECK), "new, new", "different names"),
        (added(name="attention_2"), "addition 'attention_2'", "embeddings, attention"),
        (added(name="late_one"), "addition 'late_one'", "head, late"),
        (added(name="New"), "addition 'New'", "small letters"),
        (added(name="a/b"), "addition 'a/b'", "small letters"),
        (added(name=""), "addition ''", "small letters"),
        (added(size=-1), "addition 'new'", "size and bound are 0 or more"),
        (added(depth=0), "addition 'new'", "depth 1 or more"),
        (added(scale=0), "addition 'new'", "a scale of 0 would never learn"),
        (added(bound=-1.0), "addition 'new'", "size and bound are 0 or more"),
        (added(bound=1.0), "addition 'new'", "needs `per: {gate: ...}`"),
        (added(bound=0.5, **GATED), "addition 'new'", "a scale below it"),
        (added({**VECTOR, "size": 3}), "addition 'bias'", "one site, no size"),
        (
            added({**VECTOR, "sites": ["in_attention", "in_feedforward"]}),
            "addition 'bias'",
            "one site, no size",
        ),
        (added(layers=[0, DEPTH]), f"[0, {DEPTH}]", f"0 to {DEPTH - 1}"),
        (added(layers=[2, 1]), "[2, 1]", "the lower first"),
        (added(sites=["on_top"], layers=[0, 1]), "`layers`", "sites within layers"),
        (added(depth=2), "`depth`", "places on_top"),
        (added(groups=[["sentiment", "sts"]]), "'sts'", "sentiment, paraphrase, similarity"),
        (added(groups=[["sentimant"]]), "'sentimant'", "Did you mean 'sentiment'?"),
        (added(groups=[["sentiment"], ["sentiment"]]), "two groups", "one row"),
        (added(groups=[["sentiment"]], per={"down": [], "up": []}), "groups", "`per` names task"),
        (pulled(strength=0), "found 0", "above 0"),
        (pulled(strength=-1), "found -1", "above 0"),
        (pulled(towards="zero"), "found 'zero'", "copies, start"),
        (pulled(owner="atention*"), "the pull for 'atention*'", "owners are called embeddings/"),
        (
            added() | {"rates": [{"owner": "old_*", "factor": 2}, {"owner": "*", "factor": 1}]},
            "the rate for 'old_*'",
            "owners are called embeddings",
        ),
    ],
)
def test_refused(rows: dict[str, Any], found: str, allowed: str) -> None:
    message = refusal(rows)
    assert "plan 'x'" in message
    assert found in message and allowed in message, message


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"additions": [{**BOTTLENECK, "site": "on_top"}]}, "Did you mean 'sites'?"),
        ({"additions": [{k: v for k, v in BOTTLENECK.items() if k != "kind"}]}, "kind"),
        ({"feeds": [{"source": "sentiment"}]}, "target"),
        (pulled(toward="copies"), "Did you mean 'towards'?"),
        ({"pulls": []}, "Did you mean 'pull'?"),
    ],
)
def test_unknown_and_missing_keys(rows: dict[str, Any], words: str) -> None:
    assert words in refusal(rows)


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ("pals:parallell", "Did you mean 'parallel'?"),
        ("pals", "one of top, parallel, parallel-weighted, both-same, both-different"),
        ("lora", "a whole number of 1 or more, as lora:3"),
        ("lora:0", "a whole number of 1 or more"),
        ("adapters:many", "a whole number of 1 or more"),
        ("embert:3", "takes nothing after a colon"),
        ("bitfit:3", "takes nothing after a colon"),
    ],
)
def test_short_forms_that_say_too_little_or_too_much(short: str, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        as_plan(short)
    assert words in str(caught.value) and "\n" not in str(caught.value)
