"""Sizes of plans with additions at BERT-base: the published counts, and sums by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import NAMES, THREE_TASKS, as_plan, forward_flops
from mops.errors import PlanError
from mops.model.sources import find_encoder
from mops.plans.layout import Layout, lay_out
from mops.plans.picture import LEGEND, draw
from mops.plans.shapes import EncoderShape, HeadShape, Reading
from mops.tasks import Task

BASE = EncoderShape(
    family="bert", depth=12, width=768, heads=12, inner=3072, words=30522, positions=512
)
SMALL = EncoderShape(
    family="bert", depth=12, width=384, heads=12, inner=1536, words=30522, positions=512
)
MINILM = find_encoder("minilm").shape
TINY = EncoderShape(family="bert", depth=2, width=12, heads=2, inner=8, words=9, positions=9)
POOLER = Reading(pool="pooler")
PAL_AT_BASE = (768 * 204 + 204, 12 * 3 * (204 * 204 + 204), 204 * 768 + 768)  # down, attend, up


def laid_out(plan: Any, shape: EncoderShape = BASE, tasks: Any = THREE_TASKS) -> Layout:
    return lay_out(as_plan(plan), tasks, shape, POOLER)


def added_per_task(plan: Any, shape: EncoderShape = BASE) -> float:
    """Weights of a plan beyond those of one shared encoder, divided by the tasks."""
    extra = laid_out(plan, shape).parameters - laid_out("shared", shape).parameters
    return extra / len(NAMES)


def many_tasks(count: int) -> list[Task]:
    return [
        Task(name=f"t{n}", type="classification", text=("a",), label="b", labels=("0", "1"))
        for n in range(count)
    ]


def relative_size(plan: str, count: int, shape: EncoderShape) -> float:
    """Weights of so many tasks, heads too, relative to the encoder alone."""
    layout = laid_out(plan, shape, many_tasks(count))
    heads = sum(layout.sizes[route.head] for route in layout.routes.values())
    encoder = laid_out("shared", shape, many_tasks(count)).parameters - heads
    return layout.parameters / encoder


@pytest.mark.parametrize(
    ("plan", "shape", "times"),
    [
        ("pals:parallel", BASE, 1.13),
        ("pals:parallel-gelu", BASE, 1.13),
        ("pals:parallel", MINILM, 1.09),
        ("low-rank:100", BASE, 1.14),
        ("low-rank:88", BASE, 1.12),
    ],
)
def test_size_of_eight_tasks(plan: str, shape: EncoderShape, times: float) -> None:
    """The table of the paper: 1.13x the weights of BERT-base for the eight tasks of GLUE."""
    assert round(relative_size(plan, 8, shape), 2) == times


WITHIN = [  # short forms whose additions are within the budget of the paper
    *("pals:parallel", "pals:parallel-gelu", "pals:parallel-weighted", "pals:both-same"),
    *("pals:top", "embert", "embert-pals", "lora:8", "lhuc", "bitfit", "experts:4", "low-rank:80"),
]


@pytest.mark.parametrize("plan", WITHIN)
@given(count=st.integers(1, 8), shape=st.sampled_from([BASE, MINILM]))
@settings(max_examples=16, deadline=None, database=None)
def test_up_to_eight_tasks_within_the_budget_of_the_paper(
    plan: str, count: int, shape: EncoderShape
) -> None:
    """1.13 times the weights of one encoder, as the paper rounds it."""
    assert round(relative_size(plan, count, shape), 2) <= 1.13


@pytest.mark.parametrize(
    ("plan", "shape", "size"),
    [
        ("pals:parallel", BASE, 204),
        ("pals:both-same", BASE, 204),
        ("pals:parallel", SMALL, 102),  # 6 heads divide it
        ("pals:top", SMALL, 96),  # 12 heads divide it
        ("pals:both-same", SMALL, 96),
        ("pals:parallel", TINY, 6),
        ("pals:top", TINY, 12),
    ],
)
def test_default_size_of_a_pal(plan: str, shape: EncoderShape, size: int) -> None:
    (name,) = (row.name for row in as_plan(plan).additions)
    found = laid_out(plan, shape).sizes[f"{name}_down/sentiment"]
    assert found == shape.width * size + size


def test_weights_of_pals_by_hand() -> None:
    down, attend, up = PAL_AT_BASE
    assert added_per_task("pals:parallel") == down + attend + up
    assert added_per_task("pals:both-same") == down + attend // 12 + up
    assert added_per_task("pals:top") == down + attend // 12 + up
    assert added_per_task("pals:both-different") == 2 * (down + up) + attend + attend // 12
    gates = laid_out("pals:parallel-weighted").parameters - laid_out("pals:parallel").parameters
    assert gates == 12


def test_projections_per_layer_are_twelve_times_those_of_the_paper() -> None:
    own = ["layer", "task"]
    row = {"name": "pal", "kind": "pal", "sites": ["beside_layer"], "size": 204}
    plan = {"name": "own", "additions": [{**row, "per": {"down": own, "attend": own, "up": own}}]}
    down, attend, up = PAL_AT_BASE
    assert added_per_task(plan) == 12 * (down + up) + attend


def test_a_task_embedding_is_three_vectors_a_layer() -> None:
    """EmBERT: 12 layers x 3 x 768 = 27,648 weights a task."""
    assert added_per_task("embert") == 27_648
    down, attend, up = PAL_AT_BASE
    assert added_per_task("embert-pals") == 27_648 + down + attend // 12 + up


def test_lora_is_two_thin_matrices_for_queries_and_for_values() -> None:
    assert added_per_task("lora:8") == 12 * 2 * (768 * 8 + 8 * 768)
    assert added_per_task("lora:1") == added_per_task("lora:8") / 8


def test_adapters_are_two_bottlenecks_a_layer() -> None:
    assert added_per_task("adapters:64") == 12 * 2 * (768 * 64 + 64 + 64 * 768 + 768)


def test_low_rank_functions_are_pals_without_attention_and_with_their_own_projections() -> None:
    """Rank 100 in 12 layers of BERT-base is about as many weights as a PAL of size 204."""
    assert added_per_task("low-rank:100") == 12 * (768 * 100 + 100 + 100 * 768 + 768)
    assert added_per_task("low-rank:100") == pytest.approx(sum(PAL_AT_BASE), rel=0.05)


def test_experts_are_shared_and_routers_are_not() -> None:
    shared = 12 * (768 * 64 + 64 + 64 * 768 + 768)  # four experts of size 16
    layout = laid_out("experts:4")
    added = layout.parameters - laid_out("shared").parameters
    assert added == shared + 3 * 12 * (768 * 4 + 4)
    assert layout.users["experts_up/layer03"] == NAMES
    assert layout.users["experts_router/layer03/sentiment"] == ("sentiment",)


def test_hidden_unit_contributions_are_one_vector_a_layer() -> None:
    assert added_per_task("lhuc") == 12 * 768


def test_a_shared_norm_is_one_owner() -> None:
    layout = laid_out("late:NSI")
    assert layout.sizes["late1"] == 2 * 768 and layout.users["late1"] == NAMES
    assert layout.sizes["late2"] == layout.sizes["late3/sentiment"] == 768 * 768 + 768


def test_a_norm_is_as_wide_as_what_it_reads() -> None:
    rows = [{"per": [], "width": 16}, {"per": ["task"], "norm": True}, {"per": []}]
    layout = laid_out({"name": "narrow", "late": rows})
    sizes = [layout.sizes[owner] for owner in layout.routes["sentiment"].late]
    assert sizes == [768 * 16 + 16, 2 * 16, 16 * 768 + 768]


def test_plans_without_the_later_keys_have_the_data_they_had() -> None:
    """So that trials of plans as rows keep their names."""
    rows = as_plan("pals:parallel").to_data()["additions"] + as_plan("late:SI").to_data()["late"]
    assert not any(key in row for row in rows for key in ("experts", "norm"))
    assert "activation" not in rows[0] and rows[1]["activation"] == "relu"


def test_what_learns_on_a_frozen_encoder() -> None:
    layout = laid_out("frozen+adapters:64")
    heads = sum(layout.sizes[f"head/{task}"] for task in NAMES)
    assert layout.trained == 3 * added_per_task("adapters:64") + heads


def test_bitfit_learns_biases_norms_and_heads() -> None:
    """Biases a layer: 3 x 768 of the queries, keys, values, 768, 3072, 768; norms 4 x 768."""
    layout = laid_out("bitfit")
    biases, norms = 12 * (3 * 768 + 768 + 3072 + 768), 12 * 4 * 768
    heads = sum(layout.sizes[f"head/{task}"] for task in NAMES)
    assert layout.trained == 3 * (biases + norms) + heads
    assert added_per_task("bitfit") == biases + norms - norms / 3  # one copy of the norms was there


def test_heads_that_hear_others_are_wider() -> None:
    """5 numbers of sentiment and 1 of paraphrase; a single text's twice where texts are apart."""
    for pair, vectors, texts in (("cross", 1, 1), ("bi", 2, 2)):
        layout = lay_out(as_plan("progressive"), THREE_TASKS, BASE, Reading(pair=pair))
        assert layout.sizes["head/sentiment"] == 768 * 5 + 5
        assert layout.sizes["head/paraphrase"] == vectors * 768 + 5 * texts + 1
        assert layout.sizes["head/similarity"] == vectors * 768 + 5 * texts + 1 + 1


