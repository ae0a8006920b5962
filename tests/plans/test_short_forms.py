"""What each short form means, written out by hand; the published counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from building import NAMES, THREE_TASKS, as_plan, forward_flops
from mops.errors import PlanError
from mops.plans.catalog import SHORT_FORMS, every_plan, neighbours, parse_plan, read_plan
from mops.plans.layout import Layout, lay_out
from mops.plans.picture import LEGEND, draw
from mops.plans.rows import Rate, SharingPlan
from mops.plans.shapes import EncoderShape, HeadShape, Reading

SIX = EncoderShape(family="bert", depth=6, width=8, heads=2, inner=8, words=9, positions=9)
BASE = EncoderShape(
    family="bert", depth=12, width=768, heads=12, inner=3072, words=30522, positions=512
)
POOLER = Reading(pool="pooler")
LAYER_PARTS = ("attention", "feedforward", "norms")


def laid_out(plan: Any, shape: EncoderShape = SIX, reading: Reading = POOLER) -> Layout:
    return lay_out(as_plan(plan), THREE_TASKS, shape, reading)


def stages(layout: Layout, task: str) -> list[str]:
    """The route as `embeddings 0 1 2 3 4 5 pooler late...`: what stands after the part's name."""
    route = layout.routes[task]
    found = [route.embeddings.removeprefix("embeddings")]
    for layer in route.layers:
        (tail,) = {owner.removeprefix(part) for part, owner in layer.items()}
        assert tuple(layer) == LAYER_PARTS
        found.append(tail)
    return found + [owner.removeprefix("pooler") for owner in route.pooler]


PLAIN = ["", "/layer00", "/layer01", "/layer02", "/layer03", "/layer04", "/layer05", ""]


@pytest.mark.parametrize(
    ("short", "own"),  # own: which of embeddings, the six layers and the pooler are per task
    [
        ("shared", "--------"),
        ("separate", "********"),
        ("hybrid:0", "-*******"),
        ("hybrid:4", "-----***"),
        ("hybrid:6", "-------*"),
        ("layers:SSISSI", "---*--**"),
        ("layers:IFSSFS", "**------"),
        ("frozen+hybrid:4", "-----***"),
        ("late:SIS", "--------"),
    ],
)
def test_which_stages_are_per_task(short: str, own: str) -> None:
    layout = laid_out(short)
    for task in NAMES:
        expected = [
            f"{tail}/{task}" if mark == "*" else tail for tail, mark in zip(PLAIN, own, strict=True)
        ]
        assert stages(layout, task) == expected
        assert layout.routes[task].head == f"head/{task}"


@pytest.mark.parametrize(
    ("short", "late"),
    [
        ("late:S", dict.fromkeys(NAMES, ("late1",))),
        ("late:ISS", {task: (f"late1/{task}", "late2", "late3") for task in NAMES}),
        (
            "late:IS/paraphrase+similarity",
            {
                "sentiment": ("late1/sentiment", "late2/sentiment"),
                "paraphrase": ("late1/paraphrase", "late2/paraphrase+similarity"),
                "similarity": ("late1/similarity", "late2/paraphrase+similarity"),
            },
        ),
        (
            "late:S/similarity+sentiment,paraphrase",
            {
                "sentiment": ("late1/similarity+sentiment",),
                "paraphrase": ("late1/paraphrase",),
                "similarity": ("late1/similarity+sentiment",),
            },
        ),
    ],
)
def test_late_layers(short: str, late: dict[str, tuple[str, ...]]) -> None:
    layout = laid_out(short)
    assert {task: route.late for task, route in layout.routes.items()} == late


@pytest.mark.parametrize(
    ("short", "frozen"),
    [
        ("layers:FFSSII", ("embeddings", "/layer00", "/layer01")),
        ("layers:SIFSSF", ("/layer02", "/layer05", "pooler")),
        ("frozen+late:SIS", ("embeddings", "/layer", "pooler")),
        ("frozen+separate", ("embeddings", "/layer", "pooler")),
    ],
)
def test_what_is_frozen(short: str, frozen: tuple[str, ...]) -> None:
    for owner, rate in laid_out(short).rates.items():
        assert rate == (0.0 if any(word in owner for word in frozen) else 1.0), owner


def test_frozen_takes_the_encoder_and_not_what_is_added() -> None:
    """A plan's own rates stay in force for what is no part of the encoder."""
    plan = parse_plan("frozen+late:S")
    assert plan.name == "frozen+late:S"
    assert plan.rates[-1] == Rate(owner="*", factor=1.0)
    assert laid_out(plan).trained == sum(
        size
        for owner, size in laid_out("late:S").sizes.items()
        if owner.startswith(("head", "late"))
    )


def test_a_part_that_no_route_uses_is_not_counted() -> None:
    """Under `pool: mean` there is no pooler."""
    with_pooler = laid_out("separate", reading=POOLER)
    without = laid_out("separate", reading=Reading(pool="mean"))
    missing = set(with_pooler.sizes) - set(without.sizes)
    assert missing == {f"pooler/{task}" for task in NAMES}
    assert with_pooler.parameters - without.parameters == 3 * (8 * 8 + 8)


