"""Pictures of a report: drawings that many can live in one page, with the right marks in them."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mops.reports.figures import FIGURES, draw, draw_figures
from mops.reports.figures.colours import GROUND, INK, OTHER, PALE, SERIES, TASKS, looks
from mops.reports.figures.pareto import COSTS, front_of, points_of
from mops.reports.figures.svg import read_body
from mops.reports.material import Material, read_material
from mops.reports.parts import Picture
from surveys import make_survey

SVG = "{http://www.w3.org/2000/svg}"
STRANGE = "<b>&\"$x_1$' {0}"
ODD = [{"name": STRANGE, "copies": [{"part": "norms", "per": ["layer", "task"]}]}]
PLANS = ("shared", "separate", "hybrid:2", "frozen+shared", *ODD)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return read_material(make_survey(tmp_path_factory.mktemp("made"), PLANS))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Twenty-five candidates."""
    rates = {"training.learning_rate": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3]}
    plans = ("shared", "separate", "hybrid:2", "frozen+shared", "late:SIS")
    return read_material(make_survey(tmp_path_factory.mktemp("many"), plans, axes=rates, seeds=1))


@pytest.fixture(scope="module")
def pictures(material: Material) -> tuple[Picture, ...]:
    return draw_figures(material)


@pytest.fixture(scope="module")
def of_many(many: Material) -> tuple[Picture, ...]:
    return draw_figures(many)


def by_name(pictures: tuple[Picture, ...]) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures}


def texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def marks(svg: str) -> set[int]:
    return {int(found) for found in re.findall(r'data-candidate="(\d+)"', svg)}


def test_there_is_one_for_each_question(pictures: tuple[Picture, ...]) -> None:
    found = by_name(pictures)
    assert len(found) == len(pictures)
    assert [p.choice for p in pictures if p.group == "pareto"] == [
        "parameters", "latency", "training time", "trained parameters",
    ]  # fmt: skip
    assert [p.choice for p in pictures if p.group == "curves"] == [
        "loss", "score by step", "score by time",
    ]  # fmt: skip
    for group in ("answers", "calibration"):
        tasks = [p.choice for p in pictures if p.group == group]
        assert tasks == ["sentiment", "paraphrase", "similarity"][: 3 if group == "answers" else 2]
    assert {"scores", "response-shared-layers"} <= set(found)
    assert all(picture.title and picture.caption for picture in pictures)


def test_drawings_for_pages(pictures: tuple[Picture, ...]) -> None:
    """No size, no ground, no style for all, nothing before the drawing, its name in it."""
    for picture in pictures:
        root = ElementTree.fromstring(picture.svg)
        assert picture.svg.startswith("<svg ") and root.tag == f"{SVG}svg"
        assert {"viewBox", "role"} <= set(root.attrib) and "width" not in root.attrib
        assert root[0].tag == f"{SVG}title" and root[0].text == picture.title
        assert not list(root.iter(f"{SVG}style")) and not list(root.iter(f"{SVG}metadata"))
        for colour in (INK, GROUND):
            assert colour not in picture.svg
        assert "font-family" not in picture.svg and "currentColor" in picture.svg


def test_drawings_as_files(pictures: tuple[Picture, ...]) -> None:
    for picture in pictures:
        root = ElementTree.fromstring(picture.file)
        assert picture.file.startswith("<?xml") and root.attrib["width"].endswith("pt")
        assert "var(" not in picture.file and "currentColor" not in picture.file
        ground = next(root.iter(f"{SVG}rect"))
        assert ground.attrib == {"width": "100%", "height": "100%", "fill": "#ffffff"}


def test_many_live_in_one_page(pictures: tuple[Picture, ...]) -> None:
    """No id twice, and what a drawing refers to is its own."""
    ids: Counter[str] = Counter()
    for picture in pictures:
        own = re.findall(r'\bid="([^"]+)"', picture.svg)
        used = re.findall(r'(?:href="#|url\(#)([^")]+)', picture.svg)
        assert set(used) == set(own), picture.name
        ids.update(own)
    assert ids and max(ids.values()) == 1


def test_no_picture_is_heavy(pictures: tuple[Picture, ...], of_many: tuple[Picture, ...]) -> None:
    for found in (pictures, of_many):
        sizes = {picture.name: len(picture.svg) for picture in found}
        assert max(sizes.values()) < 60_000, sizes
        assert sum(sizes.values()) < 350_000, sizes


@pytest.mark.parametrize(
    "name", ["pareto-parameters", "scores", "curves-loss", "curves-score-by-step"]
)
def test_every_candidate_is_in_it(
    pictures: tuple[Picture, ...], of_many: tuple[Picture, ...], name: str
) -> None:
    assert marks(by_name(pictures)[name].svg) == set(range(5))
    assert marks(by_name(of_many)[name].svg) == set(range(25))


def test_the_same_folder_gives_the_same_bytes(
    material: Material, pictures: tuple[Picture, ...]
) -> None:
    assert draw_figures(read_material(material.folder)) == pictures


def test_names_are_text(pictures: tuple[Picture, ...]) -> None:
    """Neither markup nor mathematics."""
    found = by_name(pictures)
    assert STRANGE in texts(found["scores"].svg)
    assert STRANGE in texts(found["pareto-parameters"].svg)
    assert all("<b>" not in picture.svg + picture.file for picture in pictures)


