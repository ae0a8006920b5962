"""Numbers with units and tables as values, in Markdown and CSV, and their cells in LaTeX."""

from __future__ import annotations

import csv
import html
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")  # the sign of a number, not of its exponent
MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]|~#$])")
# Control characters, marks of direction and of no width, and halves of letters.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
FORMULA = re.compile(r"'*[=+\-@\t\r＝＋－＠]")  # how a cell begins that a spreadsheet computes


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
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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
    """Values at full precision; a cell's further values follow as columns like overall_stderr."""
    columns: list[list[float | str]] = []
    used: Counter[str] = Counter()
    for n, plain in enumerate(map(ascii_name, table.columns)):
        used[plain] += 1
        name = plain if used[plain] == 1 else f"{plain}_{used[plain]}"
        cells = [row[n] for row in table.rows]
        keys = (cell.key for cell in cells)
        columns.append([name, *(without_formula(k) if isinstance(k, str) else k for k in keys)])
        for more in dict.fromkeys(key for cell in cells for key, _ in cell.more):
            columns.append([f"{name}_{more}", *(dict(cell.more).get(more, "") for cell in cells)])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(zip(*columns, strict=True))
    return out.getvalue()


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
