"""`mops cache`"""

from __future__ import annotations

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
    entries = [describe(entry) for entry in reversed(store.entries())] if store else []
    used, freed = sum(row["bytes"] for row in entries), sum(entry.bytes for entry in removed)
    facts = {
        "folder": str(store.folder) if store else None,
        "bytes": used,
        "bound": store.bound(used) if store else 0,
        "entries": entries,
        "removed": {"entries": len(removed), "bytes": freed},
    }
    if as_json:
        echo_json(facts)
    elif clear:
        click.echo(f"removed {len(removed)} entries, {format_bytes(freed)}")
    elif store is None:
        OUT.print("the cache is off (MOPS_CACHE=off)")
    else:
        if entries:
            columns = ["what", "encoder", "layers", "sequences", "size", "last used"]
            print_table("cache", columns, list(map(table_row, entries)))
        limit = format_bytes(facts["bound"])
        OUT.print(f"{format_bytes(used)} of at most {limit} in {store.folder}")


def describe(entry: StoreEntry) -> dict[str, Any]:
    """The facts of an entry; a block stores where each sequence starts and the last one ends."""
    sequences = 0
    for path in entry.folder.glob("*.block"):
        with suppress(OSError, ValueError):  # the reader of a broken block reports it
            sequences += len(open_block(path).arrays.get("starts", (0,))) - 1
    return {
        "kind": entry.folder.parent.name,
        "key": entry.folder.name,
        **entry.about,
        "sequences": sequences,
        "blocks": entry.blocks,
        "bytes": entry.bytes,
        "used": datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds"),
    }


def table_row(entry: dict[str, Any]) -> list[str]:
    return [
        str(entry.get("what", entry["kind"])),
        *(str(entry.get(column, "")) for column in ("encoder", "layers", "sequences")),
        format_bytes(entry["bytes"]),
        entry["used"].replace("T", " ")[:16],
    ]
