"""The report of a survey or run: its parts, its tables, and the files they are written to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mops.errors import UsageError
from mops.files import atomic_write
from mops.papers import PaperView, claim_table, compare_with
from mops.predict.card import probe_table
from mops.reports.cards import Card, make_cards
from mops.reports.caveats import Section, make_caveats
from mops.reports.errors import TaskErrors, find_errors
from mops.reports.figures.answers import draw_answers
from mops.reports.figures.conflicts import draw_conflicts
from mops.reports.figures.curves import convergence_table, draw_curves
from mops.reports.figures.response import draw_responses
from mops.reports.figures.scores import draw_pareto, draw_scores
from mops.reports.figures.style import Picture, house_style, to_png
from mops.reports.page import render_latex, render_markdown, render_page
from mops.reports.source import Source, TrialFiles, read_source
from mops.surveys.results import tables as judged
from mops.surveys.results.results import CandidateResult, Results
from mops.surveys.results.transfer import transfer_table
from mops.tables import EMPTY, Cell, Table, number_cell, to_csv, to_minus
from mops.yaml_io import read_json

FIGURES: tuple[Callable[[Source], Iterator[Picture | str]], ...] = (
    draw_pareto, draw_scores, draw_curves, draw_responses, draw_answers,
    draw_conflicts,
)  # fmt: skip
PLAN_COSTS = (
    "parameters", "trained_parameters", "step_seconds", "train_seconds", "latency_seconds",
    "peak_memory_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Everything a report shows, before it is written."""

    source: Source
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()
    cards: tuple[Card, ...] = ()
    errors: tuple[TaskErrors, ...] = ()
    caveats: tuple[Section, ...] = ()
    papers: tuple[PaperView, ...] = ()

    @property
    def paper_tables(self) -> tuple[Table, ...]:
        return tuple(table for view in self.papers for table in (*view.tables, claim_table(view)))


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a survey's or run's folder, there or into `out`; returns the page."""
    return write_files(make_report(read_source(folder)), out or folder)[0]


def make_report(source: Source, like: Sequence[str] = ()) -> Report:
    """All parts of the report, and comparisons with the named papers."""
    charts, analyses = draw_charts(source), list(find_errors(source))
    left_out = [text for text in (*charts, *analyses) if isinstance(text, str)]
    return Report(
        source,
        tables=make_tables(source),
        pictures=tuple(chart for chart in charts if isinstance(chart, Picture)),
        cards=make_cards(source),
        errors=tuple(analysis for analysis in analyses if isinstance(analysis, TaskErrors)),
        caveats=make_caveats(source, left_out),
        papers=tuple(compare_with(name, source.results, source.records) for name in like),
    )


def draw_charts(source: Source) -> list[Picture | str]:
    """All charts that the results have data for, and sentences about what they leave out."""
    with house_style():
        return [chart for draw in FIGURES for chart in draw(source)]


def write_files(report: Report, place: Path, *, has_png: bool = False) -> list[Path]:
    """Each file is complete or absent; the page is written last and returned first."""
    files = {"report.md": render_markdown(report).encode()}
    slices = (table for task in report.errors for table in task.tables)
    for table in (*report.tables, *slices, *report.paper_tables):
        files[f"tables/{table.name}.csv"] = to_csv(table).encode()
        files[f"tables/{table.name}.tex"] = render_latex(table).encode()
    plans = {card.picture.name: card.picture for card in report.cards if card.picture}
    for picture in (*report.pictures, *plans.values()):
        files[f"figures/{picture.name}.svg"] = picture.file.encode()
        if has_png and picture.figure:
            files[f"figures/{picture.name}.png"] = to_png(picture.figure)
    files["report.html"] = render_page(report).encode()
    for name, data in files.items():
        with atomic_write(place / name) as draft:
            draft.write_bytes(data)
    return [place / name for name in dict.fromkeys(("report.html", *files))]


def make_tables(source: Source) -> tuple[Table, ...]:
    """All tables with rows, that of the decision first."""
    results, decision = source.results, source.decision
    tables = [
        *([judged.odds_table(decision)] if decision and len(decision.odds) > 1 else []),
        plan_table(results),
        judged.race_table(results),
        *([transfer_table(source.survey, source.folder)] if source.survey else []),
        judged.difference_table(results),
        judged.gain_table(results),
        judged.task_table(results),
        judged.mcnemar_table(results),
        judged.cost_table(results),
        convergence_table(source),
        bias_table(source),
        *([judged.front_table(decision)] if decision else []),
        judged.missing_table(results),
    ]
    return tuple(t.without_empty_columns().with_minus_signs() for t in tables if t.rows)


def plan_table(results: Results) -> Table:
    """A row for each candidate, the best score first."""
    rows = []
    for one in results.candidates:
        warnings = [warning for trial in one.trials for warning in trial.warnings]
        rows.append((
            judged.best_cell(one),
            judged.name_cell(one, results),
            judged.estimate_cell(one.scores.get("overall")),
            judged.difference_cell(one.against.get("overall"), judged.INTERVAL),
            *(task_cell(one, task, results) for task in results.tasks),
            *(judged.cost_cell(key, getattr(one.costs, key)) for key in PLAN_COSTS),
            number_cell(one.tm_relative, "{:.3f}"),
            Cell(str(len(warnings) or ""), len(warnings), "\n".join(dict.fromkeys(warnings))),
        ))  # fmt: skip
    rows += judged.reference_rows(results, (EMPTY,), len(PLAN_COSTS) + 2)
    costs = (judged.COSTS[key][0] for key in PLAN_COSTS)
    scores = ("best?", "candidate", "overall", "difference", *results.tasks)
    columns = (*scores, *costs, "TM", "warnings")
    return Table("plans", "Plans", columns, tuple(rows), plan_note(results))


def task_cell(one: CandidateResult, task: str, results: Results) -> Cell:
    """A task's score; in brackets its gain over the model per task."""
    cell, gain = judged.estimate_cell(one.scores.get(task)), one.gains.get(task)
    if gain is None or cell is EMPTY:
        return cell
    gained = judged.difference_cell(gain, judged.PLAIN)
    return replace(
        cell,
        text=f"{cell.text} ({gained.text})",
        hint=to_minus(f"against {results.single}: {gained.hint}"),
        more=(*cell.more, ("gain", gain.mean), *((f"gain_{key}", n) for key, n in gained.more)),
    )


