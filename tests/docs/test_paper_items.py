"""Every item of the papers has a command that parses; a third of them is run on toy data."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from mops.cli.main import cli
from mops.yaml_io import read_yaml
from running import run_cli_with, world

ROOT = Path(__file__).parent.parent.parent
ITEMS = [item for group in read_yaml(ROOT / "scripts/paper_items.yaml").values() for item in group]
COMMANDS = {number: command for number, _, _, command in ITEMS}
WITH_ENCODER = {"train", "check", "plans", "survey", "tune", "conflicts"}
RUN = [number for number in COMMANDS if number % 3 == 2]


def test_items_are_numbered_without_a_gap() -> None:
    assert [item[0] for item in ITEMS] == list(range(1, 136))
    assert len(RUN) >= len(ITEMS) / 3


@pytest.mark.parametrize("number", COMMANDS)
def test_the_command_of_an_item_parses(number: int) -> None:
    program, name, *words = shlex.split(COMMANDS[number])
    parent = click.Context(cli, **cli.context_settings)
    command = cli.get_command(parent, name)
    assert program == "mops" and command is not None
    command.make_context(name, words, parent=parent)


@pytest.mark.slow
@pytest.mark.parametrize("number", RUN)
def test_the_command_of_an_item_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As it stands, in a folder with the files that it names; the encoder is a tiny one."""
    shutil.copytree(world().data, tmp_path / "cs224n")
    for split in ("train", "dev"):  # CFIMDB has the columns of SST
        rows = (tmp_path / "cs224n" / f"ids-sst-{split}.csv").read_text("utf-8").splitlines()
        movies = [rows[0], *(f"{row[:-1]}{int(row[-1]) % 2}" for row in rows[1:])]
        (tmp_path / "cs224n" / f"ids-cfimdb-{split}.csv").write_text("\n".join(movies), "utf-8")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    shutil.copytree(world().run, tmp_path / "runs" / "first")
    monkeypatch.chdir(tmp_path)
    _, name, *words = shlex.split(COMMANDS[number])
    if name in WITH_ENCODER:
        words += ["--encoder", str(world().encoder)]
    code, _, errors = run_cli_with(monkeypatch, capsys)(name, *words)
    assert code == 0, errors
