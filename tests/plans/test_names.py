"""A plan is data: no file but the table knows one by its name, and a new one needs nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from properties import PROPERTIES, reading_for

import mops
from building import DEPTH, NAMES, THREE_TASKS, as_plan, tiny_shape
from mops.errors import PlanError
from mops.plans import catalog as table
from mops.plans.catalog import SHORT_FORMS, every_plan, parse_plan
from mops.plans.layout import lay_out
from mops.plans.shapes import Reading

ROOT = Path(__file__).parents[2]
SOURCE = Path(mops.__file__).parent
ENGLISH = ("shared", "separate")  # plan names only when nothing else stands in the text
AROUND = "`'\"()[]{}<>.,;:!?*"


def is_plan(word: str) -> bool:
    try:
        parse_plan(word)
    except PlanError:
        return False
    return True


def names_in(text: str) -> Iterator[str]:
    """Words of a text that are plans."""
    for word in text.split():
        bare = word.strip(AROUND)
        if is_plan(bare) and (bare not in ENGLISH or text == bare):
            yield bare


def texts_in(file: Path) -> Iterator[tuple[int, str]]:
    """Every text constant of a file, pieces of f-strings too; docstrings may name examples."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.lineno, str(node.value)


def test_what_counts_as_a_name() -> None:
    assert list(names_in("as `hybrid:3`, or (frozen+late:SIS); shared weights")) == [
        "hybrid:3",
        "frozen+late:SIS",
    ]
    assert list(names_in("separate")) == ["separate"]
    assert list(names_in("lora: a kind; late layers, soft:")) == []


def test_only_the_tables_of_plans_experiments_and_papers_know_plans_by_name() -> None:
    """A paper's row is beside our candidate of the same plan, so its data names that plan."""
    tables = {
        SOURCE / "plans" / "catalog.py",
        SOURCE / "surveys" / "experiments.py",
        *(SOURCE / "papers").iterdir(),
    }
    files = [file for file in sorted(SOURCE.rglob("*.py")) if file not in tables]
    assert len(files) > 50
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {name}"
        for file in files
        for line, text in texts_in(file)
        for name in names_in(text)
    ]
    assert not found, "\n".join(found)


# ------------------------------------------------------------------ a new plan


def lines_of_the_guide() -> str:
    """The lines that CONTRIBUTING.md adds to catalog.py."""
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (block,) = re.findall(r"```diff\n(.*?)```", guide.split("## Adding a plan")[1], re.DOTALL)
    return "\n".join(re.findall(r"^ *\+ (.*)$", block, re.MULTILINE))


@pytest.fixture
def new_plan() -> Iterator[None]:
    """The plan of the guide, entered into the table for one test."""
    before = dict(SHORT_FORMS)
    exec(compile(lines_of_the_guide(), "CONTRIBUTING.md", "exec"), dict(vars(table)))
    yield
    SHORT_FORMS.clear()
    SHORT_FORMS.update(before)


def test_the_plan_of_the_guide_is_a_plan_like_any_other(new_plan: None) -> None:
    plan = parse_plan("norms")
    assert plan.about and plan.source
    assert plan in every_plan(DEPTH, NAMES)
    layout = lay_out(parse_plan("frozen+norms"), THREE_TASKS, tiny_shape(), reading_for(plan))
    assert {owner for owner in layout.sizes if "/layer00/" in owner} == {
        f"norms/layer00/{task}" for task in NAMES
    }
    for holds in PROPERTIES:
        holds(plan, "bert")


def test_and_it_is_gone_afterwards() -> None:
    with pytest.raises(PlanError, match="unknown plan 'norms'"):
        parse_plan("norms")


def test_one_copy_for_all_layers_is_one_owner() -> None:
    plan = {"name": "one", "copies": [{"part": "attention", "per": []}]}
    layout = lay_out(as_plan(plan), THREE_TASKS, tiny_shape(), Reading())
    assert [name for name in layout.sizes if name.startswith("attention")] == ["attention"]
    assert layout.trunk["attention"][1] == tuple(range(DEPTH))
