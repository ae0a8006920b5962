"""LaTeX that compiles: every sign of a text is set, none is obeyed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from survey_data import HOSTILE

from mops.reports.caveats import make_caveats
from mops.reports.errors import TaskErrors, find_errors
from mops.reports.page import render_latex
from mops.reports.report import make_tables
from mops.reports.source import read_source
from mops.tables import Cell, Table, escape_latex
from surveys import make_survey

END = r" \tabularnewline"
COMPILER = shutil.which("pdflatex")
ODD = (
    *HOSTILE,
    "[starts an option",
    "*starts a star",
    "'' `` -- --- ?` !` <<",
    "Ærø ß ǟ ñ Ł ﬁ \x07",
)
DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""


def odd_table() -> Table:
    rows = tuple((Cell(text), Cell("−0.1 ± 3.4e-05*", -0.1)) for text in ODD)
    return Table("odd", "50 % of $ & #_{}", ("a_b", "c^d"), rows, "~ \\ note")


@pytest.mark.parametrize("text", [chr(code) for code in range(32, 127)])
def test_every_ascii_sign_is_plain_or_a_command_for_it(text: str) -> None:
    """LaTeX's ten signs never stand alone (Lamport, section 2.2.1)."""
    written = escape_latex(text)
    if text in "\\{}$&%#_^~":
        assert written != text and written.startswith("\\")
    if text.isalnum() or text in " ,.;:/=+()!?@":
        assert written == text


def test_a_row_has_as_many_cells_as_the_head() -> None:
    lines = [line for line in render_latex(odd_table()).splitlines() if line.endswith(END)]
    assert len(lines) == 1 + len(ODD)
    assert all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in lines)
    for line in lines:
        assert line[0] not in "[*"


def test_numbers_are_set_as_mathematics() -> None:
    text = render_latex(odd_table())
    assert r"$-$0.1 $\pm$ 3.4$\cdot10^{-5}$$^{*}$ \tabularnewline" in text
    assert text.startswith("\\begin{table}\n") and text.endswith("\\end{table}\n")
    assert r"\begin{tabular}{p{0.5\linewidth}r}" in text
    assert r"\label{tab:odd}" in text


def test_letters_without_a_font_become_their_numbers() -> None:
    assert escape_latex("東") == "{[}U+6771]"
    assert escape_latex("é") == "é"
    assert escape_latex("\x07") == "{[}U+0007]"


@pytest.mark.skipif(COMPILER is None, reason="pdflatex is not installed")
def test_all_tables_of_a_report_compile(tmp_path: Path) -> None:
    source = read_source(make_survey(tmp_path / "made", broken=[("separate", 2)]))
    errors = [one for one in find_errors(source) if isinstance(one, TaskErrors)]
    tables = [
        odd_table(),
        *make_tables(source),
        *(table for one in errors for table in one.tables),
        *(section.table for section in make_caveats(source) if section.table),
    ]
    source = "\n\\clearpage\n".join(render_latex(table) for table in tables)
    (tmp_path / "all.tex").write_text(DOCUMENT % source, "utf-8")
    assert COMPILER is not None
    done = subprocess.run(
        [COMPILER, "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "all.log").read_text("utf-8", "replace")
