"""docs/scale.md: computed from results and layouts as its formulas say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mops.model.sources import find_encoder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield __import__("make_scale")
    for name in ("make_scale", "make_performance", "performance_tables"):
        sys.modules.pop(name)


def comparison(**seconds: float) -> dict[str, Any]:
    first = next(iter(seconds.values()))
    names = {name.replace("_", " "): value for name, value in seconds.items()}
    found = {n: {"seconds": value, "speedup": first / value} for n, value in names.items()}
    return {"reference": next(iter(names)), "rounds": 5, "alternatives": found}


def test_a_billion_texts(maker: ModuleType) -> None:
    """1000 texts in each of five rounds; 250 s for them are four texts a second."""
    data = {"pairs": 2500, "cases": {"bi": comparison(theirs=500.0, mops_shared=250.0)}}
    lines = maker.billion(data)
    assert "| bi | mops shared | 4.0 | 69,444 |" in lines  # 1e9 / 4 / 3600
    assert "| bi | theirs | 2.0 | 138,889 |" in lines
    case = comparison(transformers=9.0, mops=2.0) | {"sequences": 7}
    assert "| 64 | 3.5 | 79,365 |" in maker.by_length({"prediction": {"64": case}})


def test_what_ray_adds(maker: ModuleType) -> None:
    facts = {"start_seconds": 21.2, "seconds_per_million_rows": {"local": 9.0, "ray": 45.0}}
    said = maker.ray_costs(facts)[0]
    assert "9.0 s of processor time in one process and 45.0 s through Ray" in said
    assert "21 s" in said
    assert "10.0 core-hours" in said  # 36 s for each of a thousand million


def test_more_tasks_are_on_a_straight_line(maker: ModuleType) -> None:
    cases = {"one text": comparison(**{"1 tasks": 1.0, "9 tasks": 3.0})}
    cases["70 texts"] = comparison(**{"1 tasks": 10.0, "9 tasks": 12.0})
    said = maker.head_cost({"cases": cases})[0]
    assert "9 tasks on 70 texts took 1.20 times as long as one task, 2.50% more" in said
    assert "1,000 tasks take 26.0 times as long" in said  # 1 + 999 x 0.025


def test_a_thousand_tasks(maker: ModuleType) -> None:
    layouts = maker.make_layouts()
    width = find_encoder("minilm", ["config.json"]).shape.width
    (one, full), (separate_one, separate) = layouts["shared"], layouts["separate"]
    head = 5 * (width + 1)  # weights and biases of five classes
    assert full.parameters - one.parameters == 999 * head
    assert separate.parameters == 1000 * separate_one.parameters
    rows = maker.tasks_table(layouts)
    whole = f"| {head:,} | {full.parameters:,} | {4 * full.parameters / 1e6:.1f} MB | 6 |"
    assert f"| `shared` {whole}" in rows
    passes = {plan: maker.layer_passes(full) for plan, (_, full) in layouts.items()}
    assert passes["separate"] == passes["lora:8"] == 6000
    assert passes["hybrid:3"] == 3003


def test_the_page_is_up_to_date_and_names_the_source_of_every_table(maker: ModuleType) -> None:
    page = maker.PAGE.read_text("utf-8")
    assert page == maker.page(maker.read_results(maker.RESULTS)), "run `make docs`"
    for name in re.findall(r"Measured by `python -m benchmarks\.(\w+)", page):
        assert (maker.RESULTS / f"{name}.json").is_file()
