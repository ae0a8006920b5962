"""`mops cache`: shows and clears the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mops.store import Store
from running import run_python


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MOPS_CACHE_LIMIT", "1MiB")
    store = Store(tmp_path / "cache")
    about = {"what": "pooled vectors", "encoder": "bert 3 x 32", "layers": 3}
    for name, count in (("one", 4), ("two", 7)):
        arrays = {"starts": np.arange(count + 1), "values": np.zeros((count, 32), np.float32)}
        assert store.add("frozen", "abc", arrays, about, name)
    return store


def test_it_lists_the_entries(kept: Store, run_cli: Any) -> None:
    code, out, err = run_cli("cache")
    assert (code, err) == (0, "")
    for text in ("pooled vectors", "bert 3 x 32", str(kept.folder), "of at most 1.0 MB"):
        assert text in out
    code, out, _ = run_cli("cache", "--json")
    found = json.loads(out)
    (entry,) = found["entries"]
    assert found["folder"] == str(kept.folder) and found["bound"] == 2**20
    assert found["bytes"] == entry["bytes"] == kept.entries()[0].bytes
    expected = {"blocks": 2, "layers": 3, "kind": "frozen", "key": "abc"}
    assert expected.items() <= entry.items()


def test_clear_says_what_it_removed(kept: Store, run_cli: Any) -> None:
    assert run_cli("cache", "--clear")[1] == "removed 1 entries, 0.0 MB\n"
    assert kept.entries() == [] and not list(kept.folder.rglob("*.mops-block"))
    assert run_cli("cache", "--clear")[1] == "removed 0 entries, 0.0 MB\n"
    assert "0.0 MB of at most" in run_cli("cache")[1]


def test_a_broken_entry_is_listed(kept: Store, run_cli: Any) -> None:
    (kept.folder / "frozen" / "abc" / "one.mops-block").write_bytes(b"?")
    (kept.folder / "frozen" / "abc" / "mops-entry.json").write_text("?")
    code, out, _ = run_cli("cache", "--json")
    assert code == 0 and json.loads(out)["entries"][0]["blocks"] == 2


def test_off_and_wrong_limits(run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE_LIMIT", "much")
    code, _, err = run_cli("cache")
    assert code == 2 and "MOPS_CACHE_LIMIT is 'much'" in err
    monkeypatch.setenv("MOPS_CACHE", "off")
    assert run_cli("cache")[1] == "the cache is off (MOPS_CACHE=off)\n"
    assert json.loads(run_cli("cache", "--json")[1])["folder"] is None
    assert run_cli("cache", "--clear")[0] == 0


def test_a_warning_is_one_line(kept: Store) -> None:
    code = (
        "import sys, warnings; from mops.cli.main import main; sys.argv = ['mops', '--version']\n"
        "try: main()\nexcept SystemExit: pass\nwarnings.warn('it is broken')"
    )
    child = run_python("-c", code)
    assert child.stderr == "mops: warning: it is broken\n"


def test_no_torch_is_loaded(kept: Store) -> None:
    code = (
        "import sys; sys.argv = ['mops', 'cache']; from mops.cli.main import main; main();"
        "assert 'torch' not in sys.modules"
    )
    assert run_python("-c", code).returncode == 0
