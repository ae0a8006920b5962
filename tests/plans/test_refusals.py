"""Plans that make no sense are refused in one line that says what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from building import DEPTH, THREE_TASKS, as_plan, tiny_shape
from mops.errors import PlanError
from mops.plans.catalog import parse_plan
from mops.plans.layout import lay_out
from mops.plans.shapes import HeadShape, Reading

CROSS, BI = Reading(), Reading(pair="bi")
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
EXPERTS: dict[str, Any] = {
    "name": "choice",
    "kind": "experts",
    "sites": ["beside_layer"],
    "per": {"router": ["task"], "down": [], "up": []},
}
GATED: dict[str, Any] = {"per": {"down": [], "up": [], "gate": []}, "scale": 0.5}
OWN: dict[str, Any] = {"copies": [{"part": "*", "per": ["layer", "task"]}]}
PAIR = [["sentiment", "similarity"]]


def added(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"additions": list(rows) or [{**BOTTLENECK, **changes}]}


def pulled(**changes: Any) -> dict[str, Any]:
    return OWN | {"pull": [{"owner": "attention*", "strength": 0.1, **changes}]}


def copies(**words: Any) -> dict[str, Any]:
    return {"copies": [{"part": "*", "per": [], **words}]}


def rates(*rows: tuple[str, float]) -> dict[str, Any]:
    return {"rates": [{"owner": owner, "factor": factor} for owner, factor in rows]}


def fed(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"feeds": [{"source": source, "target": target, **more} for source, target in pairs]}


def refusal(plan: Any, reading: Reading = CROSS) -> str:
    with pytest.raises(PlanError) as caught:
        lay_out(as_plan(plan), THREE_TASKS, tiny_shape(), reading)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ("share", ("'share'", "hybrid:K", "Did you mean 'shared'?")),
        ("frozen+hybird:3", ("Did you mean 'hybrid'?",)),
        ("frozen+frozen+shared", ("unknown plan",)),
        ("shared+late:S", ("unknown plan",)),
        ("", ("unknown plan",)),
        ("shared:3", ("after the colon comes nothing",)),
        ("hybrid", ("a whole number, as hybrid:3",)),
        ("hybrid:-1", ("whole number",)),
        (f"hybrid:{DEPTH + 1}", (f"only {DEPTH}", f"from {DEPTH} on is empty")),
        ("layers:FFSSIX", ("F, S, I only",)),
        ("layers:ffssii", ("F, S, I only",)),
        ("layers:SSS", ("3 layers", f"encoder has {DEPTH}")),
        ("late:", ("S, I, N only",)),
        ("late:SFS", ("S, I, N only",)),
        ("late:IN/paraphrase+similarity", ("with a shared layer",)),
        ("late:S/sentimant+similarity", ("'sentimant'", "Did you mean 'sentiment'?")),
        ("late:S/sentiment+similarity,similarity+paraphrase", ("two groups",)),
        ("late:S/sentiment+sentiment", ("two groups",)),
        ("late:II/paraphrase+similarity", ("with a shared layer",)),
        ("progressive:a", ("a chain of tasks or several, as progressive:a>b>c",)),
        ("progressive:sentiment>sentiment", ("form a cycle",)),
        ("progressive:sentiment>similarity>sentiment", ("form a cycle",)),
        ("pals:parallell", ("one of top, parallel",)),
        ("pals", ("one of top, parallel, parallel-gelu, parallel-weighted, both-same",)),
        ("lora", ("a whole number of 1 or more, as lora:8",)),
        ("lora:0", ("a whole number of 1 or more",)),
        ("adapters:many", ("a whole number of 1 or more",)),
        ("low-rank", ("a whole number of 1 or more, as low-rank:100",)),
        ("experts:1", ("a whole number of 2 or more, as experts:4",)),
        ("soft:0.0", ("a number above 0, as soft:0.01",)),
        ("soft:1e999", ("a number above 0",)),
        ("embert:3", ("after the colon comes nothing",)),
        ("frozen+soft:0.1", ("frozen weights cannot be pulled",)),
    ],
)
def test_short_forms(short: str, words: tuple[str, ...]) -> None:
    message = refusal(short)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (added(sites=["in_attention"]), ("found in_attention", "after_attention, after_feedf")),
        (added(sites=["on_top", "below"]), ("found below", "the sites of a bottleneck are")),
        (added(sites=[]), ("found none", "the sites of a bottleneck are")),
        (added(per={"down": []}), ("names down", "down, up (and gate)")),
        (added(per={"down": [], "up": [], "mid": []}), ("mid", "are down, up")),
        (added(per={}), ("names none", "are down, up")),
        (added(BOTTLENECK, BOTTLENECK), ("new, new", "different names")),
        (added(name="attention_2"), ("'attention_2'", "embeddings, attention")),
        (added(name="late_one"), ("'late_one'", "head, late")),
        (added(name="New"), ("addition 'New'", "small letters")),
        (added(name=""), ("addition ''", "small letters")),
        (added(scale=0), ("`scale` is 0", "would never learn")),
        (added(bound=1.0), ("addition 'new'", "needs `per: {gate: ...}`")),
        (added(bound=0.5, **GATED), ("addition 'new'", "a scale below the bound")),
        (added({**VECTOR, "size": 3}), ("addition 'bias'", "one site and no size")),
        (
            added({**VECTOR, "sites": ["in_attention", "in_feedforward"]}),
            ("addition 'bias'", "one site and no size"),
        ),
        (added(experts=1), ("addition 'new': `experts` is 1", "other kinds none")),
        (added(EXPERTS), ("addition 'choice': `experts` is 0", "has 2 or more")),
        (added(layers=[0, DEPTH]), (f"[0, {DEPTH}]", f"0 to {DEPTH - 1}")),
        (added(layers=[2, 1]), ("[2, 1]", "the lower first")),
        (added(sites=["on_top"], layers=[0, 1]), ("`layers` has no effect", "on_top")),
        (added(depth=2), ("`depth` has an effect only", "on_top")),
        (added(groups=[["sentiment", "sts"]]), ("'sts'", "sentiment, paraphrase, similarity")),
        (added(groups=[["sentimant"]]), ("'sentimant'", "Did you mean 'sentiment'?")),
        (added(groups=[["sentiment"], ["sentiment"]]), ("two groups", "one row")),
        (added(groups=PAIR, per={"down": [], "up": []}), ("`groups`", "`per` contains task")),
        (copies(groups=PAIR), ("`groups`", "`per` contains task")),
        ({"late": [{"per": [], "norm": True, "width": 3}]}, ("`norm` has no `width`",)),
        ({"late": [{"per": ["layer"], "groups": PAIR}]}, ("`groups`", "`per` contains task")),
        (copies(layers=[0, DEPTH]), (f"only {DEPTH}",)),
        (copies(part="atention"), ("'atention'", "Did you mean 'attention'?")),
        (pulled(owner="atention*"), ("the pull for 'atention*'", "called embeddings/")),
        (rates(("layer0*", 0), ("*", 1)), ("the rate for 'layer0*' matches no owner",)),
        (rates(("head*", 1)), ("no rate covers 'embeddings'", "Add '*'")),
    ],
)
def test_rows(rows: dict[str, Any], words: tuple[str, ...]) -> None:
    message = refusal({"name": "x", **rows})
    assert "plan 'x'" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("rows", "place", "allowed"),
    [
        (added(scale=float("nan")), "additions.0.scale", "finite number"),
        (pulled(strength=float("inf")), "pull.0.strength", "finite number"),
        (rates(("*", float("nan"))), "rates.0.factor", "finite number"),
        (rates(("*", -1)), "rates.0.factor", "at least 0"),
        (added(kind="adapter"), "additions.0.kind", "'pal', 'task_embedding', 'lora', 'bott"),
        (added(per={"down": ["row"], "up": []}), "additions.0.per.down", "'layer' or 'task'"),
        (copies(per=["row"]), "copies.0.per.0", "'layer' or 'task'; found 'row'"),
        (added(size=-1), "additions.0.size", "at least 0"),
        (added(depth=0), "additions.0.depth", "at least 1"),
        (added(bound=-1.0), "additions.0.bound", "at least 0"),
        (pulled(strength=0), "pull.0.strength", "above 0"),
        (pulled(towards="zero"), "pull.0.towards", "'copies' or 'start'"),
        ({"late": [{"per": [], "activation": "swish"}]}, "late.0.activation", "'relu', 'gelu'"),
        ({"late": [{"per": [], "width": -3}]}, "late.0.width", "at least 0"),
        (fed(("*", "*"), what="words"), "feeds.0.what", "'logits' or 'hidden'; found 'words'"),
        (fed(("*", "*"), combine="sum"), "feeds.0.combine", "'concat' or 'attention'"),
        (fed(("*", "*"), gradient="half"), "feeds.0.gradient", "'frozen-head', 'stop' or 'full'"),
        (added({**BOTTLENECK, "site": "on_top"}), "additions.0.site", "Did you mean 'sites'?"),
        (added({"name": "new"}), "additions.0.kind", "is missing"),
        (fed(("*", "*"), to="x"), "feeds.0.to", "unknown key"),
        (pulled(toward="copies"), "pull.0.toward", "Did you mean 'towards'?"),
        ({"pulls": []}, "pulls", "Did you mean 'pull'?"),
        ({"copys": []}, "copys", "Did you mean 'copies'?"),
        ({"late": [{"per": [], "widht": 3}]}, "late.0.widht", "Did you mean 'width'?"),
        ({"rates": [{"owner": "*"}]}, "rates.0.factor", "is missing"),
        ({"name": None}, "name", "must be a text"),
    ],
)
def test_values(rows: dict[str, Any], place: str, allowed: str) -> None:
    message = refusal({"name": "x", **rows})
    assert place in message and allowed in message, message


TO_PAIR = ("sentiment", "similarity")
COSINE = Reading(heads={"similarity": HeadShape(kind="cosine")}, pair="bi")
MIXED = fed(TO_PAIR)["feeds"] + fed(("paraphrase", "similarity"), combine="attention")["feeds"]


@pytest.mark.parametrize(
    ("rows", "reading", "words"),
    [
        (fed(TO_PAIR) | OWN, CROSS, "'sentiment' cannot feed 'similarity': they do not share"),
        (fed(("paraphrase", "sentiment")), BI, "answers two texts, and the later task has one"),
        (fed(TO_PAIR), COSINE, "give the later task another head"),
        (fed(TO_PAIR, what="hidden"), CROSS, "set training.head to mlp, or feed the logits"),
        (fed(TO_PAIR, TO_PAIR[::-1]), CROSS, "the feeds of sentiment, similarity form a cycle"),
        (fed(("sentiment", "sentiment")), CROSS, "the feeds of sentiment form a cycle"),
        (fed(("sentimant", "similarity")), CROSS, "Did you mean 'sentiment'?"),
        (fed(("sentiment", "sts")), CROSS, "the tasks are sentiment, paraphrase, similarity"),
        ({"feeds": MIXED}, CROSS, "in the same way, concat or attention"),
        (fed(TO_PAIR, gradient=0), CROSS, "gradient is 0; write stop"),
    ],
)
def test_feeds(rows: dict[str, Any], reading: Reading, words: str) -> None:
    message = refusal({"name": "fed", **rows}, reading)
    assert words in message, message


def test_feeds_need_two_tasks() -> None:
    with pytest.raises(PlanError, match="no task feeds another; it needs two tasks or more"):
        lay_out(parse_plan("progressive"), THREE_TASKS[:1], tiny_shape(), CROSS)
