"""Parquet files in pieces of bounded size: a file of a kilobyte can declare terabytes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mops.errors import DataError

BATCH_ROWS = 8192
MOST_BATCH = 2**30  # bytes of text in a batch, 128 kB a row
MOST_PART = 2**32  # bytes of a column in a row group, uncompressed
MOST_PER_BYTE = 1000  # rows, or values of a row group's column, for each byte of the file


def describe(parquet: Any, path: Path) -> tuple[tuple[str, ...], int]:
    """The columns and the number of rows, after a check of what the file declares."""
    with refused(path), parquet.ParquetFile(path) as file:
        facts, most = file.metadata, MOST_PER_BYTE * path.stat().st_size
        groups = [facts.row_group(n) for n in range(facts.num_row_groups)]
        parts = [group.column(n) for group in groups for n in range(group.num_columns)]
        values = max([facts.num_rows, *(part.num_values for part in parts)])
        largest = max((part.total_uncompressed_size for part in parts), default=0)
        if values > most or largest > MOST_PART:
            raise DataError(
                f"{path}: declares {values:,} values and {largest:,} bytes in a column, in a file "
                f"of {most // MOST_PER_BYTE:,} bytes; allowed: {MOST_PER_BYTE:,} values a byte and "
                f"{MOST_PART:,} bytes; write it again in smaller row groups"
            )
        return tuple(file.schema_arrow.names), int(facts.num_rows)


def read_batches(parquet: Any, path: Path, rows: int = BATCH_ROWS) -> Iterator[list[Any]]:
    """The rows as objects. Texts stay in dictionaries until it is known how long they are."""
    with refused(path), parquet.ParquetFile(path) as file:
        leaves = [file.schema.column(n) for n in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    with refused(path), parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=rows):
            size = sum(text_bytes(column) for column in batch.columns)
            if size > MOST_BATCH:
                raise DataError(
                    f"{path}: {len(batch):,} rows have {size:,} bytes of text; allowed: "
                    f"{MOST_BATCH:,}; shorten the texts"
                )
            yield batch.to_pylist()


def text_bytes(array: Any) -> int:
    """The bytes of all texts, which share what they have in common."""
    types, compute = (importlib.import_module(f"pyarrow.{name}") for name in ("types", "compute"))
    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
    if types.is_nested(array.type):
        inner = array.flatten()
        return sum(map(text_bytes, inner if isinstance(inner, list) else [inner]))
    return int(array.nbytes)


@contextmanager
def refused(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, MemoryError) as error:  # pyarrow's are among them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"{path}: not a parquet file, or a damaged one: {reason}; allowed: csv, tsv, jsonl, "
            "parquet; rename it or export it again"
        ) from error
