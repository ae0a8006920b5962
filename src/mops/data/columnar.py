"""Tables that know their columns themselves: parquet files and data sets of the hub."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.errors import DataError

HUB = "hub:"


@dataclass(frozen=True)
class Columnar:
    """The columns and a way to stream the rows as plain values."""

    columns: tuple[str, ...]
    rows: Callable[[], Iterator[dict[str, Any]]]
    count: Callable[[], int]


def read_parquet(path: Path) -> Columnar:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            f"{path}: reading parquet needs pyarrow, which is not installed; csv, tsv and jsonl "
            "need nothing; run `pip install pyarrow`"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            columns, count = tuple(file.schema_arrow.names), int(file.metadata.num_rows)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(
            f"{path}: not a parquet file: {_cause(error)}; allowed: csv, tsv, jsonl, parquet; "
            "rename it or export it again"
        ) from error

    def rows() -> Iterator[dict[str, Any]]:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()

    return Columnar(columns, rows, lambda: count)


def read_hub(source: str) -> Columnar:
    """`hub:NAME:SPLIT` or `hub:NAME:CONFIG:SPLIT`, through the `datasets` library."""
    parts = source.removeprefix(HUB).split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise DataError(
            f"{source!r} does not name a split of a hub data set; allowed: hub:NAME:SPLIT or "
            "hub:NAME:CONFIG:SPLIT; write for example hub:nyu-mll/glue:sst2:train"
        )
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise DataError(
            f"{source}: reading from the hub needs the datasets library, which is not installed; "
            'local files need nothing; run `pip install "mops[hub]"` or pass a local file'
        ) from error
    try:
        loaded = datasets.load_dataset(*parts[:-1], split=parts[-1])
    except Exception as error:  # the library raises dozens of kinds: network, name, config, disk
        raise DataError(
            f"{source}: the data set could not be loaded: {_cause(error)}; allowed: a public "
            "hub:NAME[:CONFIG]:SPLIT with a network; check the name or pass a local file"
        ) from error
    return Columnar(tuple(loaded.column_names), lambda: iter(loaded), lambda: len(loaded))


def _cause(error: Exception) -> str:
    """The first line of a foreign message, or its kind when it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
