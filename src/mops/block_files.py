"""A block file: arrays in one file that is mapped, not read; what is broken is never believed.

The format is that of safetensors, so that other programs can read it and nothing in it can run.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

Array = NDArray[Any]
Arrays = Mapping[str, Array]
CHECK = "crc32"
TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U64": "<u8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
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


def open_block(path: Path) -> Block:
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
    return Block(path, arrays, written)


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
