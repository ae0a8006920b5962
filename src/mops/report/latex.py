"""A table as LaTeX: a whole `table` environment that any pdflatex sets.

It needs \\usepackage{booktabs}, and where there are many columns \\usepackage{graphicx}.
"""

from __future__ import annotations

import re
import unicodedata

from mops.report.parts import Cell, Table

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
WIDE = 7  # columns; more are made as wide as the text


def to_latex(table: Table) -> str:
    """The table with its title, its note and the label `tab:NAME`."""
    body = [
        rf"\begin{{tabular}}{{{''.join(alignments(table))}}}",
        r"\toprule",
        line([escape(column) for column in table.columns]),
        r"\midrule",
        *(line([latex_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if len(table.columns) > WIDE:
        body = [r"\resizebox{\linewidth}{!}{%", *body[:-1], body[-1] + "}"]
    note = [rf"\par\smallskip{{\footnotesize {escape(table.note)}\par}}"] if table.note else []
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(table.title)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\small",
            *body,
            *note,
            r"\end{table}",
            "",
        ]
    )


def line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def alignments(table: Table) -> list[str]:
    """Numbers to the right, words to the left, long texts in lines of their own."""
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    return [alignment(cells) for cells in columns]


def alignment(cells: tuple[Cell, ...]) -> str:
    if any(len(cell.text) > LONG for cell in cells):
        return r"p{0.5\linewidth}"
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
    written, *marks = unicodedata.normalize("NFD", letter)
    if written.isascii() and written.isprintable() and all(mark in ACCENTS for mark in marks):
        for mark in marks:
            written = f"{ACCENTS[mark]}{{{written}}}"
        return written
    return f"{{[}}U+{ord(letter):04X}]"