def test_a_head_that_weighs_its_fields() -> None:
    feed = {"source": "sentiment", "target": "similarity", "combine": "attention", "what": "hidden"}
    reading = Reading(heads={"sentiment": HeadShape(kind="mlp", width=20)})
    layout = lay_out(as_plan({"name": "fed", "feeds": [feed]}), THREE_TASKS, BASE, reading)
    projections = 768 * 768 + 768 + 20 * 768 + 768
    assert layout.sizes["head/similarity"] == projections + 768 + 768 + 1


def test_work_of_an_addition() -> None:
    """Two operations a weight and token, and those of the small attention: 4 L S a token."""
    plain, added = (
        forward_flops(laid_out(plan).routes["sentiment"], BASE, 128)
        for plan in ("shared", "pals:parallel")
    )
    down, attend, up = PAL_AT_BASE
    weights = 12 * (down + up) + attend
    assert added - plain == 128 * (2 * weights + 12 * 4 * 128 * 204)


def test_a_size_that_its_heads_cannot_divide() -> None:
    row = {"name": "p", "kind": "pal", "sites": ["beside_layer", "on_top"], "size": 30}
    plan = {"name": "x", "additions": [{**row, "per": {"down": [], "attend": [], "up": []}}]}
    with pytest.raises(PlanError, match="its size 30 cannot be divided by its 12 heads; take 24"):
        laid_out(plan)


