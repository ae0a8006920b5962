"""Charts: SVG that many can share a page, the right marks, and no content dropped silently."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from mops.evaluate.conflicts import Conflicts, CosineCell, OutputCell
from mops.reports.cards import TASKS
from mops.reports.figures import style
from mops.reports.figures.conflicts import build_figure, draw_heatmap
from mops.reports.figures.scores import cost_points, draw_cost, line_boxes, name_points
from mops.reports.figures.style import (
    GROUND,
    INK,
    OTHER,
    PALE,
    SERIES,
    Look,
    Picture,
    candidate_looks,
    house_style,
    short_names,
    to_png,
)
from mops.reports.report import draw_charts
from mops.reports.source import Source, read_source

SVG = "{http://www.w3.org/2000/svg}"
STRANGE = "<b>&\"$x_1$' {0}"
Pictures = dict[str, Picture]


def draw(source: Source) -> Pictures:
    return {chart.name: chart for chart in draw_charts(source) if isinstance(chart, Picture)}


@pytest.fixture(scope="module")
def pictures(source: Source) -> Pictures:
    return draw(source)


@pytest.fixture(scope="module")
def many_pictures(many: Source) -> Pictures:
    return draw(many)


def texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def marks(svg: str) -> set[int]:
    return {int(number) for number in re.findall(r'data-candidate="(\d+)"', svg)}


def test_one_picture_per_question(pictures: Pictures) -> None:
    choices: dict[str, list[str]] = {}
    for picture in pictures.values():
        assert picture.title and picture.caption
        choices.setdefault(picture.group, []).append(picture.choice)
    assert choices["pareto"] == ["parameters", "latency", "training time", "trained parameters"]
    assert choices["curves"] == ["loss", "score by step", "score by time"]
    assert choices["answers"] == ["sentiment", "paraphrase", "similarity"]
    assert choices["calibration"] == ["sentiment", "paraphrase"]
    assert {"scores", "response-shared-layers"} <= set(pictures)


def test_inline_svg_takes_size_and_colours_from_the_page(pictures: Pictures) -> None:
    for picture in pictures.values():
        root = ElementTree.fromstring(picture.svg)
        assert picture.svg.startswith("<svg ") and root.tag == f"{SVG}svg"
        assert {"viewBox", "role"} <= set(root.attrib) and "width" not in root.attrib
        assert root[0].tag == f"{SVG}title" and root[0].text == picture.title
        assert not list(root.iter(f"{SVG}style")) and not list(root.iter(f"{SVG}metadata"))
        assert "currentColor" in picture.svg
        assert not any(colour in picture.svg for colour in (INK, PALE, GROUND))
        assert ElementTree.fromstring(picture.file.encode()).attrib["width"].endswith("pt")
        assert "var(" not in picture.file and "currentColor" not in picture.file


def test_ids_are_unique_in_a_page_and_references_stay_inside(pictures: Pictures) -> None:
    ids: Counter[str] = Counter()
    for picture in pictures.values():
        own = re.findall(r'\bid="([^"]+)"', picture.svg)
        used = re.findall(r'(?:href="#|url\(#)([^")]+)', picture.svg)
        assert set(used) <= set(own), picture.name
        ids.update(own)
    assert ids and max(ids.values()) == 1


@pytest.mark.parametrize(
    "name", ["pareto-parameters", "scores", "curves-loss", "curves-score-by-step"]
)
def test_every_candidate_has_marks(pictures: Pictures, many_pictures: Pictures, name: str) -> None:
    assert marks(pictures[name].svg) == set(range(6))
    assert marks(many_pictures[name].svg) == set(range(25))


def test_the_same_folder_gives_the_same_bytes(source: Source, pictures: Pictures) -> None:
    assert draw(read_source(source.folder)) == pictures


def test_names_are_neither_markup_nor_mathematics(pictures: Pictures) -> None:
    assert STRANGE in texts(pictures["scores"].svg)
    assert any(text.startswith(STRANGE) for text in texts(pictures["pareto-parameters"].svg))
    assert all("<b>" not in picture.svg + picture.file for picture in pictures.values())


def test_scores_are_those_of_the_results(source: Source, pictures: Pictures) -> None:
    assert source.decision is not None
    facts = source.trials_of(str(source.decision.candidate))[0].result
    expected = f"accuracy {facts.scores['sentiment']:.3f}"
    assert expected in texts(pictures["answers-sentiment"].svg)


def test_png_of_the_same_figure(pictures: Pictures) -> None:
    figure = pictures["scores"].figure
    assert figure is not None
    png = to_png(figure)
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and to_png(figure) == png


def test_filled_marks_may_be_the_best(source: Source, pictures: Pictures) -> None:
    drawn = ElementTree.fromstring(pictures["scores"].svg)
    hollow = {
        int(group.attrib["data-candidate"])
        for group in drawn.iter()
        if "data-candidate" in group.attrib and "--ground" in ElementTree.tostring(group, "unicode")
    }
    assert hollow and hollow == {
        n for n, one in enumerate(source.results.candidates) if not one.is_best
    }


# ------------------------------------------------------------------ nothing is dropped silently


def test_missing_files_are_named(source: Source, tmp_path: Path) -> None:
    """Without curves and predictions the other charts remain, and sentences say what is gone."""
    folder = shutil.copytree(source.folder, tmp_path / "made")
    for trial in (folder / "trials").iterdir():
        (trial / "curve.jsonl").unlink()
        shutil.rmtree(trial / "predictions")
    (folder / "conflicts.json").write_text("{", "utf-8")
    trials = (replace(t, folder=folder / "trials" / t.folder.name) for t in source.trials)
    charts = draw_charts(replace(source, folder=folder, trials=tuple(trials)))
    groups = {chart.group for chart in charts if isinstance(chart, Picture)}
    assert groups == {"pareto", "scores", "response"}
    told = "\n".join(chart for chart in charts if isinstance(chart, str))
    assert "Learning curves leave out" in told and "hybrid:2" in told
    assert "answers to sentiment leave out" in told and "heat map" in told


def test_candidates_without_a_cost_are_named(source: Source) -> None:
    first, *others = source.results.candidates
    bare = replace(first, costs=replace(first.costs, latency_seconds=None))
    results = replace(source.results, candidates=(bare, *others))
    with house_style():
        (chart,) = draw_cost(replace(source, results=results), "latency_seconds")
    assert f"Not shown (other tasks, or cost not measured): {first.name}." in chart.caption


def test_of_many_candidates_the_main_ones_are_named(many: Source, many_pictures: Pictures) -> None:
    """Those with a role and those on the front; the caption says how to find the others."""
    shown = texts(many_pictures["pareto-parameters"].svg)
    named = [look.name for look in candidate_looks(many).values() if look.name in shown]
    assert 1 < len(named) < 12
    assert {"recommended", "baseline"} <= {word for text in shown for word in text.split(", ")}
    assert "Hover over a mark" in many_pictures["pareto-parameters"].caption


def test_a_cost_that_nobody_measured_has_no_chart(source: Source) -> None:
    bare = tuple(
        replace(one, costs=replace(one.costs, latency_seconds=None))
        for one in source.results.candidates
    )
    assert not list(
        draw_cost(
            replace(source, results=replace(source.results, candidates=bare)), "latency_seconds"
        )
    )


def test_a_single_run_is_compared_with_nobody(source: Source) -> None:
    names = set(draw(read_source(source.trials[0].folder)))
    assert not any(name.startswith("pareto") for name in names)
    assert {"scores", "curves-loss", "answers-sentiment"} <= names


def test_the_front_joins_points_that_none_dominates(
    many: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line's corners are those that no other beats, times within 10 % being equal."""
    kept: list[Figure] = []
    monkeypatch.setattr(style, "to_picture", lambda figure, *_: kept.append(figure))
    for cost, slack in {"parameters": 1.0, "latency_seconds": 1.1, "train_seconds": 1.1}.items():
        points, _ = cost_points(many.results, cost)
        with house_style():
            list(draw_cost(many, cost))
        (line,) = (own for own in kept[-1].axes[0].lines if own.get_drawstyle() == "steps-post")
        drawn = sorted(zip(*map(list, line.get_data()), strict=True))[:-1]  # it ends at the frame
        best = {
            (x, y)
            for x, y in points.values()
            if not any(
                (px * slack < x and py >= y) or (px <= x * slack and py > y)
                for px, py in points.values()
            )
        }
        assert set(drawn) == best