def bias_table(source: Source) -> Table:
    """What `mops probe` found with the models that were kept."""
    rows = tuple(
        (Cell(trial.candidate), *row) for trial in source.trials for row in probed(trial).rows
    )
    return replace(probe_table([]), columns=("candidate", *probe_table([]).columns), rows=rows)


def probed(trial: TrialFiles) -> Table:
    config = trial.folder / "model" / "config.json"
    facts = read_json(config) if config.is_file() else {}
    try:
        return probe_table(facts.get("probe", []))
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise UsageError(f"{config}: `probe` is not what `mops probe` writes: {cause!r}") from cause


def plan_note(results: Results) -> str:
    reference = next((one.reference for one in results.candidates), results.baseline)
    has_gains = any(one.gains for one in results.candidates)
    return (
        "In order of overall scores: mean over seeds ± one standard error (rows and runs). "
        f"{judged.BEST} (The set is from Hsu's multiple comparisons.) Difference: "
        f"overall score minus that of {reference}. "
        + (f"In brackets: gain over {results.single}. " if has_gains else "")
        + "Intervals (95 %) are simultaneous over all candidates (Dunnett); * significant. "
        "Memory: peak during training. Training: time of the training steps. TM: score x time x "
        f"memory (weights), each relative to {reference}. {judged.seeds_note(results)} "
        f"{judged.REFERENCES if results.references else ''}"
    )
