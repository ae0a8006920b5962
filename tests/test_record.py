"""The record of a run: typed, with a format number, and one line for what is no record."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mops.errors import UsageError
from mops.record import checkout_commit, machine_info, read_curve, read_record
from surveying import Skill, made_record, plain_recipe


def test_a_record_reads_back_as_it_was(tmp_path: Path) -> None:
    record = made_record(plain_recipe(), {}, Skill())
    (tmp_path / "record.json").write_text(record.to_json(), "utf-8")
    assert read_record(tmp_path / "record.json") == record


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 0}, "its format is 0, expected 2; make it again"),
        ({"warnings": 3}, "warnings must be a list; found 3"),
        ({"train_info": {}}, "train_info.steps is missing"),
    ],
)
def test_what_is_no_record_is_one_line(tmp_path: Path, change: dict, problem: str) -> None:
    path = tmp_path / "record.json"
    data = json.loads(made_record(plain_recipe(), {}, Skill()).to_json())
    path.write_text(json.dumps(data | change), "utf-8")
    with pytest.raises(UsageError) as caught:
        read_record(path)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_torn_line_ends_a_curve(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    assert list(read_curve(path)) == []
    first, second = (f'{{"step": {n}, "epoch": 0.5, "seconds": 1}}\n' for n in (1, 2))
    path.write_text(first + second + '{"st', "utf-8")
    assert [line["step"] for line in read_curve(path)] == [1, 2]


# ------------------------------------------------------------------ the commit of a checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, and hooks and a monitor that leave a trace when they run."""
    root, trace = tmp_path / "checkout", tmp_path / "ran"
    root.mkdir()
    git(root, "init", "-q")
    (root / "file").write_text("one", "utf-8")
    git(root, "add", "file")
    git(root, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "one")
    script = root / ".git" / "hooks" / "fsmonitor-watchman"
    for hook in (script, script.with_name("post-index-change")):
        hook.write_text(f"#!/bin/sh\ntouch {trace}\n", "utf-8")
        hook.chmod(0o755)
    git(root, "config", "core.fsmonitor", str(script))
    return root


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_the_commit_of_a_checkout_and_whether_it_was_changed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    (tmp_path / "ran").unlink(missing_ok=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # as inside a hook of git
    assert checkout_commit.__wrapped__(checkout) == commit
    (checkout / "new").write_text("untracked", "utf-8")
    assert checkout_commit.__wrapped__(checkout) == commit
    (checkout / "file").write_text("changed", "utf-8")
    assert checkout_commit.__wrapped__(checkout) == f"{commit}-dirty"
    assert not (tmp_path / "ran").exists()
    monkeypatch.delenv("GIT_DIR")
    git(checkout, "status")
    assert (tmp_path / "ran").exists(), "the monitor would have run"
    monkeypatch.setenv("PATH", "")
    assert checkout_commit.__wrapped__(checkout) == ""


def test_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert checkout_commit(tmp_path) == ""
    (tmp_path / ".git").write_text("gitdir: nowhere", "utf-8")
    assert checkout_commit.__wrapped__(tmp_path) == ""
    assert str(tmp_path) not in json.dumps(machine_info()["commit"])
