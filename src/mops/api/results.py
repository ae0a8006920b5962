"""What a survey has found: its candidates, the recommendation drawn from them, the report."""

from __future__ import annotations

import html
import importlib
import math
import os
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mops.api.progress import busy, print_warnings
from mops.errors import UsageError, nearest
from mops.evaluate.metrics import OVERALL, SOFT
from mops.files import to_path
from mops.surveys.design import Survey
from mops.surveys.pack import read_pack
from mops.surveys.results.judge import read_judged
from mops.surveys.results.recommend import CHEAPEST, SURE, WORTH, Decision
from mops.surveys.results.recommend import recommend as decide
from mops.surveys.results.results import LEFT_OUT, Results
from mops.surveys.results.tables import cost_table, score_table, summary_parts
from mops.surveys.results.transfer import transfer_table
from mops.tables import COUNTS, SIZES, TIMES, Shown, Table, to_columns

if TYPE_CHECKING:
    from mops.papers import PaperView
    from mops.training.run import Run

LIMITS = {
    "max_params": COUNTS, "max_latency": TIMES, "max_train_time": TIMES, "max_memory": SIZES,
}  # fmt: skip
SUREST = (0.5, 0.99)
SCORES = (*OVERALL, SOFT)  # by which is decided


@dataclass(frozen=True, repr=False)
class SurveyRun(Shown):
    """A survey that was trained: its folder, its design and its results."""

    folder: Path
    survey: Survey
    results: Results

    @property
    def table(self) -> Table:
        """A row for each candidate, the best score first."""
        return score_table(self.results)

    def to_frame(self) -> Any:
        """The candidates with scores and costs, as a DataFrame of pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise UsageError(
                "to_frame makes a DataFrame of pandas, which is not installed; "
                "`pip install pandas`, or read `results.candidates`"
            ) from error
        scores, costs = (
            pandas.DataFrame(to_columns(table)).replace({"": None})
            for table in (self.table, cost_table(self.results))
        )
        # References, which need no training, are rows of the scores alone.
        return scores.merge(costs, on="candidate").infer_objects()

    def recommend(self, **rule: Any) -> Decision:
        """Which plan to use; the words are those of `mops.recommend`."""
        return recommend(self, **rule)

    def report(self, **options: Any) -> WrittenReport:
        """Write the report; the words are those of `mops.report`."""
        return report(self, **options)

    @property
    def parts(self) -> Sequence[str | Table]:
        caveats = (f"warning: {caveat.text}" for caveat in self.results.caveats)
        decision = decide(self.results).lines if self.results.candidates else ()
        return [*summary_parts(self.results), *self.transfer, *caveats, *decision, f"{self.folder}"]

    @property
    def transfer(self) -> list[Table]:
        """What each task gains from another one that is trained beside it, where that is known."""
        table = transfer_table(self.survey, self.folder)
        return [table] if table.rows else []


@dataclass(frozen=True, repr=False)
class WrittenReport(Shown):
    """A report that was written."""

    page: Path
    files: tuple[Path, ...]  # the page first
    candidate: str | None  # that is recommended
    left_out: tuple[str, ...]  # trials whose record is gone or broken
    papers: tuple[PaperView, ...]

    @property
    def parts(self) -> Sequence[str]:
        return [*(f"left out: {reason}" for reason in self.left_out), f"report: {self.page}"]

    def _repr_html_(self) -> str:
        place = html.escape(os.path.relpath(self.page))
        return f'{super()._repr_html_()}<p><a href="{place}">open the report</a></p>'


Source = SurveyRun | str | Path  # a survey, its folder, or a packed one


def folder_of(source: SurveyRun | Run | str | Path) -> Path:
    folder = getattr(source, "folder", source)
    return to_path(folder, "the survey or run")


def recommend(
    survey: Source,
    *,
    max_params: str | float | None = None,
    max_latency: str | float | None = None,
    max_train_time: str | float | None = None,
    max_memory: str | float | None = None,
    weights: Mapping[str, float] | None = None,
    worth: float = WORTH,
    sure: float = SURE,
    cheapest: str = "parameters",
    score: str = "overall",
) -> Decision:
    """Say which plan of a survey to use, how sure that is, and why.

    `survey` is what `mops.survey` returned, the folder of a survey or a packed one. The words are
    the options of `mops recommend`; limits are numbers, or texts like "40M", "20ms" and "2GB".
    """
    given = {
        "max_params": max_params,
        "max_latency": max_latency,
        "max_train_time": max_train_time,
        "max_memory": max_memory,
    }
    limits: dict[str, Any] = {
        name: LIMITS[name].read(limit, name) for name, limit in given.items() if limit is not None
    }
    check_rule(weights or {}, worth, sure, cheapest, score)
    rule: dict[str, Any] = {"worth": worth, "sure": sure, "cheapest": cheapest, "score": score}
    results = read_any(folder_of(survey))
    return decide(results, weights=weights or {}, **rule, **limits)


def check_rule(
    weights: Mapping[str, float], worth: float, sure: float, cheapest: str, score: str
) -> None:
    """Refuse what the options of the command would refuse."""
    if not all(0 <= weight < math.inf for weight in weights.values()):
        raise UsageError(f"weights {dict(weights)}: allowed: numbers from 0 on, by task")
    if not 0 <= worth < math.inf:
        raise UsageError(f"worth {worth}: allowed: a number from 0 on, for example 0.01")
    if not SUREST[0] <= sure <= SUREST[1]:
        raise UsageError(f"sure {sure}: allowed: a probability from {SUREST[0]} to {SUREST[1]}")
    for option, value, allowed in (
        ("cheapest", cheapest, tuple(CHEAPEST)),
        ("score", score, SCORES),
    ):
        if value not in allowed:
            known = ", ".join(allowed)
            raise UsageError(f"{option} {value!r}: allowed: {known}.{nearest(value, allowed)}")


def read_any(path: Path) -> Results:
    """The results in the folder of a survey or in a packed one."""
    if not path.is_file():
        return read_judged(path)
    with TemporaryDirectory(prefix="mops-") as folder:
        read_pack(path, Path(folder))
        return read_judged(Path(folder))


def report(
    source: Source | Run,
    *,
    out: str | Path | None = None,
    open: bool = False,
    like: str | Sequence[str] = (),
    png: bool = False,
) -> WrittenReport:
    """Write the report of a survey or run: the recommendation and the evidence for it.

    `source` is what `mops.survey` or `mops.train` returned, its folder, or a packed survey. The
    words are the options of `mops report`.
    """
    from mops.reports import check_packages

    check_packages()
    from mops.reports.report import make_report, write_files
    from mops.reports.source import read_source

    folder, place = folder_of(source), Path(out) if out else None
    if folder.is_file():
        pack, folder = folder, place or folder.with_suffix("")
        read_pack(pack, folder)
    with busy("reading the records") as tell:
        read = read_source(folder)
        tell("drawing the figures")
        made = make_report(read, [like] if isinstance(like, str) else like)
        tell("writing the files")
        files = write_files(made, place or folder, has_png=png)
    left_out = (f"{trial.name}: {trial.reason}" for trial in read.results.in_state(LEFT_OUT))
    candidate = read.decision.candidate if read.decision else None
    if open and not webbrowser.open(files[0].resolve().as_uri()):
        print_warnings([f"no browser found; open {files[0]} yourself"])
    return WrittenReport(files[0], tuple(files), candidate, tuple(left_out), made.papers)
