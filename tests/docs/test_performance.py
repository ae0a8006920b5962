"""docs/performance.md: every number is a result's; what was not run is said."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield __import__("make_performance")
    for name in ("make_performance", "performance_tables"):
        sys.modules.pop(name)


MACHINE = {
    "python": "3.99",
    "processor": "Abacus",
    "cores": 5,
    "packages": {"torch": "8.8", "transformers": "7.7"},
}


def result(**facts: Any) -> dict[str, Any]:
    head = {"name": "x", "made": "2001-02-03", "command": "python -m benchmarks.x --data d"}
    return {**head, "machine": MACHINE, **facts}


def comparison(theirs: float, ours: float, **facts: Any) -> dict[str, Any]:
    """Two alternatives; a quarter of the peak at one second."""
    sides = {"transformers": theirs, "mops": ours}
    return {
        "reference": "transformers",
        "rounds": 7,
        "peak_gflops": 66.6,
        "alternatives": {
            name: {"seconds": value, "speedup": theirs / value, "share_of_peak": 0.25 / value}
            for name, value in sides.items()
        },
        **facts,
    }


def test_a_case_is_a_row_for_each_alternative(maker: ModuleType) -> None:
    page = maker.page({"training_step": result(cases={"bi 8": comparison(1.5, 0.6)})})
    assert "| bi 8 | transformers | 1,500.0 | 1.00 | 17% |" in page
    assert "| bi 8 | mops | 600.0 | 2.50 | 42% |" in page
    assert "mops: 2.50 times as fast as transformers." in page
    assert "Slower" not in page


def test_what_is_slower_is_said(maker: ModuleType) -> None:
    cases = {"8": comparison(1.0, 0.5), "16": comparison(1.0, 1.25)}
    page = maker.page({"latency": result(cases=cases)})
    assert "mops: 0.80 to 2.00 times as fast as transformers." in page
    assert "**Slower**: mops at 16 (0.80)." in page


def test_more_tasks_are_a_cost(maker: ModuleType) -> None:
    page = maker.page({"many_tasks": result(cases={"one text": comparison(1.0, 1.25)})})
    assert "| one text | mops | 1,250.0 | 1.25 |" in page
    assert "- mops: 1.25 times the cost of transformers." in page


def test_sizes_are_rows_with_both_times(maker: ModuleType) -> None:
    sizes = {"1": comparison(0.02, 0.01, tokens=70)}
    lengths = {"512": comparison(0.3, 0.1, sequences=6, padding=0.25)}
    page = maker.page(
        {
            "batch_sizes": result(cases=sizes),
            "lengths": result(tokens=2048, training=lengths, prediction=lengths),
        }
    )
    assert "| 1 | 70 | 20.0 | 10.0 | 2.00 | 2500% |" in page
    assert page.count("| 512 | 6 | 25% | 300.0 | 100.0 | 3.00 | 250% |") == 2
    assert "Training, 2,048 tokens:" in page


def test_memory_is_the_peak_and_what_is_above_the_libraries(maker: ModuleType) -> None:
    ours = {"peak_mib": 1024.4, "libraries_mib": 300.2}
    theirs = {"peak_mib": 662.3, "libraries_mib": 300.2}
    sides = {"transformers, one model": theirs, "mops shared": ours}
    page = maker.page({"memory": result(works={"training": {"8": sides}})})
    assert "- training: mops shared takes 2.00 times what transformers, one model takes" in page
    assert "| training | 8 rows per task, MiB |" in page
    assert "| mops shared | 1,024 (724) |" in page


def test_the_profile_names_what_is_largest(maker: ModuleType) -> None:
    shares = {"linear layers, forward": 0.5, "attention": 0.3, "GELU": 0.05, "dropout": 0.15}
    theirs = {**dict.fromkeys(shares, 0.0), "linear layers, forward": 1.0}
    works = {
        "prediction": {
            "mops": {"seconds": 0.5, "shares": {**shares, "optimizer": 0.0}},
            "transformers": {"seconds": 1.0, "shares": {**theirs, "optimizer": 0.0}},
        }
    }
    page = maker.page({"profile": result(works=works)})
    assert "| attention | 30.0% | 0.0% |" in page
    assert "optimizer |" not in page
    assert "50% of the time are matrix products" in page
    assert "attention (30%), dropout (15%), GELU (5%)" in page


def test_stages_of_the_survey_are_rows(maker: ModuleType) -> None:
    stage = {"seconds": 90.0, "training_seconds": 60.0, "milliseconds_per_network_step": 1.25}
    facts = {"networks": 3, "steps": 4000, "processes": 6, "seconds": 90.0}
    facts |= {"encoding_seconds": 20.0, "sequences": 12345}
    alone = {"seconds_per_step": 0.05, "measured_steps": 7, "seconds": 2700.0, "speedup": 30.0}
    stages = {"loss_weights": {**stage, "networks": [{}, {}, {}]}}
    page = maker.page({"frozen_survey": result(**facts, one_by_one=alone, stages=stages)})
    assert "| loss weights | 3 | 90 | 60 | 1.25 |" in page
    assert "3 networks of 4,000 steps in 6 processes: 90 s of wall time" in page
    assert "20 s for encoding 12,345 sequences" in page
    assert "50.0 ms a step (7 steps measured" in page
    assert "2,700 s, 30 times as long" in page


def test_any_other_result_is_a_list_of_its_facts(maker: ModuleType) -> None:
    page = maker.page({"latency": result(seconds={"training": 12.5}, networks=34)})
    assert "| seconds training | 12.500 |" in page
    assert "| networks | 34 |" in page
    assert "| processor" not in page


def test_a_section_says_when_how_and_where_it_was_made(maker: ModuleType) -> None:
    page = maker.page({"latency": result(cases={"one": comparison(1, 1)})})
    made = "2001-02-03, Abacus, 5 cores, one thread, Python 3.99, torch 8.8, transformers 7.7"
    assert f"`python -m benchmarks.x --data d`; {made}, 7 rounds." in page


def test_without_results_there_is_no_number(maker: ModuleType) -> None:
    page = maker.page({})
    assert page.count("Not run") == len(maker.SECTIONS)
    words = re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)
    assert re.findall(r"\d+", words) == []
    assert re.findall(r"\d+", maker.speed({})) == []


def test_every_benchmark_has_a_section(maker: ModuleType) -> None:
    from benchmarks.__main__ import known

    assert set(known()) <= set(maker.SECTIONS)


def test_results_name_no_folder(maker: ModuleType) -> None:
    for file in maker.RESULTS.glob("*.json"):
        assert not re.search(r'[ "]\.{0,2}/\w', file.read_text("utf-8")), file.name


def test_pages_are_up_to_date(maker: ModuleType) -> None:
    """The README's figures too: they are written from the same results."""
    for path, text in maker.pages().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `make docs`"
    assert maker.BEGIN in maker.README.read_text("utf-8")


def test_figures_of_the_readme(maker: ModuleType) -> None:
    """Ratios from the smallest to the largest; memory without the libraries."""
    cases = {"bi": comparison(0.3, 0.1), "cross": comparison(0.3, 0.2)}
    for case in cases.values():
        case["alternatives"]["mops shared"] = case["alternatives"].pop("mops")
    used = {
        "transformers, one model": {"peak_mib": 500.0, "libraries_mib": 100.0},
        "mops shared": {"peak_mib": 400.0, "libraries_mib": 100.0},
    }
    part = maker.speed(
        {
            "prediction": result(cases=cases),
            "memory": result(works={"training": {"8": used}, "prediction": {}}),
        }
    )
    assert "1.5 to 3.0 times" in part
    assert "0.75 times the memory" in part
    assert part.count("`python -m benchmarks.x --data d`") == 2


def test_the_readme_keeps_all_but_its_part_on_speed(maker: ModuleType) -> None:
    part = maker.speed({"training_step": result(cases={"bi 8": comparison(1.5, 0.6)})})
    assert "is 2.5 times as fast" in part
    before = f"above\n{maker.BEGIN}\nold\n{maker.END}\nbelow\n"
    assert maker.with_speed(before, part) == f"above\n{part}\nbelow\n"
