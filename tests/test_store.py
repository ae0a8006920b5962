"""The store: bounded, shared by processes, and never believed when it is broken."""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mops import store
from mops import store as block_files
from mops.errors import UsageError
from mops.store import Store, StoreWarning, find_store
from running import run_python

ARRAYS = {
    "ids": np.arange(10, dtype=np.int32),
    "starts": np.array([0, 4, 10]),
    "values": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "none": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False, True]),
}


def block(kibibytes: int, value: int = 0) -> dict[str, Any]:
    return {"values": np.full(1024 * kibibytes, value, np.uint8)}


def used_at(kept: Store, kind: str, key: str, moment: int) -> None:
    os.utime(kept.folder / kind / key, (moment, moment))


def keys(kept: Store) -> list[str]:
    return [entry.folder.name for entry in kept.entries()]


def test_what_is_written_is_read_by_another(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    assert kept.read("tokens", "a") is None
    assert kept.add("tokens", "a", ARRAYS, {"what": "tokens"})
    found = Store(tmp_path).read("tokens", "a")
    assert found is not None and found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
    with pytest.raises(ValueError, match="read-only"):
        found["ids"][0] = 1  # mapped
    (entry,) = kept.entries()
    assert entry.folder == tmp_path / "tokens" / "a" and entry.about == {"what": "tokens"}
    assert entry.blocks == 1
    assert entry.bytes == sum(file.stat().st_size for file in (tmp_path / "tokens/a").iterdir())


def test_the_file_is_what_safetensors_reads(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    Store(tmp_path).add("tokens", "a", ARRAYS, {})
    (path,) = tmp_path.rglob("*.mops-block")
    assert np.array_equal(load_file(path)["values"], ARRAYS["values"])


@pytest.mark.parametrize("where", range(0, 600, 7))
def test_a_flipped_bit_or_a_cut_file_is_never_believed(tmp_path: Path, where: int) -> None:
    """In the header or in the data: what comes back is what was written, or nothing."""
    Store(tmp_path).add("tokens", "a", ARRAYS, {})
    (path,) = tmp_path.rglob("*.mops-block")
    whole = path.read_bytes()
    at = where % len(whole)
    for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
        path.write_bytes(damaged)
        with pytest.warns(StoreWarning, match="broken and was removed"):
            assert Store(tmp_path).read("tokens", "a") is None
        assert not path.exists()


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    kept = Store(tmp_path, limit=100 * 1024)
    for n, key in enumerate("abc"):
        assert kept.add("x", key, block(30, n), {})
        used_at(kept, "x", key, 1000 + n)
    assert kept.read("x", "a") is not None  # used now
    assert kept.add("x", "d", block(30), {})
    assert sorted(keys(kept)) == ["a", "c", "d"]
    assert sum(entry.bytes for entry in kept.entries()) <= 100 * 1024


def test_what_can_never_fit_removes_nothing(tmp_path: Path) -> None:
    kept = Store(tmp_path, limit=100 * 1024)
    assert kept.add("x", "a", block(30), {})
    assert not kept.add("x", "b", block(101), {})
    assert kept.add("x", "c", block(60), {}, "1") and not kept.add("x", "c", block(60), {}, "2")
    assert sorted(keys(kept)) == ["a", "c"]
    assert {entry.blocks for entry in kept.entries()} == {1}


def test_many_blocks_are_written_with_few_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding a block does not look at all entries; the limit still holds."""
    kept, scans, opened = Store(tmp_path, limit=500 * 1024), [], []
    entries, block_type = Store.entries, store.StoredBlock
    monkeypatch.setattr(Store, "entries", lambda self: scans.append(1) or entries(self))
    monkeypatch.setattr(store, "StoredBlock", lambda path: opened.append(path) or block_type(path))
    assert all(kept.add("x", "a", block(1), {}, str(n)) for n in range(100))
    assert len(scans) < 15 and len(opened) == 100
    assert kept.add("x", "b", block(420), {}) and keys(kept) == ["b"]


def test_never_more_than_half_of_the_free_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Store(tmp_path / "not" / "yet", limit=10**9)
    free = type("Usage", (), {"free": 100 * 1024})
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: free)
    assert kept.bound(0) == 50 * 1024
    assert kept.add("x", "a", block(40), {}) and not kept.add("x", "b", block(110), {})


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = Store(tmp_path)
    monkeypatch.setattr(store, "save", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert not kept.add("x", "a", block(1), {})
        assert not kept.add("x", "b", block(1), {})
    (warning,) = caught
    message = r"cannot write to the cache .*No space left.*continues"
    assert warning.category is StoreWarning and re.match(message, str(warning.message))
    assert not list(tmp_path.rglob("*.mops-block")) and not list(tmp_path.rglob(".*.part"))


def test_a_place_that_cannot_be_a_folder_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = Store(tmp_path / "file")
    with pytest.warns(StoreWarning, match="cannot write"):
        assert not kept.add("x", "a", block(1), {})
    assert kept.read("x", "a") is None and kept.entries() == []


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file in use cannot be removed")
def test_a_reader_keeps_what_another_removes(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    kept.add("x", "a", ARRAYS, {})
    found = kept.read("x", "a")
    assert len(Store(tmp_path).clear()) == 1 and not list(tmp_path.rglob("*.mops-block"))
    assert found is not None and np.array_equal(found["values"], ARRAYS["values"])


def test_clear_removes_nothing_of_others(tmp_path: Path) -> None:
    """Whoever names his home as the folder keeps what is in it, whatever it is called."""
    others = (
        "letter.txt", "photos/2020/about.json", "photos/2020/lego.block", "photos/2020/.one.part",
        "x/a/about.json", "x/a/notes.txt", "x/a/quarry.block",
    )  # fmt: skip
    for place in others:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("mine")
        os.utime(tmp_path / place, (1000, 1000))
    kept = Store(tmp_path, limit=3 * 1024)
    for key in "abc":  # making room removes the first ones
        assert kept.add("x", key, block(1), {})
    assert keys(kept) != list("abc") and kept.clear()
    left = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert left == sorted(others)


def test_drafts_of_killed_processes_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    kept.add("x", "a", block(1), {})
    old, fresh = (tmp_path / "x" / "a" / f".{name}.mops-block.1.part" for name in ("old", "fresh"))
    for draft in (old, fresh):
        draft.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    Store(tmp_path).add("x", "b", block(1), {})
    assert not old.exists() and fresh.exists()


CHILD = """
import sys
import numpy as np
from pathlib import Path
from mops.store import Store
kept = Store(Path(sys.argv[1]), 400 * 1024)
for n in range(40):
    for key in "ab":
        name = str(n % 8)
        made = kept.add("x", key, {"values": np.full(10240, n % 8, np.uint8)}, {}, name)
        for block in kept.blocks("x", key):
            assert block.is_sound and (block.arrays["values"] == int(block.path.stem)).all()
print("done")
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Both write and read the same entries; nobody reads anything that is not whole."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        for child in pool.map(lambda _: run_python("-c", CHILD, str(tmp_path)), range(2)):
            assert child.stdout == "done\n" and child.stderr == "", child.stderr
    assert {entry.blocks for entry in Store(tmp_path).entries()} == {8}


# ------------------------------------------------------------------ where, and how large


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/mops"),
        ({}, "/home/me/.cache/mops"),
        ({"MOPS_CACHE": "/mine"}, "/mine"),
        ({"MOPS_CACHE": "~/mine"}, "/home/me/mine"),
    ],
)
def test_the_usual_places(
    named: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOPS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **named}.items():
        monkeypatch.setenv(name, value)
    found = find_store()
    assert found is not None and found.folder == Path(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", 8 * 2**30), ("1000", 1000), ("4GiB", 4 * 2**30), ("1.5 gb", 15 * 10**8), ("0", 0)],
)
def test_limits(given: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE_LIMIT", given)
    found = find_store()
    assert found is not None and found.limit == expected


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE_LIMIT", "much")
    with pytest.raises(UsageError, match=r"MOPS_CACHE_LIMIT is 'much'.*as 4GiB"):
        find_store()


def test_checksums_tell_names_types_and_shapes_apart() -> None:
    one = np.arange(4, dtype=np.int32)
    others = [{"b": one}, {"a": one.astype(np.uint32)}, {"a": one.reshape(2, 2)}]
    found = {block_files.checksum(each) for each in ({"a": one}, *others)}
    assert len(found) == 4


def test_any_flipped_bit_of_a_header_is_a_broken_block(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    made = kept.add("tokens", "k", ARRAYS, {})
    assert made is not None
    whole = made.path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for bit in range(8 * header):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        made.path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            read = kept.read("tokens", "k")
        if read is not None:  # a blank of the padding, or a key that nobody reads
            assert all(np.array_equal(read[name], ARRAYS[name]) for name in ARRAYS)
        else:
            assert not made.path.exists()


@pytest.mark.parametrize(
    "row",
    [
        {"dtype": "F32", "shape": [2**70], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": []},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 1, 2]},
        {"dtype": "F32", "shape": "x", "data_offsets": ["a", 4]},
        {"dtype": {}, "shape": [1], "data_offsets": [0, 4]},
        [],
    ],
)
def test_any_header_is_read_or_broken(tmp_path: Path, row: Any) -> None:
    header = json.dumps({"__metadata__": {"crc32": "0"}, "a": row}).encode()
    place = tmp_path / "tokens" / "k"
    place.mkdir(parents=True)
    (place / "all.mops-block").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.warns(StoreWarning, match="computed again"):
        assert Store(tmp_path).read("tokens", "k") is None