def test_numbers_are_those_of_the_summary(
    material: Material, pictures: tuple[Picture, ...]
) -> None:
    assert material.decision is not None
    facts = material.of(str(material.decision.candidate))[0].facts
    shown = texts(by_name(pictures)["answers-sentiment"].svg)
    assert f"accuracy {facts.scores['sentiment']:.3f}" in shown


def test_what_is_cut_short_and_what_is_not() -> None:
    """Places to a tenth of a point, shapes finer; depths of colours and words stay as they are."""
    raw = (
        '<svg viewBox="0 0 9 9"><path d="M 1.234567 2" style="fill-opacity: 0.073600"/>'
        '<path id="m1" d="M 1.234567 2"/><use href="#m1"/><text x="3.999999">0.123456</text></svg>'
    )
    assert read_body(raw, "x").text == (
        '<path d="M 1.2 2" style="fill-opacity: 0.073600"/><path id="x-m1" d="M 1.23 2"/>'
        '<use href="#x-m1"/><text x="3.9">0.123456</text>'
    )


# ------------------------------------------------------------------ colours


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#15171b"])
def test_colours_are_legible_on_light_and_dark(ground: str) -> None:
    for colour in {*SERIES, *TASKS, OTHER}:
        low, high = sorted((luminance(colour), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour  # WCAG 2, graphical objects


def test_a_candidate_has_one_colour(material: Material, pictures: tuple[Picture, ...]) -> None:
    """Its own in every picture; the words are ink."""
    expected = {look.place: look.colour for look in looks(material).values()}
    assert len(set(expected.values())) == len(expected) == 5
    for picture in pictures:
        for element in ElementTree.fromstring(picture.file).iter():
            place = element.attrib.get("data-candidate")
            if place is not None:
                found = set(re.findall(r"#[0-9a-f]{6}", ElementTree.tostring(element, "unicode")))
                assert found <= {expected[int(place)], INK, PALE, GROUND}, picture.name


def test_colours_go_by_plan_where_plans_repeat(many: Material) -> None:
    found = looks(many)
    by_plan = {(one.plan, found[one.name].colour) for one in many.summary.standings}
    assert len(by_plan) == len({plan for plan, _ in by_plan}) == 5
    assert len({colour for _, colour in by_plan}) == 5


# ------------------------------------------------------------------ Pareto


def test_the_line_joins_those_that_none_beats(many: Material) -> None:
    for axis in COSTS:
        points = list(points_of(many, axis, 1.0))
        best = {
            (one.cost, one.score)
            for one in points
            if not any(
                (other.cost < one.cost and other.score >= one.score)
                or (other.cost <= one.cost and other.score > one.score)
                for other in points
            )
        }
        assert {(one.cost, one.score) for one in front_of(points)} == best


def test_with_many_only_the_telling_ones_have_names(
    many: Material, of_many: tuple[Picture, ...]
) -> None:
    shown = texts(by_name(of_many)["pareto-parameters"].svg)
    names = [look.name for look in looks(many).values()]
    named = [name for name in names if name in shown]
    assert 1 < len(named) < 12
    assert {"recommended", "baseline"} <= {word for text in shown for word in text.split(", ")}


def test_costs_that_were_not_measured_have_no_picture(material: Material) -> None:
    bare = [
        replace(one, costs={k: v for k, v in one.costs.items() if k != "latency_seconds"})
        for one in material.summary.standings
    ]
    without = replace(material, summary=replace(material.summary, standings=tuple(bare)))
    assert [drawn.choice for drawn in FIGURES["pareto"](without)] == ["parameters", "training time"]


def test_one_candidate_is_compared_with_nobody(material: Material) -> None:
    trial = material.trials[0]
    alone = read_material(trial.folder)
    names = {picture.name for picture in draw_figures(alone)}
    assert not any(name.startswith("pareto") for name in names)
    assert {"scores", "curves-loss", "answers-sentiment"} <= names


def test_what_is_missing_is_left_out(material: Material, tmp_path: Path) -> None:
    """Curves and predictions that are gone cost their own pictures only."""
    folder = tmp_path / "made"
    shutil.copytree(material.folder, folder)
    for trial in (folder / "trials").iterdir():
        (trial / "curve.jsonl").unlink()
        shutil.rmtree(trial / "predictions")
    bare = replace(material, trials=tuple(
        replace(trial, folder=folder / "trials" / trial.folder.name) for trial in material.trials
    ))  # fmt: skip
    groups = {picture.group for picture in draw_figures(bare)}
    assert groups == {"pareto", "", "response"}


def test_older_predictions_say_nothing_of_calibration(tmp_path: Path) -> None:
    old = read_material(make_survey(tmp_path, ("shared", "separate"), seeds=1, has_losses=False))
    groups = [picture.group for picture in draw_figures(old)]
    assert "answers" in groups and "calibration" not in groups


def test_png_of_the_same_figure(material: Material) -> None:
    first = draw(material)[0]
    svg, png = first.picture().svg, first.png()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and first.png() == png
    assert first.picture().svg == svg
