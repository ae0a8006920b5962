r"""Tables as LaTeX: complete `table` environments; they need \usepackage{booktabs,graphicx}."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from mops.tables import Cell, Table

SPECIAL = {
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
LETTERS = "ßæÆœŒøØłŁ"
EXPONENT = re.compile(r"(?<=\d)e\{-\}0?(\d+)")  # of an escaped number
LONG = 40  # characters; longer texts are broken into lines
PARAGRAPH = r"p{0.5\linewidth}"
WIDE = 112  # characters side by side; further columns go into another panel below
# As wide as it is, but at most as wide as the text.
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def to_latex(table: Table) -> str:
    """The table with its title, its note and the label `tab:NAME`."""
    panels = (r"\par\medskip" + "\n").join(map(write_panel, split_panels(table)))
    note = rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {escape(table.note)}}}"
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\smallskip\small",
        panels + (note if table.note else ""),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def split_panels(table: Table) -> Iterator[Table]:
    """A table that is too wide for a page as several; each has the column of candidates."""
    name = table.columns.index("candidate") if "candidate" in table.columns else 0
    columns, width = [name], 0
    for n, column in enumerate(table.columns):
        own = 3 + max(map(len, (column, *(row[n].text[:LONG] for row in table.rows))))
        if n != name and width + own > WIDE and len(columns) > 1:
            yield table.select(sorted(columns) if 0 in columns else columns)
            columns, width = [name], 0
        columns += [n] if n != name else []
        width += own
    yield table.select(sorted(columns) if 0 in columns else columns)


def write_panel(table: Table) -> str:
    long = [any(len(row[n].text) > LONG for row in table.rows) for n in range(len(table.columns))]
    kinds = ["r" if is_number else "l" for is_number in table.number_columns]
    aligned = [PARAGRAPH if is_long else k for is_long, k in zip(long, kinds, strict=True)]
    starts = [r"\raggedright " if is_long else "" for is_long in long]
    rows = (
        write_line(start + write_cell(cell) for start, cell in zip(starts, row, strict=True))
        for row in table.rows
    )
    lines = [
        FITTED,
        rf"\begin{{tabular}}{{{''.join(aligned)}}}",
        r"\toprule",
        write_line(map(escape, table.columns)),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    return "\n".join(lines) + "\n"


def write_line(cells: Iterator[str]) -> str:
    return " & ".join(cells) + r" \tabularnewline"


def write_cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.is_number:
        text = EXPONENT.sub(r"$\\cdot10^{-\1}$", text).replace("{*}", "$^{*}$")
    return text


def escape(text: str) -> str:
    """Plain text for pdflatex; a letter without a glyph becomes its code point."""
    return "".join(SPECIAL.get(letter) or escape_letter(letter) for letter in text)


def escape_letter(letter: str) -> str:
    if letter.isspace():
        return " "
    base, *marks = list(unicodedata.normalize("NFD", letter))
    has_glyph = base.isascii() and base.isprintable() and len(marks) < 2
    if letter in LETTERS or (has_glyph and all(mark in ACCENTS for mark in marks)):
        return letter  # LaTeX reads UTF-8
    return f"{{[}}U+{ord(letter):04X}]"
