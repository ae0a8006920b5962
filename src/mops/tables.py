"""Numbers with units and tables as values, in text, HTML, Markdown and CSV, and cells in LaTeX."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mops.errors import UsageError

AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")  # the sign of a number, not of its exponent
MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]|~#$])")
# Control characters, marks of direction and of no width, halves of letters, and tags.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
FORMULA = re.compile(r"'*[=+\-@\t\r＝＋－＠]")  # how a cell begins that a spreadsheet computes


@dataclass(frozen=True)
class Unit:
    """How an amount is written: a number and one of these units; that with factor 1 is returned."""

    example: str
    factors: Mapping[str, float]

    def read(self, given: str | float, option: str) -> float:
        match = AMOUNT.fullmatch(str(given))
        unit = match[2].lower() if match else ""
        is_plain = not isinstance(given, str) and not unit  # a number from a program
        factor = 1.0 if is_plain else self.factors.get(unit, 0.0)
        if match is None or not 0 < float(match[1]) * factor < math.inf:
            allowed = ", ".join(name or "or none" for name in self.factors)
            raise UsageError(
                f"{option} {given!r}: write a number above 0 and its unit ({allowed}), "
                f"for example {self.example}"
            )
        return float(match[1]) * factor


COUNTS = Unit("40M", {"k": 1e3, "m": 1e6, "b": 1e9, "": 1.0})
TIMES = Unit("20ms", {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0})
BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
SIZES = Unit("2GB", BYTES)


def format_count(number: float) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e4 else f"{number:,.0f}"


def format_seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_flops(flops: float) -> str:
    return f"{flops / 1e9:,.2f} G"


def format_joules(joules: float) -> str:
    return f"{joules:.1f} J" if joules < 1000 else f"{joules / 3600:,.2f} Wh"


def format_bytes(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"


@dataclass(frozen=True)
class Cell:
    """The text of a cell and the value behind it, at full precision."""

    text: str
    value: float | str | None = None  # what the column is sorted by; None: the text
    hint: str = ""  # details that the text leaves out
    more: tuple[tuple[str, float], ...] = ()  # further values for the CSV file: name, value

    @property
    def key(self) -> float | str:
        return self.text if self.value is None else self.value

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float)


EMPTY = Cell("")


def number_cell(value: float | None, form: str) -> Cell:
    return EMPTY if value is None else Cell(form.format(value), value)


@dataclass(frozen=True)
class Table:
    """A table for the screen, the page, and files in Markdown, LaTeX and CSV."""

    name: str  # file stem
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]

    def column_kinds(self, long: int = 60) -> list[str]:
        """Of each column: number, word, or long if a text has more letters; empty cells are any."""
        kinds = []
        for n in range(len(self.columns)):
            cells = [row[n] for row in self.rows if row[n].text]
            is_number = cells and all(cell.is_number for cell in cells)
            is_long = any(len(cell.text) > long for cell in cells)
            kinds.append("number" if is_number else "long" if is_long else "word")
        return kinds

    def without_empty_columns(self) -> Table:
        kept = [n for n in range(len(self.columns)) if any(row[n].text for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
        )

    def with_minus_signs(self) -> Table:
        """Numbers with a typographic minus instead of a hyphen."""
        rows = (
            tuple(replace(own, text=to_minus(own.text)) if own.is_number else own for own in row)
            for row in self.rows
        )
        return replace(self, rows=tuple(rows))


def to_minus(text: str) -> str:
    return MINUS.sub("−", text)


class Shown:
    """A result that a person reads: sentences and tables, as text and in notebooks as HTML."""

    @property
    def parts(self) -> Sequence[str | Table]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(p if isinstance(p, str) else text_table(p) for p in self.parts)

    def _repr_html_(self) -> str:
        return "\n".join(
            f"<div>{html.escape(part)}</div>" if isinstance(part, str) else html_table(part)
            for part in self.parts
        )


def text_table(table: Table) -> str:
    """Columns with blanks between; those of numbers are aligned right."""
    lines = [table.columns, *table.texts]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    places = [
        (">" if kind == "number" else "<", width)
        for kind, width in zip(table.column_kinds(), widths, strict=True)
    ]
    rows = (
        "  ".join(f"{text:{side}{width}}" for text, (side, width) in zip(line, places, strict=True))
        for line in lines
    )
    return "\n".join((table.title, *map(str.rstrip, rows), table.note)).strip("\n") + "\n"


def html_table(table: Table) -> str:
    """A plain table; notebooks have a style for it. Columns of numbers are aligned right."""
    sides = ["right" if kind == "number" else "left" for kind in table.column_kinds()]

    def line(texts: Sequence[str], tag: str) -> str:
        cells = zip(texts, sides, strict=True)
        shown = (f'<{tag} style="text-align:{s}">{html.escape(t)}</{tag}>' for t, s in cells)
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(line(texts, "td") for texts in table.texts)
    head = f"<thead>{line(table.columns, 'th')}</thead>"
    title = f'<caption style="text-align:left"><b>{html.escape(table.title)}</b></caption>'
    note = f"<div><small>{html.escape(table.note)}</small></div>" if table.note else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>{note}"


def markdown_table(table: Table) -> str:
    """A GitHub table; number columns are aligned right."""
    marks = ["---:" if kind == "number" else "---" for kind in table.column_kinds()]
    return markdown_lines(table.columns, table.texts, marks)


def markdown_lines(
    columns: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] = ()
) -> str:
    lines = [[escape_markdown(text) for text in line] for line in (columns, *rows)]
    lines.insert(1, list(marks) or ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def visible(text: str) -> str:
    """Text that a terminal shows as it is: hidden characters become their code points.

    In the notation of JSON, so what was JSON still means the same.
    """
    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def escape_markdown(text: str) -> str:
    """Text that no Markdown reader takes for markup, on one line."""
    plain = MARKDOWN_SIGNS.sub(r"\\\1", visible(" ".join(text.split())))
    return html.escape(plain, quote=False)


def code_span(text: str) -> str:
    """Text between backticks, on one line."""
    return f"`{visible(' '.join(text.split())).replace('`', chr(39))}`"


def without_formula(cell: str) -> str:
    """A cell that no spreadsheet computes: `'` is put before what begins like a formula."""
    return f"'{cell}" if FORMULA.match(cell) and not is_number(cell) else cell


def with_formula(cell: str) -> str:
    """The cell before `without_formula`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_csv(table: Table) -> str:
    """The columns with a line of their names."""
    columns = to_columns(table)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
    return out.getvalue()


