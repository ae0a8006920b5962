"""The store: a cache of arrays on disk, of bounded size, shared by all runs of a user.

    FOLDER/KIND/KEY/mops-entry.json     written first: marks the entry, and describes it for people
    FOLDER/KIND/KEY/NAME.mops-block     its arrays, in one or more safetensors files

Only files of these names are ever removed. A key names the content, and a block never changes: it
is written to a draft and renamed. So many processes can read and fill the folder at once without
locks; at worst two write the same block. Nothing here is needed: whatever is missing or broken is
computed again.
"""

import contextlib
import json
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ByteSize, TypeAdapter, ValidationError
from safetensors.numpy import save

from mops.errors import RunError, UsageError
from mops.files import atomic_write, write_text

Arrays = Mapping[str, NDArray[Any]]
CHECK = "crc32"
TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U64": "<u8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
FOLDER, LIMIT, OFF = "MOPS_CACHE", "MOPS_CACHE_LIMIT", "off"
DEFAULT_LIMIT = 8 * 2**30
ABOUT, SUFFIX = "mops-entry.json", ".mops-block"  # like nobody else's: the folder may have others
DRAFTS = (f".{ABOUT}.*.part", f".*{SUFFIX}.*.part")  # of `atomic_write`
STALE = 24 * 3600  # seconds after which a draft is abandoned
SCANS = 32  # a scan of the folder is repeated after writing this fraction of its bound


class StoredBlock:
    """The memory-mapped arrays of a file; they stay readable when the file is removed."""

    def __init__(self, path: Path) -> None:
        """Map a file; ValueError when its size is not what its header says."""
        self.path = path
        try:
            mapped = np.asarray(np.memmap(path, np.uint8, "r"))
            start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
            header, data = json.loads(mapped[8:start].tobytes()), mapped[start:]
            self.checksum: str = header.pop("__metadata__")[CHECK]
            if len(data) != max(row["data_offsets"][1] for row in header.values()):
                raise ValueError("cut short")
            self.arrays: Arrays = {
                name: data[slice(*r["data_offsets"])].view(TYPES[r["dtype"]]).reshape(r["shape"])
                for name, r in header.items()
            }
        except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as cause:
            raise ValueError(f"no header: {cause}") from cause

    @cached_property
    def is_sound(self) -> bool:
        """Whether the arrays are what was written; reads the whole file, once."""
        return checksum(self.arrays) == self.checksum


def checksum(arrays: Arrays) -> str:
    """The checksum of names, types, shapes and values."""
    value = 0
    for name, array in sorted(arrays.items()):
        facts = f"{name} {array.dtype.str} {array.shape}"
        data = array.reshape(-1).view(np.uint8).data
        value = zlib.crc32(data, zlib.crc32(facts.encode(), value))
    return f"{value:08x}"


class StoreWarning(UserWarning):
    """Something is wrong with the store; the work continues without it."""


