"""The heat map is a picture that holds every cell."""

from __future__ import annotations

import struct
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mops.evaluate.agreement import Cell
from mops.evaluate.conflicts import Conflicts, write_conflicts
from mops.reports.figures import FIGURES
from mops.reports.figures.figure import house_style
from mops.reports.figures.heatmap import build_figure, draw_heatmap, written
from mops.reports.material import Material
from surveying import made_standing, made_summary

PARTS = ("attention", "norms")


def sample(tasks: tuple[str, ...] = ("a", "b", "c"), depth: int = 2) -> Conflicts:
    owners, places = [], []
    for n, pair in enumerate(combinations(tasks, 2)):
        for place in ("embeddings", *(f"layer {i}" for i in range(depth)), "late1"):
            facts = {"place": place, "tasks": pair, "mean": -0.04 + 0.03 * n, "stderr": 0.01,
                     "negative": 0.5, "norm_ratio": 1.0, "own": (0.2, 0.3), "steps": 9}  # fmt: skip
            parts = PARTS if place.startswith("layer") else (place,)
            owners += [Cell(part=part, owner=f"{part}/{place}", **facts) for part in parts]
            places.append(Cell(part="all", **facts, is_conflict=n == 0 and place == "layer 1"))
    info = {"plan": "some", "encoder": "tiny", "tasks": list(tasks), "steps": 90,
            "measured_steps": list(range(9)), "level": 0.05}  # fmt: skip
    return Conflicts(info, {}, {}, tuple(owners), tuple(places), (), ())


def test_both_files_are_pictures(tmp_path: Path) -> None:
    svg, png = draw_heatmap(sample(), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["heatmap.png", "heatmap.svg"]
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    assert 600 < width < 1500 and 400 < height < 1500


def test_the_same_numbers_give_the_same_file(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in draw_heatmap(sample(), tmp_path)]
    assert [path.read_bytes() for path in draw_heatmap(sample(), tmp_path)] == first


@pytest.mark.parametrize("tasks", [("a", "b"), ("a", "b", "c"), tuple("abcdefgh")])
def test_every_cell_has_a_box_and_conflicts_a_frame(tasks: tuple[str, ...]) -> None:
    found = sample(tasks)
    above, below = build_figure(found).axes[:2]
    single = 2 * len(found.pairs)  # embeddings and the late layer: one box each, not two
    assert len(above.patches) == len(found.owners) + len(found.places) - single
    assert len(below.patches) == len(tasks) * 4
    framed = [patch for patch in above.patches if patch.get_linewidth() > 1.5]
    assert len(framed) == 1
    named = {text.get_text() for text in above.texts}
    assert {" and ".join(pair) for pair in found.pairs} <= named
    assert "−0.040" in named


def test_colours_are_symmetric_and_no_wider_than_they_must() -> None:
    bar = build_figure(sample()).axes[2]
    assert bar.get_ylim() == pytest.approx((-0.1, 0.1))  # the widest cell is 0.04


def test_numbers_have_a_true_minus() -> None:
    assert written("{:.3f}", -0.0123) == "−0.012"
    assert written("{:.2f}", 0.5) == "0.50"


def test_a_report_shows_the_measurement_in_its_folder(tmp_path: Path) -> None:
    """Nothing of it is white or black: the page has its own ground and ink."""
    summary = made_summary(made_standing("shared", 0.5))
    material = Material(tmp_path, None, summary, None, (), ())
    assert not list(FIGURES["conflicts"](material))
    write_conflicts(tmp_path / "conflicts.json", sample())
    with house_style():
        (drawn,) = FIGURES["conflicts"](material)
    svg = drawn.picture().svg
    assert "−0.040" in svg and "a and b" in svg
    assert "#ffffff" not in svg and "#000000" not in svg
    (tmp_path / "conflicts.json").write_text("{", "utf-8")
    assert not list(FIGURES["conflicts"](material))
