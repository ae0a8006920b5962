"""`mops cache`"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from mops.cli.options import JSON
from mops.cli.screen import OUT, echo, print_table, respond
from mops.store import StoreEntry, find_store
from mops.tables import format_bytes


@click.command()
@click.option("--clear", is_flag=True, help="Remove everything.")
@JSON
def command(clear: bool, as_json: bool) -> None:
    """Show or clear the cache of frozen activations and tokens.

    The frozen lower layers of a plan give the same activations for a text in every run, so they
    are computed once and kept here, like tokenised files. The folder is $MOPS_CACHE, or
    ~/.cache/mops; MOPS_CACHE=off disables the cache. It never exceeds $MOPS_CACHE_LIMIT
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
    used = sum(entry["bytes"] for entry in entries)
    facts = {
        "folder": str(store.folder) if store else None,
        "bytes": used,
        "bound": store.bound(used) if store else 0,
        "entries": entries,
        "removed": {"entries": len(removed), "bytes": sum(entry.bytes for entry in removed)},
    }
    respond(as_json, facts, show, facts, clear)


def show(facts: Mapping[str, Any], clear: bool) -> None:
    if clear:
        removed = facts["removed"]
        echo(f"removed {removed['entries']} entries, {format_bytes(removed['bytes'])}")
    elif facts["folder"] is None:
        echo("the cache is off (MOPS_CACHE=off)")
    else:
        if entries := facts["entries"]:
            columns = ["what", "encoder", "layers", "blocks", "size", "last used"]
            print_table("cache", columns, list(map(table_row, entries)))
        limit = format_bytes(facts["bound"])
        OUT.print(f"{format_bytes(facts['bytes'])} of at most {limit} in {facts['folder']}")


def describe(entry: StoreEntry) -> dict[str, Any]:
    return {
        "kind": entry.folder.parent.name,
        "key": entry.folder.name,
        **entry.about,
        "blocks": entry.blocks,
        "bytes": entry.bytes,
        "used": datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds"),
    }


def table_row(entry: Mapping[str, Any]) -> list[object]:
    about = [entry.get(key) for key in ("encoder", "layers", "blocks")]
    used = entry["used"].replace("T", " ")[:16]
    return [entry.get("what", entry["kind"]), *about, format_bytes(entry["bytes"]), used]