@dataclass(frozen=True)
class StoreEntry:
    """The content of one key: a folder KIND/KEY."""

    folder: Path
    blocks: int
    bytes: int
    used: float  # last use, in seconds since the epoch

    @property
    def about(self) -> dict[str, Any]:
        """The description, which is only for people: empty when it cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return dict(json.loads((self.folder / ABOUT).read_text("utf-8")))
        return {}

    def remove(self) -> bool:
        """Whether the entry is gone: it stays where files in use cannot be removed."""
        with contextlib.suppress(OSError):
            for pattern in (f"*{SUFFIX}", *DRAFTS, ABOUT):
                for file in self.folder.glob(pattern):
                    file.unlink()
            self.folder.rmdir()  # it stays where others have files in it
        return not (self.folder / ABOUT).exists()


@dataclass
class Store:
    """A folder of entries; the least recently used ones are removed when it is full."""

    folder: Path
    limit: int = DEFAULT_LIMIT
    room: int = 0  # bytes that can be written before the folder is scanned again

    def read(self, kind: str, key: str) -> Arrays | None:
        """The arrays of an entry of one block; None if it is missing or broken."""
        for block in self.blocks(kind, key):
            if block.is_sound:
                return block.arrays
            self.drop(block.path)
        return None

    def blocks(self, kind: str, key: str, known: Container[Path] = ()) -> list[StoredBlock]:
        """The blocks of an entry, which is marked as used; `known` ones are not opened."""
        place = self.folder / kind / key
        with contextlib.suppress(OSError):
            os.utime(place)
        paths = (path for path in sorted(place.glob(f"*{SUFFIX}")) if path not in known)
        return [block for path in paths if (block := self.open(path)) is not None]

    def open(self, path: Path) -> StoredBlock | None:
        try:
            return StoredBlock(path)
        except OSError:  # another process has removed it
            return None
        except ValueError:
            self.drop(path)
            return None

    def drop(self, path: Path) -> None:
        """Remove a broken block."""
        message = f"{path} is broken and was removed; its content is computed again"
        warnings.warn(message, StoreWarning, stacklevel=1)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def add(
        self, kind: str, key: str, arrays: Arrays, about: Mapping[str, Any], name: str = "all"
    ) -> StoredBlock | None:
        """Write a block; None if there is no room for it or it cannot be written."""
        place = self.folder / kind / key
        path = place / f"{name}{SUFFIX}"
        try:
            if not path.exists():
                if not self.make_room(sum(array.nbytes for array in arrays.values()), place):
                    return None
                if not (place / ABOUT).exists():
                    write_text(place / ABOUT, json.dumps(about))
                with atomic_write(path) as draft:
                    self.room -= draft.write_bytes(save(dict(arrays), {CHECK: checksum(arrays)}))
            return self.open(path)
        except (OSError, RunError) as error:
            warnings.warn(  # Python shows it once
                f"cannot write to the cache {self.folder}: {error.__cause__ or error}; the work "
                f"continues without it. Free some space, or turn it off with {FOLDER}={OFF}",
                StoreWarning,
                stacklevel=1,
            )
            return None

    def entries(self) -> list[StoreEntry]:
        """All entries, the least recently used first."""
        entries = []
        for about in self.folder.glob(f"*/*/{ABOUT}"):
            with contextlib.suppress(OSError):  # another process is removing it
                sizes = {file: file.stat().st_size for file in about.parent.iterdir()}
                blocks, size = sum(file.suffix == SUFFIX for file in sizes), sum(sizes.values())
                used = about.parent.stat().st_mtime
                entries.append(StoreEntry(about.parent, blocks, size, used))
        return sorted(entries, key=lambda entry: entry.used)

    def bound(self, used: int) -> int:
        """The limit, and never more than half of the disk space that is free or used here."""
        place = next(p for p in (self.folder, *self.folder.absolute().parents) if p.exists())
        return min(self.limit, (shutil.disk_usage(place).free + used) // 2)

    def make_room(self, size: int, place: Path) -> bool:
        """Remove other entries until there is room; none of them if even that is not enough.

        A scan of the folder pays for many writes: the room it finds is used up before the next.
        """
        if size <= self.room:
            return True
        drafts = (self.folder.glob(f"*/*/{pattern}") for pattern in DRAFTS)
        for draft in chain.from_iterable(drafts):  # of killed processes
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > STALE:
                    draft.unlink()
        entries = self.entries()
        used = sum(entry.bytes for entry in entries)
        bound = self.bound(used)
        if size + sum(entry.bytes for entry in entries if entry.folder == place) > bound:
            return False
        for entry in entries:
            if used + size > bound and entry.folder != place and entry.remove():
                used -= entry.bytes
        self.room = min(bound - used, max(size, bound // SCANS))
        return size <= self.room

    def clear(self) -> list[StoreEntry]:
        """Remove all entries, and nothing else that may be in the folder."""
        return [entry for entry in self.entries() if entry.remove()]


def find_store() -> Store | None:
    """The store of this user; None when it is turned off."""
    given, limit = (os.environ.get(name, "").strip() for name in (FOLDER, LIMIT))
    if given.lower() == OFF:
        return None
    try:
        size = TypeAdapter(ByteSize).validate_python(limit or DEFAULT_LIMIT)
    except ValidationError as error:
        raise UsageError(
            f"{LIMIT} is {limit!r}, not a size; write bytes or a number with KB, MB, GB, "
            "KiB, MiB or GiB, as 4GiB"
        ) from error
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "mops")
    try:
        return Store(Path(given or usual).expanduser(), size)
    except RuntimeError:  # no home directory, as in a container with a user number of its own
        return None
