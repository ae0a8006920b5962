"""The README and the docs tell the truth: what they show works."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from mops.cli.main import COMMANDS, cli
from mops.plans.catalog import SHORT_FORMS

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def blocks(text: str, *languages: str) -> list[str]:
    """The code blocks of a page in one of these languages ('' for none)."""
    parts = re.split(r"^```(.*)$", text, flags=re.MULTILINE)
    opened = zip(parts[1::4], parts[2::4], strict=True)  # each fence opens, then closes
    return [body.lstrip("\n") for language, body in opened if language in languages]


def shown_commands() -> list[str]:
    """Every `mops ...` line in a code block of a page."""
    found = []
    for page in PAGES:
        for block in blocks(page.read_text("utf-8"), "", "console", "sh"):
            lines = (line.strip().removeprefix("$ ") for line in block.splitlines())
            found += [line for line in lines if re.match(r"mops [a-z]+( |$)", line)]
    return sorted(set(found))


@pytest.mark.parametrize("line", shown_commands())
def test_commands_that_are_shown_exist(line: str) -> None:
    """The command and all of its options parse."""
    _, name, *words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)
    parent = click.Context(cli, **cli.context_settings)
    command = cli.get_command(parent, name)
    assert command is not None, f"{line}: no such command"
    command.make_context(name, words, parent=parent)


def test_every_command_and_plan_is_documented() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text("utf-8")
    plans = (ROOT / "docs" / "plans.md").read_text("utf-8")
    assert all(f"## mops {name}" in commands for name in COMMANDS)
    forms = [form for entry in SHORT_FORMS.values() for form in entry.form.split("|")]
    assert all(f"`{form}`" in plans for form in forms)


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    make_docs = __import__("make_docs")
    for name, page in make_docs.PAGES.items():
        assert (ROOT / "docs" / name).read_text("utf-8") == page(), f"{name}: run `make docs`"
    sys.modules.pop("make_docs")


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pages_name_files_that_exist() -> None:
    """Every module named with its room (`model/encoder.py`) is there, and the README is short."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"):
        for name in re.findall(r"`(?:src/mops/)?([a-z_]+/[a-z_/]+\.py)`", page.read_text("utf-8")):
            places = (ROOT / "src" / "mops" / name, ROOT / name)
            assert any(place.is_file() for place in places), f"{page.name}: {name}"
    assert len(README.splitlines()) <= 160


def test_the_walk_is_short() -> None:
    """From a row to the report: at most 40 files, all of them there."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    walk = text.split("## The walk")[1].split("\n## ")[0]
    files = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", walk)
    assert 10 < len(files) <= 40
    assert all((ROOT / "src" / "mops" / name).is_file() for name in files)


def test_no_word_about_this_machine() -> None:
    """Pages and sources name no folder of the machine that they were written on."""
    here = str(ROOT)
    if here in ("/", os.sep):
        pytest.skip("the project lies at the root")
    for file in [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]:
        assert here not in file.read_text("utf-8"), file