def test_every_plan_has_an_example_of_each_short_form() -> None:
    for depth, tasks in ((12, NAMES), (3, NAMES[:2]), (1, NAMES[:1])):
        plans = every_plan(depth, tasks)
        families = {plan.name.removeprefix("frozen+").split(":")[0] for plan in plans}
        lonely = {"progressive"} if len(tasks) == 1 else set()
        assert families == set(SHORT_FORMS) - lonely
        shape = EncoderShape(**(vars(SIX) | {"depth": depth}))
        chosen = [task for task in THREE_TASKS if task.name in tasks]
        for plan in plans:
            assert set(lay_out(plan, chosen, shape, POOLER).routes) == set(tasks)


@pytest.mark.parametrize(
    ("plan", "near"),
    [
        ("late:SSI", ["late:ISI", "late:SII", "late:SSS"]),
        ("frozen+late:NS", ["frozen+late:NI"]),
        ("late:SS/a+b", ["late:IS/a+b", "late:SI/a+b"]),
        ("late:IS/a+b", ["late:SS/a+b"]),  # groups need a shared layer
        ("layers:FSI", ["layers:FII", "layers:FSS"]),
    ],
)
def test_neighbours_differ_in_one_letter(plan: str, near: list[str]) -> None:
    assert neighbours(plan) == near


@pytest.mark.parametrize("plan", ["shared", "late:N", "layers:FF", "late:S/a+b", "unknown:SSS"])
def test_plans_without_neighbours(plan: str) -> None:
    with pytest.raises(PlanError, match=r"no letters S and I to change; take layers:.* or late:"):
        neighbours(plan)


def test_a_plan_from_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ncopies:\n- {part: norms, per: [layer, task]}\n", "utf-8")
    plan = read_plan(str(path))
    assert (plan.name, plan.copies[0].part, plan.copies[0].per) == (
        "mine",
        "norms",
        ("layer", "task"),
    )
    assert (
        read_plan({"name": "mine", "copies": [{"part": "norms", "per": ["layer", "task"]}]}) == plan
    )
    with pytest.raises(PlanError, match=r"other\.yaml"):
        read_plan(str(tmp_path / "other.yaml"))
    path.write_text("name: mine\nlat: []\n", "utf-8")
    with pytest.raises(PlanError, match=r"mine\.yaml: unknown key 'lat'\. Did you mean 'late'\?"):
        read_plan(str(path))


# ------------------------------------------------------------------ published counts

# The heads of the founding paper: 5 classes, one logit on u + v, a projection before the cosine.
PAPER = Reading(
    pair="bi",
    pool="pooler",
    features=("sum",),
    heads={"similarity": HeadShape(kind="cosine", project=True)},
)


def trunk_size(layout: Layout) -> int:
    return sum(size for owner, size in layout.sizes.items() if not owner.startswith("head/"))


def test_size_of_bert_base() -> None:
    assert trunk_size(laid_out("shared", BASE)) == 109_482_240
    assert trunk_size(laid_out("separate", BASE)) == 3 * 109_482_240


def test_hybrid_bert_has_60_percent_and_not_half_of_the_weights() -> None:
    share = trunk_size(laid_out("hybrid:6", BASE)) / trunk_size(laid_out("separate", BASE))
    assert round(100 * share, 1) == 59.6


@pytest.mark.parametrize(
    ("plan", "parameters"),
    [
        ("late:III", 115_392_774),
        ("late:ISI", 114_211_590),
        ("late:SSI", 113_030_406),
        ("late:SSS", 111_849_222),
        ("late:ISS/paraphrase+similarity", 114_211_590),
    ],
)
def test_sizes_of_the_founding_paper(plan: str, parameters: int) -> None:
    layout = laid_out(plan, BASE, PAPER)
    assert layout.parameters == parameters
    assert layout.sizes[layout.routes["sentiment"].late[0]] == 590_592
    assert sum(layout.sizes[f"head/{task}"] for task in NAMES) == 595_206
    assert laid_out("late:III", BASE, PAPER).parameters - 111_849_222 == 3_543_552


def test_flops_of_bert_base() -> None:
    """A weight of the layers costs two operations a token; attention adds 4 L D a layer."""
    layout = laid_out("shared", BASE)
    matrices = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    expected = 128 * (2 * matrices + 12 * 4 * 128 * 768)
    assert forward_flops(layout.routes["sentiment"], BASE, 128) == expected
    own = laid_out("separate", BASE).routes["sentiment"]
    assert forward_flops(own, BASE, 128) == expected  # sharing saves none


# ------------------------------------------------------------------ the picture


def test_picture() -> None:
    picture = draw(laid_out("layers:FSSIFI"))
    assert picture.splitlines() == [
        "             emb     0     1     2     3     4     5  pool  head",
        "sentiment      a     a     A     A     A     a     A     A     A",
        "paraphrase     a     a     A     A     B     a     B     B     B",
        "similarity     a     a     A     A     C     a     C     C     C",
        LEGEND,
    ]


def test_picture_of_late_layers_and_many_tasks() -> None:
    rows = draw(laid_out("frozen+late:IS/paraphrase+similarity")).splitlines()
    assert rows[0].split()[-3:] == ["L1", "L2", "head"]
    assert [row.split()[-3:] for row in rows[1:4]] == [list("AAA"), list("BBB"), list("CBC")]
    many = [
        type(THREE_TASKS[0])(name=f"t{n}", type="classification", text=("a",), label="b")
        for n in range(28)
    ]
    plan = SharingPlan(name="x")
    drawn = draw(lay_out(plan, [replace(t, labels=("0", "1")) for t in many], SIX, POOLER))
    assert drawn.splitlines()[26].endswith(" Z")
    assert drawn.splitlines()[28].endswith(" #27")
