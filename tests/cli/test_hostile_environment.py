"""Streams, encodings, homes and limits that fail: each is one line, or it just works."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mops import store
from mops.api import progress
from mops.cli import main, screen
from mops.errors import MopsError
from mops.tables import HIDDEN
from running import run_python

FIXTURE = Path(__file__).parents[1] / "fixtures/run/model"
MOPS = ("-m", "mops")
CHANGED = """
import os, sys
for number in map(int, sys.argv[1]):
    os.close(number)
    if sys.argv[2]:
        os.set_inheritable(os.open(sys.argv[2], os.O_WRONLY), True)  # the lowest number is free
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def closed(numbers: str, *words: str, other: str = "") -> Any:
    """A command whose streams of these numbers are closed, or opened on another file."""
    return run_python("-c", CHANGED, numbers, other, *MOPS, *words)


def assert_one_line(err: str, *words: str) -> None:
    assert err.startswith("mops: error: ") and err.count("\n") == 1, err
    assert "Traceback" not in err and "unexpected" not in err, err
    for word in words:
        assert word in err, err


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line() -> None:
    done = closed("1", "plans")
    assert done.returncode == 1
    assert_one_line(done.stderr, "standard input or output", "Bad file descriptor")
    done = closed("1", "plans", other="/dev/full")
    assert done.returncode == 1
    assert_one_line(done.stderr, "No space left")


@pytest.mark.slow
def test_closed_streams_that_are_not_needed() -> None:
    assert closed("02", "plans", "--json").returncode == 0
    assert closed("012", "plans", "shared", "--yaml").returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_of_the_terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = run_python(*MOPS, "plans", "hybrid:1")
    assert done.returncode == 0, done.stderr
    assert json.loads(run_python(*MOPS, "plans", "--json").stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.parametrize("megabytes", [250, 600, 1100])
def test_too_little_memory_is_one_line(megabytes: int) -> None:
    limit = (
        "import resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({megabytes} << 20,) * 2); "
        "from mops.cli.main import main; main()"
    )
    done = run_python("-c", limit, "predict", str(FIXTURE), "-", stdin="sentence\nban\n")
    if done.returncode:
        assert done.returncode in (1, 2), done.stderr
        *rest, last = done.stderr.splitlines(keepends=True)
        assert_one_line(last, "memory")
        assert "Traceback" not in "".join(rest)


def test_arguments_that_are_not_utf_8(run_cli: Any) -> None:
    code, _, err = run_cli("predict", str(FIXTURE), os.fsdecode(b"/tmp/\xff.csv"))
    assert code == 2
    assert_one_line(err, r"\udcff", "not UTF-8")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory"),
        (RuntimeError("can't allocate memory: you tried"), "out of memory"),
        (RuntimeError("can't start new thread"), "out of memory or of threads"),
        (OSError(28, "No space left on device", "/data/x"), "/data/x: No space left"),
        (UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates"), "cannot be written as UTF-8"),
        (ZeroDivisionError("division"), "unexpected ZeroDivisionError"),
        (MopsError("mine"), "mine"),
    ],
)
def test_what_an_error_says(error: Exception, words: str) -> None:
    assert words in main.describe(error)


def test_without_a_home_directory_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", store.FOLDER):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert store.find_store() is None


HOSTILE = "ok\u202eevil\x1b[31m\x07\x9b\u200b\ud83d\xad\U000e0041"


def test_hidden_characters_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(screen.OUT, "_file", out)
    screen.print_table(HOSTILE, ["column"], [[HOSTILE]], HOSTILE)
    screen.OUT.print(HOSTILE)
    assert out.getvalue().count(r"ok\u202eevil\u001b[31m") == 4
    screen.echo(HOSTILE)
    screen.respond(True, {"x": HOSTILE}, print)
    main.say(HOSTILE)
    shown = capsys.readouterr()
    assert not HIDDEN.search(out.getvalue() + shown.out + shown.err)
    assert json.loads(shown.out.partition("\n")[2]) == {"x": HOSTILE}


def test_markup_in_names_does_not_reach_the_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    terminal = progress.Screen(file=out, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(progress, "ERR", terminal)
    with progress.ProgressBar("title", 2) as bar:
        bar.show(advance=1, facts="[/red] a[red]b")
    with progress.ERR.status("[/red].csv"):
        pass
    assert "[/red] a[red]b" in out.getvalue()