def test_no_name_lies_on_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four candidates, each better and larger than the one before."""
    places = {"shared": (22.0, 0.73), "lora:8": (23.0, 0.85), "hybrid:3": (44.0, 0.93)}
    points = places | {"separate": (113.0, 0.98)}
    looks = {name: Look(name, f"candidate-{n}", SERIES[0], "o", "", True, True)
             for n, name in enumerate(points)}  # fmt: skip
    with house_style():
        figure, (axes,) = style.make_panels([""], xlabel="parameters", height=320, columns=1)
        axes.margins(x=0.12)
        axes.plot(*zip(*points.values(), strict=True), "o")
        (line,) = axes.step(*zip(*points.values(), strict=True), where="post")
        name_points(figure, line, looks, points)
        figure.draw_without_rendering()
        boxes = line_boxes(line)
        assert {text.get_text() for text in axes.texts} == set(points)
        for text in axes.texts:
            assert not text.get_window_extent().count_overlaps(boxes), text.get_text()


# ------------------------------------------------------------------ colours and names


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


def test_a_candidate_has_one_colour_in_all_pictures(source: Source, pictures: Pictures) -> None:
    looks = candidate_looks(source).values()
    expected = {int(look.gid.removeprefix("candidate-")): look.colour for look in looks}
    assert len(set(expected.values())) == len(expected) == 6
    for picture in pictures.values():
        for element in ElementTree.fromstring(picture.svg).iter():
            place = element.attrib.get("data-candidate")
            if place is not None:
                own = set(re.findall(r"#[0-9a-f]{6}\b", ElementTree.tostring(element, "unicode")))
                assert own <= {expected[int(place)]}, picture.name


def test_colours_go_by_plan_where_plans_repeat(many: Source) -> None:
    looks = candidate_looks(many)
    by_plan = {(one.plan, looks[one.name].colour) for one in many.results.candidates}
    assert len(by_plan) == len({colour for _, colour in by_plan}) == 5


def test_short_names_stay_distinct() -> None:
    long = [f"frozen+shared, learning_rate={rate}" for rate in ("1e-05", "0.0001")]
    assert short_names(long) == ["frozen+shared, 1e-05", "frozen+shared, 0.0001"]
    assert short_names(["a, rate=1", "b"]) == ["a, rate=1", "b"]  # short enough as they are
    twins = ["one, learning_rate=0.1, dropout=0.3", "one, learning_rate=0.3, dropout=0.1"]
    same = [name.replace("0.3", "0.1") for name in twins]
    assert short_names(twins) == ["one, 0.1, 0.3", "one, 0.3, 0.1"]
    assert all(len(name) == 26 and "…" in name for name in short_names(same))


# ------------------------------------------------------------------ gradient conflicts


def sample(tasks: tuple[str, ...] = ("a", "b", "c")) -> Conflicts:
    owners, places = [], []
    for n, pair in enumerate(combinations(tasks, 2)):
        for place in ("embeddings", "layer 0", "layer 1", "late1"):
            facts = {"place": place, "tasks": pair, "mean": -0.04 + 0.03 * n, "stderr": 0.01,
                     "negative": 0.5, "norm_ratio": 1.0, "own": (0.2, 0.3), "steps": 9}  # fmt: skip
            parts = ("attention", "norms") if place.startswith("layer") else (place,)
            owners += [CosineCell(part=part, owner=f"{part}/{place}", **facts) for part in parts]
            places.append(
                CosineCell(part="all", **facts, is_conflict=n == 0 and place == "layer 1")
            )
    info = {"plan": "some", "encoder": "tiny", "tasks": list(tasks), "steps": 90,
            "measured_steps": list(range(9)), "level": 0.05}  # fmt: skip
    return Conflicts(info, {}, {}, tuple(owners), tuple(places), ())


@pytest.mark.parametrize("tasks", [("a", "b"), ("a", "b", "c")])
def test_the_heat_map_has_every_cell_and_frames_conflicts(tasks: tuple[str, ...]) -> None:
    conflicts = sample(tasks)
    with house_style():
        *blocks, noise, bar = build_figure(conflicts).axes
    assert [axes.get_title(loc="left") for axes in blocks] == [
        " and ".join(pair) for pair in conflicts.pairs
    ]
    for n, axes in enumerate(blocks):
        values = axes.images[0].get_array()
        assert np.isfinite(values).sum() == 2 * 2 + 4  # parts of two layers, wholes of four places
        number = f"{-0.04 + 0.03 * n:.3f}".replace("-", "−")
        assert [text.get_text() for text in axes.texts] == [number] * 8
        assert len(axes.patches) == (1 if n == 0 else 0)
    assert len(noise.texts) == len(tasks) * 4
    assert bar.get_ylim() == pytest.approx((-0.1, 0.1))  # never narrower


def test_the_heat_map_as_files(tmp_path: Path) -> None:
    svg, png = draw_heatmap(sample(), tmp_path)
    assert ElementTree.parse(svg).getroot().tag == f"{SVG}svg"
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    first = [path.read_bytes() for path in (svg, png)]
    assert [path.read_bytes() for path in draw_heatmap(sample(), tmp_path)] == first


def test_the_heat_map_names_the_correlation_of_the_outputs() -> None:
    cells = [
        OutputCell(tasks=("a", "c"), rows_of=task, rows=99, correlation=value, low=-1.0, high=1.0,
                   own=(0.5, 0.6), is_clear=False)
        for task, value in (("a", 0.25), ("c", -0.5))
    ]  # fmt: skip
    with house_style():
        axes = build_figure(replace(sample(), outputs=tuple(cells))).axes
    titles = [each.get_title(loc="left") for each in axes[:3]]
    assert titles == ["a and b", "a and c (correlation of the outputs 0.25, -0.50)", "b and c"]


def test_a_report_shows_the_conflicts_in_its_folder(source: Source, tmp_path: Path) -> None:
    (tmp_path / "conflicts.json").write_text(sample().to_json(), "utf-8")
    bare = replace(source, folder=tmp_path, trials=())
    (picture,) = (picture for name, picture in draw(bare).items() if name == "conflicts")
    assert "−0.040" in picture.svg and "a and b" in picture.svg
    assert "#ffffff" not in picture.svg and "#000000" not in picture.svg