# ------------------------------------------------------------------ the picture


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            "pals:parallel",
            [
                "             emb     0     1  pool  head",
                "sentiment      A   A+A   A+A     A     A",
                "paraphrase     A   A+B   A+B     A     B",
                "similarity     A   A+C   A+C     A     C",
                LEGEND,
                "+ pal: pal, beside_layer",
            ],
        ),
        (
            "frozen+pals:top",
            [
                "             emb     0     1  top0  pool  head",
                "sentiment      a     a     a     A     a     A",
                "paraphrase     a     a     a     B     a     B",
                "similarity     a     a     a     C     a     C",
                LEGEND,
                "+ pal_top: pal, on_top",
            ],
        ),
        (
            "progressive",
            [
                "             emb     0     1  pool  head",
                "sentiment      A     A     A     A     A",
                "paraphrase     A     A     A     A     B",
                "similarity     A     A     A     A     C",
                LEGEND,
                "paraphrase's head is fed by sentiment (logits, frozen-head)",
                "similarity's head is fed by sentiment (logits, frozen-head)",
                "similarity's head is fed by paraphrase (logits, frozen-head)",
            ],
        ),
        (
            "soft:0.01",
            [
                "             emb     0     1  pool  head",
                "sentiment      A     A     A     A     A",
                "paraphrase     B     B     B     B     B",
                "similarity     C     C     C     C     C",
                LEGEND,
                "copies are pulled towards each other (L2, 0.01)",
            ],
        ),
    ],
)
def test_picture(plan: str, expected: list[str]) -> None:
    assert draw(laid_out(plan, TINY)).splitlines() == expected
