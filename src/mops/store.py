"""A block file: arrays in one file that is mapped, not read; what is broken is never believed.

The format is that of safetensors, so that other programs can read it and nothing in it can run.

The store: arrays that are worth keeping between runs, in a folder of bounded size.

    FOLDER/KIND/KEY/about.json     what an entry is
    FOLDER/KIND/KEY/NAME.block     its arrays, in one or more blocks

A key names the content, and a block never changes: it is written beside its place and renamed. So
many processes may read and fill the folder at once without locks; the worst that can happen is that
two write the same. Nothing here is needed: whatever is missing or broken is computed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
import warnings
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from mops.errors import RunError, UsageError
from mops.files import atomic_write, write_text

Array = NDArray[Any]
Arrays = Mapping[str, Array]
CHECK = "crc32"
TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U64": "<u8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredBlock:
    """The arrays of a file, as they lie on the disk; they stay readable when it is removed."""

    path: Path
    arrays: Arrays
    checksum: str

    @cached_property
    def is_sound(self) -> bool:
        """Whether all arrays are what was written; reads the whole file, once."""
        return checksum(self.arrays) == self.checksum


def write_block(path: Path, arrays: Arrays) -> None:
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(save(whole, {CHECK: checksum(whole)}))


def open_block(path: Path) -> StoredBlock:
    """Mapped, with its sizes checked; ValueError when they are not what the header says."""
    try:
        mapped = np.asarray(np.memmap(path, np.uint8, "r"))
        start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
        header = json.loads(mapped[8:start].tobytes())
        written = header.pop("__metadata__")[CHECK]
        ends = [row["data_offsets"][1] for row in header.values()]
        if len(mapped) != start + max(ends):
            raise ValueError("cut short")
        arrays = {name: view(mapped[start:], row) for name, row in header.items()}
    except (KeyError, TypeError, AttributeError) as cause:
        raise ValueError(f"no header: {cause}") from cause
    return StoredBlock(path, arrays, written)


def view(data: NDArray[np.uint8], row: Mapping[str, Any]) -> Array:
    first, last = row["data_offsets"]
    return data[first:last].view(TYPES[row["dtype"]]).reshape(row["shape"])


def checksum(arrays: Arrays) -> str:
    value = 0
    for name in sorted(arrays):
        array = arrays[name]
        facts = f"{name} {array.dtype.str} {array.shape}"
        data = array.reshape(-1).view(np.uint8).data
        value = zlib.crc32(data, zlib.crc32(facts.encode(), value))
    return f"{value:08x}"


FOLDER, LIMIT, OFF = "MOPS_CACHE", "MOPS_CACHE_LIMIT", "off"
DEFAULT_LIMIT = 8 * 2**30
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
ABOUT, SUFFIX, DRAFTS = "about.json", ".block", ".*.part"
STALE = 24 * 3600  # seconds after which a draft belongs to nobody


class StoreWarning(UserWarning):
    """Something is wrong with the store; the work goes on without it."""


@dataclass(frozen=True)
class StoreEntry:
    """What lies under one key."""

    kind: str
    key: str
    folder: Path
    about: Mapping[str, Any]
    blocks: int
    bytes: int
    used: float  # when, in seconds of the clock


@dataclass
class Store:
    """A folder of entries; those that were not used for longest go first when it is full."""

    folder: Path
    limit: int = DEFAULT_LIMIT
    broken: set[str] = field(default_factory=set)  # what has been warned of

    # -------------------------------------------------------------- whole entries

    def read(self, kind: str, key: str) -> Arrays | None:
        """The arrays of an entry of one block, mapped; none if it is not there or broken."""
        for block in self.blocks(kind, key):
            if block.is_sound:
                return block.arrays
            self.drop(block.path)
        return None

    def write(
        self, kind: str, key: str, arrays: Arrays, about: Mapping[str, Any] | None = None
    ) -> bool:
        """Keep arrays as an entry of one block; whether there was room."""
        return self.add(kind, key, "all", arrays, about) is not None

    # -------------------------------------------------------------- blocks

    def blocks(self, kind: str, key: str, known: Container[Path] = ()) -> list[StoredBlock]:
        """The blocks of an entry, which thereby is in use now; `known` ones are not opened."""
        place = self.folder / kind / key
        with contextlib.suppress(OSError):
            os.utime(place)
        paths = (path for path in sorted(place.glob(f"*{SUFFIX}")) if path not in known)
        opened = (self.open(path) for path in paths)
        return [block for block in opened if block is not None]

    def open(self, path: Path) -> StoredBlock | None:
        try:
            return open_block(path)
        except OSError:  # another process has removed it
            return None
        except ValueError:
            self.drop(path)
            return None

    def drop(self, path: Path) -> None:
        """Remove a block that is not what was written."""
        self.warn(f"{path} is broken and was removed; what it held is computed again")
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def add(
        self, kind: str, key: str, name: str, arrays: Arrays, about: Mapping[str, Any] | None = None
    ) -> StoredBlock | None:
        """Write a block; none when there is no room for it, or no way to write it."""
        place = self.folder / kind / key
        path = place / f"{name}{SUFFIX}"
        try:
            if not path.exists():
                if not self.make_room(sum(array.nbytes for array in arrays.values()), place):
                    return None
                if not (place / ABOUT).exists():
                    write_text(place / ABOUT, json.dumps(about or {}))
                with atomic_write(path) as draft:
                    write_block(draft, arrays)
            return self.open(path)
        except (OSError, RunError) as error:
            self.warn(
                f"cannot write to the cache {self.folder}: {error.__cause__ or error}; the work "
                f"goes on without it. Free some space, or turn it off with {FOLDER}={OFF}"
            )
            return None

    def warn(self, message: str) -> None:
        if message not in self.broken:
            self.broken.add(message)
            warnings.warn(message, StoreWarning, stacklevel=2)

    # -------------------------------------------------------------- room

    def entries(self) -> list[StoreEntry]:
        """What is there, the least recently used first."""
        found = [entry for about in self.folder.glob(f"*/*/{ABOUT}") for entry in read_entry(about)]
        return sorted(found, key=lambda entry: entry.used)

    def bound(self, used: int) -> int:
        """The limit, and never more than half of what the disk has for others and for this."""
        place = next(p for p in (self.folder, *self.folder.absolute().parents) if p.exists())
        return min(self.limit, (shutil.disk_usage(place).free + used) // 2)

    def make_room(self, size: int, place: Path) -> bool:
        """Remove other entries until there is room; none of them if even that is not enough."""
        remove_stale_drafts(self.folder)
        entries = self.entries()
        used = sum(entry.bytes for entry in entries)
        bound = self.bound(used)
        own = sum(entry.bytes for entry in entries if entry.folder == place)
        if own + size > bound:
            return False
        for entry in entries:
            if used + size > bound and entry.folder != place and remove(entry):
                used -= entry.bytes
        return used + size <= bound

    def clear(self) -> list[StoreEntry]:
        """Remove all entries, and nothing else that may lie there; what was removed."""
        gone = [entry for entry in self.entries() if remove(entry)]
        for kind in {entry.folder.parent for entry in gone}:
            with contextlib.suppress(OSError):  # not empty
                kind.rmdir()
        return gone


def read_entry(about: Path) -> Iterator[StoreEntry]:
    """The entry that a file is about; none when it is just being removed."""
    place = about.parent
    with contextlib.suppress(OSError):
        files = [file.stat().st_size for file in place.iterdir()]
        yield StoreEntry(
            kind=place.parent.name,
            key=place.name,
            folder=place,
            about=facts_of(about),
            blocks=len(list(place.glob(f"*{SUFFIX}"))),
            bytes=sum(files),
            used=place.stat().st_mtime,
        )


def facts_of(about: Path) -> Mapping[str, Any]:
    """Only for people to read: an entry whose file is broken is as good as any other."""
    try:
        facts = json.loads(about.read_text("utf-8"))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def remove(entry: StoreEntry) -> bool:
    """Whether it is gone: where files in use cannot be removed, it stays."""
    with contextlib.suppress(OSError):
        for pattern in (f"*{SUFFIX}", DRAFTS, ABOUT):
            for file in entry.folder.glob(pattern):
                file.unlink()
        entry.folder.rmdir()
    return not entry.folder.exists()


def remove_stale_drafts(folder: Path) -> None:
    """What killed processes left."""
    for draft in folder.glob(f"*/*/{DRAFTS}"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()


# ------------------------------------------------------------------ where and how large


def find_store() -> Store | None:
    """The store of this user; none when it is turned off."""
    folder = store_folder()
    return Store(folder, store_limit()) if folder else None


def store_folder() -> Path | None:
    given = os.environ.get(FOLDER, "").strip()
    if given.lower() == OFF:
        return None
    return Path(given).expanduser() if given else USUAL.get(sys.platform, xdg_folder)()


def xdg_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mops"


def mac_folder() -> Path:
    return Path.home() / "Library" / "Caches" / "mops"


def windows_folder() -> Path:
    return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "mops" / "Cache"


USUAL = {"darwin": mac_folder, "win32": windows_folder}


def store_limit() -> int:
    given = os.environ.get(LIMIT, "").strip()
    if not given:
        return DEFAULT_LIMIT
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", given, re.IGNORECASE)
    if not parts or parts[2].upper() not in UNITS:
        raise UsageError(
            f"{LIMIT} is {given!r}, not a size; write bytes or a number with KB, MB, GB, "
            "KiB, MiB or GiB, as 4GiB"
        )
    return int(float(parts[1]) * UNITS[parts[2].upper()])
