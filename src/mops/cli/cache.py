"""`mops cache`"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON

if TYPE_CHECKING:
    from mops.store import Store, StoreEntry


@click.command()
@click.option("--clear", is_flag=True, help="Remove all of it.")
@JSON
def command(clear: bool, as_json: bool) -> None:
    """Show what is kept between runs, or remove it.

    What a plan freezes from the bottom up gives the same numbers for a text in every run; they are
    kept here. The folder is $MOPS_CACHE, else the system's folder for caches; MOPS_CACHE=off keeps
    nothing. It is never larger than $MOPS_CACHE_LIMIT (8GiB), nor than half of the free disk; what
    was not used for longest goes first. It may be removed at any time.

    \b
    Example:
      mops cache
      mops cache --clear
    """
    from mops.store import find_store

    store = find_store()
    removed = store.clear() if store and clear else []
    entries = store.entries() if store else []
    if as_json:
        echo_json({**facts(store, entries), "removed": removed_facts(removed)})
    elif clear:
        click.echo(f"removed: entries {len(removed)}, {size(total(removed))}")
    else:
        show(store, entries)


def facts(store: Store | None, entries: Sequence[StoreEntry]) -> dict[str, Any]:
    return {
        "folder": str(store.folder) if store else None,
        "bytes": total(entries),
        "bound": store.bound(total(entries)) if store else 0,
        "entries": [row(entry) for entry in reversed(entries)],
    }


def removed_facts(removed: Sequence[StoreEntry]) -> dict[str, int]:
    return {"entries": len(removed), "bytes": total(removed)}


def row(entry: StoreEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "key": entry.key,
        **entry.about,
        "sequences": sequences(entry),
        "blocks": entry.blocks,
        "bytes": entry.bytes,
        "used": datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds"),
    }


def sequences(entry: StoreEntry) -> int:
    """Whatever is kept of sequences says where each of them starts, and where the last ends."""
    from mops.store import open_block

    found = 0
    for path in entry.folder.glob("*.block"):
        with suppress(OSError, ValueError):  # whoever reads it will say so
            found += len(open_block(path).arrays.get("starts", (0,))) - 1
    return found


COLUMNS = ("what", "encoder", "layers", "sequences")


def show(store: Store | None, entries: Sequence[StoreEntry]) -> None:
    from mops.cli.screen import OUT, print_table

    if store is None:
        OUT.print("the cache is off: MOPS_CACHE is 'off'")
        return
    found = facts(store, entries)
    if entries:
        cells = [
            [
                str(each.get("what", each["kind"])),
                *(str(each.get(column, "")) for column in COLUMNS[1:]),
                size(each["bytes"]),
                each["used"].replace("T", " ")[:16],
            ]
            for each in found["entries"]
        ]
        print_table("kept between runs", [*COLUMNS, "size", "last used"], cells)
    OUT.print(f"{size(found['bytes'])} of at most {size(found['bound'])} in {store.folder}")


def total(entries: Sequence[StoreEntry]) -> int:
    return sum(entry.bytes for entry in entries)


def size(number: int) -> str:
    return f"{number / 2**20:,.1f} MiB" if number < 2**30 else f"{number / 2**30:,.2f} GiB"