def to_columns(table: Table) -> dict[str, list[float | str]]:
    """Values at full precision; a cell's further values follow as columns like overall_stderr."""
    columns: dict[str, list[float | str]] = {}
    used: Counter[str] = Counter()
    for n, plain in enumerate(map(ascii_name, table.columns)):
        used[plain] += 1
        name = plain if used[plain] == 1 else f"{plain}_{used[plain]}"
        cells = [row[n] for row in table.rows]
        keys = (cell.key for cell in cells)
        columns[name] = [without_formula(k) if isinstance(k, str) else k for k in keys]
        for more in dict.fromkeys(key for cell in cells for key, _ in cell.more):
            columns[f"{name}_{more}"] = [dict(cell.more).get(more, "") for cell in cells]
    return columns


def ascii_name(column: str) -> str:
    """Lower-case letters, digits and underscores."""
    plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain.replace("/", " per ")).strip("_") or "column"


LATEX_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    '"': r"{\ttfamily\char34}",  # \textquotedbl is not in the default font encoding
    "[": "{[}", "*": "{*}",  # after \\ they would be options
    "'": "{'}", "-": "{-}",  # two of them would be a quote or a dash
    "±": r"$\pm$", "−": r"$-$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$",
    "–": "--", "—": "---", "…": r"\ldots{}", "“": "``", "”": "''", "‘": "`", "’": "'",
    "\u00a0": "~",
}  # fmt: skip
ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
EXPONENT = re.compile(r"(?<=\d)e\{-\}0?(\d+)")  # of an escaped number


def latex_cell(cell: Cell) -> str:
    """Powers and stars of a number are set as mathematics."""
    text = escape_latex(cell.text)
    if not cell.is_number:
        return text
    return EXPONENT.sub(r"$\\cdot10^{-\1}$", text).replace("{*}", "$^{*}$")


def escape_latex(text: str) -> str:
    """Plain text for pdflatex; a letter without a glyph becomes its code point."""
    return "".join(LATEX_SIGNS.get(letter) or escape_letter(letter) for letter in text)


def escape_letter(letter: str) -> str:
    if letter.isspace():
        return " "
    base, *marks = list(unicodedata.normalize("NFD", letter))
    has_glyph = base.isascii() and base.isprintable() and len(marks) < 2
    if letter in "ßæÆœŒøØłŁ" or (has_glyph and all(mark in ACCENTS for mark in marks)):
        return letter  # LaTeX reads UTF-8
    return f"{{[}}U+{ord(letter):04X}]"
