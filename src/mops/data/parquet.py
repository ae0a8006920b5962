"""Parquet files in pieces of bounded size: a file of a kilobyte can declare terabytes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mops.data.footer import read_footer
from mops.errors import DataError

BATCH_ROWS = 8192
MOST_BATCH = 2**30  # bytes of text in a batch, 128 kB a row
MOST_PART = 2**32  # bytes of a column in a row group, uncompressed
MOST_PER_BYTE = 1000  # rows, values of a row group's column, or bytes, for each byte of the file
ALWAYS_READ = 2**26  # bytes of text, however small the file


def describe(parquet: Any, path: Path) -> tuple[tuple[str, ...], int]:
    """The columns and the number of rows, after a check of what the file declares."""
    with refused(path), parquet.ParquetFile(path) as file:
        declared, most = read_footer(path), MOST_PER_BYTE * path.stat().st_size
        values = max([declared.rows, *(values for values, _ in declared.parts)])
        largest = max((size for _, size in declared.parts), default=0)
        if values > most or largest > MOST_PART:
            raise DataError(
                f"{path}: declares {values:,} values and {largest:,} bytes in a column, in a file "
                f"of {most // MOST_PER_BYTE:,} bytes; allowed: {MOST_PER_BYTE:,} values a byte and "
                f"{MOST_PART:,} bytes; write it again in smaller row groups"
            )
        return tuple(file.schema_arrow.names), declared.rows


def read_batches(parquet: Any, path: Path, rows: int = BATCH_ROWS) -> Iterator[list[Any]]:
    """The rows as objects. Texts stay in dictionaries until it is known how long they are."""
    with refused(path), parquet.ParquetFile(path) as file:
        leaves = [file.schema.column(n) for n in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    total, most = 0, max(ALWAYS_READ, MOST_PER_BYTE * path.stat().st_size)
    with refused(path), parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=rows):
            size = sum(text_bytes(column) for column in batch.columns)
            total += size
            if size > MOST_BATCH or total > most:
                raise DataError(
                    f"{path}: {len(batch):,} rows have {size:,} bytes of text; allowed: "
                    f"{min(MOST_BATCH, most):,}; shorten the texts"
                )
            yield batch.to_pylist()


def text_bytes(array: Any) -> int:
    """The bytes of all texts, which share what they have in common."""
    types, compute = (importlib.import_module(f"pyarrow.{name}") for name in ("types", "compute"))
    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
    if types.is_map(array.type):
        return text_bytes(array.keys) + text_bytes(array.items)
    if types.is_nested(array.type):
        inner = array.flatten()
        return sum(map(text_bytes, inner if isinstance(inner, list) else [inner]))
    return int(array.nbytes)


@contextmanager
def refused(path: Path) -> Iterator[None]:
    arrow = importlib.import_module("pyarrow").ArrowException
    try:
        yield
    except (OSError, ValueError, LookupError, MemoryError, arrow) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"{path}: not a parquet file, or a damaged one: {reason}; allowed: csv, tsv, jsonl, "
            "parquet; rename it or export it again"
        ) from error
