"""Plans as pictures: a box for each copy, marks for what is frozen, added and heard."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from mops.plans.catalog import every_plan, parse_plan
from mops.plans.layout import Layout, lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.reports.cards import LEFT, RIGHT, SHARED, WIDTH, Diagram, draw_plan, make_cards
from mops.reports.cards import TASKS as COLOURS
from mops.reports.source import read_source
from mops.tasks import Task
from surveys import make_survey

SVG = "{http://www.w3.org/2000/svg}"
DEPTH = 6
TASKS = (
    Task(name="mood", type="classification", text=("s",), label="y", labels=("a", "b", "c")),
    Task(name="same", type="pair_classification", text=("s", "t"), label="y", labels=("0", "1")),
    Task(name="near", type="similarity", text=("s", "t"), label="y", range=(0.0, 5.0)),
)
NAMES = tuple(task.name for task in TASKS)
PLANS = every_plan(DEPTH, NAMES)


def laid(plan: str | SharingPlan, depth: int = DEPTH, pool: str = "mean") -> Layout:
    shape = EncoderShape(
        family="bert", depth=depth, width=384, heads=12, inner=1536, words=30522, positions=512
    )
    found = parse_plan(plan) if isinstance(plan, str) else plan
    return lay_out(found, TASKS, shape, Reading(pool=pool))


def counts(boxes: Diagram) -> dict[str, int]:
    """Boxes in each row."""
    return {row.name: len(row.copies) for row in boxes.rows}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_plan_is_a_small_drawing(plan: SharingPlan) -> None:
    layout = laid(plan)
    picture = draw_plan(layout)
    for svg in (picture.svg, picture.file):
        root = ElementTree.fromstring(svg.encode())
        assert root.tag == f"{SVG}svg" and root[0].text == f"Plan {plan.name}"
        assert " id=" not in svg  # many may live in one page
        assert 1_500 < len(svg) < 9_000
        wide = float(root.attrib["viewBox"].split()[2])
        for box in root.iter(f"{SVG}rect"):
            if box.attrib["width"] != "100%":
                assert float(box.attrib["x"]) >= 0
                assert float(box.attrib["x"]) + float(box.attrib["width"]) <= wide


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_box_is_as_wide_as_its_users(plan: SharingPlan) -> None:
    """All tasks of a row are covered, once, and equal owners are equal boxes."""
    layout = laid(plan)
    boxes = Diagram(layout)
    assert sorted(boxes.tasks) == sorted(NAMES)
    for row in boxes.rows:
        found = row.copies or row.added
        tops = {box.top for box in found}
        for top in tops:
            here = sorted((box for box in found if box.top == top), key=lambda box: box.left)
            assert here[0].left == pytest.approx(LEFT)
            assert here[-1].left + here[-1].width == pytest.approx(WIDTH - RIGHT)
            assert {task for box in here for task in box.users} == set(NAMES)


def test_boxes_are_copies() -> None:
    one, three = counts(Diagram(laid("shared"))), counts(Diagram(laid("separate")))
    assert {name: of for name, of in one.items() if name != "head"} == dict.fromkeys(
        ["5", "4", "3", "2", "1", "0", "emb"], 1
    )
    assert set(three.values()) == {3} and one["head"] == 3
    half = counts(Diagram(laid("hybrid:2", pool="pooler")))
    assert [half[name] for name in ("emb", "0", "1", "2", "5", "pool", "head")] == [
        1, 1, 1, 3, 3, 3, 3,
    ]  # fmt: skip


def test_colours_say_who_shares() -> None:
    boxes = Diagram(laid("hybrid:2"))
    rows = {row.name: [box.colour for box in row.copies] for row in boxes.rows}
    assert rows["0"] == [SHARED] and rows["4"] == list(COLOURS[:3])
    svg = draw_plan(laid("hybrid:2")).svg
    assert "one copy for all tasks" in svg and "one copy per task" in svg and "frozen" not in svg


def test_tasks_that_share_have_one_box_or_one_colour() -> None:
    neighbours, apart = Diagram(laid("late:IS/mood+same")), Diagram(laid("late:IS/mood+near"))
    assert counts(neighbours)["L2"] == 2 and counts(neighbours)["L1"] == 3
    row = next(row for row in apart.rows if row.name == "L2")
    mood, same, near = row.copies
    assert mood.colour == near.colour != same.colour and mood.users == ("mood", "near")


def test_what_is_frozen_is_marked() -> None:
    layout = laid("frozen+late:SI")
    boxes = Diagram(layout)
    frozen = {row.name for row in boxes.rows if all(box.is_frozen for box in row.copies)}
    assert frozen == {"emb", "0", "1", "2", "3", "4", "5"}
    svg = draw_plan(layout).svg
    assert svg.count("stroke-dasharray") == 7 + 1  # and in the legend
    assert svg.count(">frozen<") == 2  # in the boxes, in the legend


def test_parts_that_are_shared_differently_are_drawn_apart() -> None:
    """Of bitfit the norms alone have copies, and the norms alone learn."""
    boxes = Diagram(laid("bitfit"))
    layer = next(row for row in boxes.rows if row.name == "3")
    assert len({box.top for box in layer.copies}) == 2
    found = [(len(box.users), box.is_frozen) for box in layer.copies]
    assert sorted(found) == [(1, False)] * 3 + [(3, True)]
    heights = [box.height for box in layer.copies if NAMES[0] in box.users]
    assert heights == pytest.approx([layer.height * 2 / 3, layer.height / 3])


def test_additions_are_small_boxes_at_their_layers() -> None:
    layout = laid("pals:parallel")
    for row in Diagram(layout).rows:
        assert len(row.added) == (3 if row.name.isdigit() else 0)
    drawn = ElementTree.fromstring(draw_plan(layout).svg).iter(f"{SVG}rect")
    added = [box for box in drawn if box.get("fill-opacity") == "0.8" and box.get("height") != "9"]
    assert len(added) == 3 * DEPTH and {box.get("width") for box in added} == {"13"}
    top = Diagram(laid("pals:top"))
    (on_top,) = [row for row in top.rows if row.added]
    assert on_top.name == "top0" and len(on_top.added) == 3


@pytest.mark.parametrize(
    ("plan", "arrows"), [("shared", 0), ("progressive", 3), ("progressive:mood>near", 1)]
)
def test_an_arrow_for_each_feed(plan: str, arrows: int) -> None:
    svg = draw_plan(laid(plan)).svg
    assert svg.count('" fill="none" stroke="currentColor" stroke-width="1.2"') == arrows
    assert ("later task" in svg) == bool(arrows)


def test_deep_encoders_stay_legible() -> None:
    svg = draw_plan(laid("hybrid:12", depth=24)).svg
    assert len(svg) < 12_000
    labels = [t.text for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert [label for label in labels if label and label.isdigit()] == [
        "20",
        "16",
        "12",
        "8",
        "4",
        "0",
    ]


def test_colours_of_the_page_and_own_ones() -> None:
    picture = draw_plan(laid("frozen+shared"))
    page, file = picture.svg, picture.file
    assert "currentColor" in page and "var(--pale" in page
    assert "currentColor" not in file and "var(" not in file


def test_each_plan_of_a_survey_once(tmp_path: Path) -> None:
    rates = {"training.learning_rate": [1e-5, 1e-4]}
    folder = make_survey(tmp_path, ("shared", "hybrid:1"), axes=rates, seeds=1)
    cards = make_cards(read_source(folder))
    found = {card.picture for card in cards if card.picture}
    assert sorted(picture.title for picture in found) == ["Plan hybrid:1", "Plan shared"]
    assert len({picture.name for picture in found}) == 2
