r"""A table as LaTeX: a whole `table` environment that any pdflatex sets.

It needs \usepackage{booktabs,graphicx}.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import replace

from mops.tables import Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\ttfamily\char34}",  # \textquotedbl is not in the first font encoding
    "[": "{[}",  # after a line's end it would begin an option
    "*": "{*}",  # likewise
    "`": r"\textasciigrave{}",
    "'": r"{'}",
    "-": "{-}",  # two of them would be a dash
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "\u00a0": "~",
}
LETTERS = {
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
}
ACCENTS = {
    "\u0300": r"\`",
    "\u0301": r"\'",
    "\u0302": r"\^",
    "\u0303": r"\~",
    "\u0304": r"\=",
    "\u0306": r"\u",
    "\u0307": r"\.",
    "\u0308": r"\"",
    "\u030a": r"\r",
    "\u030b": r"\H",
    "\u030c": r"\v",
    "\u0327": r"\c",
}
EXPONENT = re.compile(r"(?<=\d)e\{-\}0?(\d+)")  # of an escaped number
LONG = 40  # characters; longer texts are broken into lines
LINES = r"p{0.5\linewidth}"
WIDE = 112  # characters side by side; further columns are set below, after the names once more
BETWEEN = 3  # characters, about, from a column to the next
NAMES = "candidate"  # the column that says what a row is, where it is not the first
# As wide as it is, or as the text where that is less.
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def to_latex(table: Table) -> str:
    """The table with its title, its note and the label `tab:NAME`."""
    panels = (r"\par\medskip" + "\n").join(map(panel, panels_of(table)))
    note = rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {escape(table.note)}}}"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(table.title)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\smallskip\small",
            panels + (note if table.note else ""),
            r"\end{table}",
            "",
        ]
    )


def panels_of(table: Table) -> list[Table]:
    """A table that is too wide for a page as several, one below the other."""
    if not table.rows:
        return [table]
    name = table.columns.index(NAMES) if NAMES in table.columns else 0
    widths = [
        BETWEEN + max(map(len, (column, *(row[n].text[:LONG] for row in table.rows))))
        for n, column in enumerate(table.columns)
    ]
    rest = sum(widths) - widths[name]
    count = math.ceil(rest / max(1, WIDE - widths[name])) or 1
    found: list[list[int]] = [[] for _ in range(count)]
    passed = 0.0
    for n in (n for n in range(len(widths)) if n != name):
        found[min(count - 1, int((passed + widths[n] / 2) * count / rest))].append(n)
        passed += widths[n]
    first = sorted([name, *found[0]])  # in their own order
    return [only(table, first), *(only(table, [name, *of]) for of in found[1:] if of)]


def only(table: Table, columns: list[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[n] for n in columns),
        rows=tuple(tuple(row[n] for n in columns) for row in table.rows),
    )


def panel(table: Table) -> str:
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    aligned = [alignment(cells) for cells in columns]
    starts = [r"\raggedright " if one == LINES else "" for one in aligned]
    lines = [
        FITTED,
        rf"\begin{{tabular}}{{{''.join(aligned)}}}",
        r"\toprule",
        line([escape(column) for column in table.columns]),
        r"\midrule",
        *(
            line([start + latex_cell(cell) for start, cell in zip(starts, row, strict=True)])
            for row in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    return "\n".join(lines) + "\n"


def line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \tabularnewline"


def alignment(cells: tuple[Cell, ...]) -> str:
    """Numbers to the right, words to the left, long texts in lines of their own."""
    if any(len(cell.text) > LONG for cell in cells):
        return LINES
    is_number = any(cell.text for cell in cells) and all(
        isinstance(cell.value, int | float) for cell in cells if cell.text
    )
    return "r" if is_number else "l"


def latex_cell(cell: Cell) -> str:
    text = escape(cell.text)
    if isinstance(cell.value, int | float):
        text = EXPONENT.sub(r"$\\cdot10^{-\1}$", text).replace("{*}", "$^{*}$")
    return text


def escape(text: str) -> str:
    """Plain text for LaTeX in any encoding; a letter without a font becomes its number."""
    return "".join(SPECIAL.get(letter) or LETTERS.get(letter) or spelt(letter) for letter in text)


def spelt(letter: str) -> str:
    """An ASCII letter as it is, one with an accent as LaTeX writes it."""
    if letter.isspace():
        return " "
    apart = unicodedata.normalize("NFD", letter)
    written, marks = apart[0], apart[1:]
    if written.isascii() and written.isprintable() and all(mark in ACCENTS for mark in marks):
        for mark in marks:
            written = f"{ACCENTS[mark]}{{{written}}}"
        return written
    return f"{{[}}U+{ord(letter):04X}]"
