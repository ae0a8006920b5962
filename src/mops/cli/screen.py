"""What a person sees of a command on stdout: tables, scores and decisions, or JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from mops.api.progress import Screen, print_warnings
from mops.surveys.results.recommend import Decision, recommend
from mops.surveys.results.results import Results
from mops.surveys.results.tables import summary_parts
from mops.tables import Table, visible

WIDE = 118  # columns where there is no terminal to ask
OUT = Screen(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)


def echo(text: object, *, is_error: bool = False) -> None:
    click.echo(visible(str(text)), err=is_error)


def echo_yaml(text: str) -> None:
    """For a program exactly, unless a person looks at it."""
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=False)


def respond(as_json: bool, data: Any, show: Callable[..., None], *arguments: Any) -> None:
    """Print a result as JSON for a program, or show it to a person."""
    if as_json:
        is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
        plain = without_nan(data)
        echo(json.dumps(plain, indent=2, ensure_ascii=is_ascii, allow_nan=False))
    else:
        show(*arguments)


def without_nan(data: Any) -> Any:
    """The same with null for numbers that are not finite, which JSON does not have."""
    if isinstance(data, Mapping):
        return {key: without_nan(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_nan(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_parts(parts: Iterable[str | Table]) -> None:
    """The sentences and tables of a result."""
    for part in parts:
        if isinstance(part, str):
            OUT.print(part)
        elif part.rows:
            print_table(part.title, part.columns, part.texts, part.note)
            OUT.print()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> None:
    """A table; columns of numbers are aligned right, None is an empty cell."""
    table = RichTable(title=visible(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    texts = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    for column, cells in zip(columns, zip(*texts, strict=True), strict=True):
        is_number = all(cell[:1].isdigit() or cell[:1] in ("", "-", "+") for cell in cells)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in texts:
        table.add_row(*row)
    OUT.print(table)
    if note:
        OUT.print(note)


def print_summary(results: Results) -> None:
    """What is known so far; what makes the comparison uncertain goes to stderr."""
    print_parts(summary_parts(results))
    print_warnings([caveat.text for caveat in results.caveats])


def print_results(results: Results) -> None:
    print_summary(results)
    print_decision(recommend(results))
    echo(f"results: {results.folder / 'summary.json'}")


def print_decision(decision: Decision) -> None:
    echo("\n".join(decision.lines) + "\n")  # a command in them stays on its line
    print_parts(decision.tables)
