"""The card of a model: README.md with its scores, data, costs, sharing plan and limits."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.plans.layout import Layout
from mops.plans.picture import draw
from mops.tables import EMPTY, Cell, Table, code_span, escape_markdown, markdown_lines, visible
from mops.tasks import Task, score_bounds

Config = Mapping[str, Any]  # config.json of a bundle
Gaps = Sequence[Mapping[str, Any]]  # as `mops probe` leaves them
NORMAL_95 = 1.96  # standard errors on each side of a 95 % interval
SCORED = {"report": "validation, cross-fitted", "test": "test"}  # split -> its column
PROBE_NOTE = (
    "Gap: mean answer with the words of the first group minus that with the words of the second, "
    "in the same sentences, as a fraction of the answer's range, with its 95 % interval over "
    "sentences and words; * zero is outside. The lists are short and English: that no gap is found "
    "does not show that there is none."
)
LIBRARY = "mops"
USAGE = """```
mops predict FOLDER INPUT.csv
```"""


@dataclass(frozen=True)
class Usage:
    """What a folder holds, who loads it, and how."""

    tasks: tuple[str, ...] = ()  # default: all
    library: str = LIBRARY
    pipeline: str = ""  # default: the one that the answers of all tasks have
    text: str = USAGE


def format_card(layout: Layout, config: Config, usage: Usage | None = None) -> str:
    """README.md of a bundle or of an exported folder."""
    usage = usage or Usage()
    tasks = [layout.tasks[name] for name in usage.tasks or layout.tasks]
    names = " + ".join(task.name for task in tasks)
    plan = code_span(layout.plan.name)
    about = escape_markdown(layout.plan.about or "see the picture")
    picture = visible(draw(layout)).replace("```", "'''")
    count = f"{len(layout.tasks)} task{'s' * (len(layout.tasks) > 1)}"
    what = f"The task {names} of a model for {count}," if usage.tasks else f"One model for {count},"
    licence = escape_markdown(str(config.get("encoder_licence", "")))
    sections = {
        f"{names} ({plan})": f"{what} trained with mops. Plan {plan}: {about}.\n\n"
        f"```\n{picture}\n```",
        "Use": usage.text,
        "Scores": "\n".join(score_table(tasks, config)),
        "Data": "\n".join(data_table(tasks, config)),
        "Costs": "\n".join(f"- {line}" for line in costs(layout, tasks, config)),
        **({"Bias probe": probe_section(config["probe"])} if "probe" in config else {}),
        "Limits": "\n".join(f"- {line}" for line in dict.fromkeys(limits(layout, tasks, config))),
        "Encoder": f"{code_span(encoder_name(config))}, licence: {licence or 'not known to mops'}. "
        "The data files have licences of their own.",
    }
    pipeline = usage.pipeline or common_pipeline(tasks)
    front = {"library_name": usage.library, "pipeline_tag": pipeline, "license": licence}
    lines = [f"{key}: {value}" for key, value in front.items() if value]
    marks = ["#", *["##"] * (len(sections) - 1)]
    body = (f"{m} {title}\n\n{s}" for m, (title, s) in zip(marks, sections.items(), strict=True))
    return "---\n" + "\n".join(lines) + "\n---\n\n" + "\n\n".join(body) + "\n"


def common_pipeline(tasks: Sequence[Task]) -> str:
    """The only name that model hubs have for these tasks, or none."""
    names = {task.answer.pipeline for task in tasks} - {""}
    return names.pop() if len(names) == 1 else ""


def encoder_name(config: Config) -> str:
    """A name; of a local folder only its last part."""
    name = str(config.get("encoder_name", ""))
    return Path(name).name if Path(name).is_absolute() else name


def score_table(tasks: list[Task], config: Config) -> Iterator[str]:
    """The main score of each task with its 95 % interval."""
    yield f"| task | type | answers | score | {' | '.join(SCORED.values())} |"
    yield "|---" * (4 + len(SCORED)) + "|"
    for task in tasks:
        span = "{:g} to {:g}".format(*task.range) if task.range else "numbers"
        answers = ", ".join(map(escape_markdown, task.labels)) or span
        cells = " | ".join(format_score(task, split, config) for split in SCORED)
        yield f"| {task.name} | {task.type} | {answers} | {task.score_name} | {cells} |"
    yield "\nIn brackets: the 95 % interval over the rows (normal approximation)."


def format_score(task: Task, split: str, config: Config) -> str:
    scores = config.get("scores", {}).get(task.name, {}).get(split, {})
    main = config.get("main_scores", {}).get(task.name, "")
    if not {main, "stderr", "rows"} <= scores.keys():
        return "not measured"
    score, half = scores[main], NORMAL_95 * scores["stderr"]
    low, high = score_bounds(main)
    ends = f"{max(low, score - half):.3f} to {min(high, score + half):.3f}"
    interval = ends if math.isfinite(half) else "unknown"
    return f"{score:.3f} ({interval}), {scores['rows']:,} rows"


def data_table(tasks: list[Task], config: Config) -> Iterator[str]:
    """The files and rows of each split."""
    rows = [
        f"| {task.name} | {split} | {escape_markdown(', '.join(facts['files']))} | {rows:,} |"
        for task in tasks
        for split, facts in config.get("data", {}).get(task.name, {}).items()
        for rows in (facts["rows"],)
    ]
    if rows:
        yield from ("| task | split | files | rows |", "|---|---|---|---|", *rows)
    else:
        yield "Not recorded."


def costs(layout: Layout, tasks: list[Task], config: Config) -> Iterator[str]:
    size = layout.parameters * 4 / 1e6
    yield f"all tasks together: {layout.parameters:,} parameters, {size:,.1f} MB in float32"
    for task in tasks:
        own = sum(layout.sizes[owner] for owner in layout.routes[task.name].owners)
        yield f"{task.name} passes {own:,} of them"
    if training := config.get("training"):
        yield f"trained for {training['steps']:,} steps in {training['seconds']:,.0f} s"


def limits(layout: Layout, tasks: list[Task], config: Config) -> Iterator[str]:
    yield f"tokens after the first {layout.reading.max_length} of a text or pair are not read"
    yield "scores hold for texts like those of the data files, not for other domains or languages"
    for limit in dict.fromkeys(task.answer.limit for task in tasks):
        own = ", ".join(task.name for task in tasks if task.answer.limit == limit)
        yield f"{own}: {limit}"
    names = {task.name for task in tasks}
    for name in names & set(config.get("untrained", ())):
        yield f"{name}: no training step was taken for it"
    for warning in config.get("warnings", ()):
        if warning.partition(":")[0] in names:
            yield escape_markdown(warning)


def probe_section(gaps: Gaps) -> str:
    table = probe_table(gaps).without_empty_columns()
    return f"{markdown_lines(table.columns, table.texts)}\n\n{table.note}"


def probe_table(gaps: Gaps) -> Table:
    """What `mops probe` found, as config.json keeps it."""
    rows = tuple(
        (
            *(Cell(str(gap[key])) for key in ("task", "answer", "contrast")),
            Cell(" - ".join(gap["groups"])),
            estimate_cell(gap["gap"]),
            estimate_cell(gap["change"]),
        )
        for gap in gaps
    )
    columns = ("task", "answer", "contrast", "groups", "gap", "against the first model")
    return Table("probe", "Bias probe", columns, rows, PROBE_NOTE)


def estimate_cell(estimate: Mapping[str, float] | None) -> Cell:
    if estimate is None:
        return EMPTY
    mean, low, high = estimate["mean"], estimate["low"], estimate["high"]
    mark = "*" if low > 0 or high < 0 else ""
    return Cell(f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]{mark}", mean)
