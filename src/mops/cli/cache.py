"""`mops cache`"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON
from mops.cli.screen import OUT, print_table
from mops.store import find_store, open_block
from mops.units import format_bytes

if TYPE_CHECKING:
    from mops.store import StoreEntry


@click.command()
@click.option("--clear", is_flag=True, help="Remove everything.")
@JSON
def command(clear: bool, as_json: bool) -> None:
    """Show or clear the cache of frozen activations and tokens.

    The frozen lower layers of a plan give the same activations for a text in every run, so they
    are computed once and kept here, like tokenised files. The folder is $MOPS_CACHE, or the
    system's cache folder; MOPS_CACHE=off disables the cache. It never exceeds $MOPS_CACHE_LIMIT
    (8GiB) or half of the free disk; the least recently used entries are removed first. You may
    delete it at any time.

    \b
    Example:
      mops cache
      mops cache --clear
    """
    store = find_store()
    removed = store.clear() if store and clear else []
    entries = store.entries() if store else []
    used, limit = total(entries), store.bound(total(entries)) if store else 0
    rows = [describe(entry) for entry in reversed(entries)]
    if as_json:
        echo_json(
            {
                "folder": str(store.folder) if store else None,
                "bytes": used,
                "bound": limit,
                "entries": rows,
                "removed": {"entries": len(removed), "bytes": total(removed)},
            }
        )
    elif clear:
        click.echo(f"removed {len(removed)} entries, {format_bytes(total(removed))}")
    elif store is None:
        OUT.print("the cache is off (MOPS_CACHE=off)")
    else:
        show(rows)
        OUT.print(f"{format_bytes(used)} of at most {format_bytes(limit)} in {store.folder}")


def describe(entry: StoreEntry) -> dict[str, Any]:
    return {
        "kind": entry.folder.parent.name,
        "key": entry.folder.name,
        **entry.about,
        "sequences": count_sequences(entry),
        "blocks": entry.blocks,
        "bytes": entry.bytes,
        "used": datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds"),
    }


def count_sequences(entry: StoreEntry) -> int:
    """Blocks of sequences store where each one starts and where the last one ends."""
    count = 0
    for path in entry.folder.glob("*.block"):
        with suppress(OSError, ValueError):  # the reader of a broken block reports it
            count += len(open_block(path).arrays.get("starts", (0,))) - 1
    return count


def show(rows: Sequence[dict[str, Any]]) -> None:
    cells = [
        [
            str(row.get("what", row["kind"])),
            *(str(row.get(column, "")) for column in ("encoder", "layers", "sequences")),
            format_bytes(row["bytes"]),
            row["used"].replace("T", " ")[:16],
        ]
        for row in rows
    ]
    columns = ["what", "encoder", "layers", "sequences", "size", "last used"]
    if cells:
        print_table("cache", columns, cells)


def total(entries: Sequence[StoreEntry]) -> int:
    return sum(entry.bytes for entry in entries)
