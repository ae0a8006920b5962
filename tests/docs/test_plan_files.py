"""The plans in docs/plan-files.md are plans: they are read, laid out and built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from building import THREE_TASKS, build_network, tiny_shape
from mops.plans.catalog import read_plan
from mops.plans.rows import KINDS, SITES
from mops.yaml_io import parse_yaml

DOCS = Path(__file__).parents[2] / "docs"
PAGE, *MORE = ((DOCS / name).read_text("utf-8") for name in ("plan-files.md", "related-work.md"))
BLOCKS = [block for page in (PAGE, *MORE) for block in re.findall(r"```yaml\n(.*?)```", page, re.S)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_a_plan_of_the_page_is_built(block: str) -> None:
    plan = read_plan(parse_yaml(block))
    network = build_network(plan, shape=tiny_shape(depth=6), tasks=THREE_TASKS)
    assert network.layout.parameters == sum(p.numel() for p in network.parameters())


def test_the_page_names_every_kind_and_site() -> None:
    assert len(BLOCKS) > 5
    for word in (*KINDS, *SITES, "frozen-head", "start", "copies"):
        assert f"`{word}`" in PAGE, word
