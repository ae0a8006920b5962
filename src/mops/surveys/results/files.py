"""The files of `Results`: summary.json (complete), summary.csv (flat), summary.md (for people)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mops.files import write_text
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import CandidateResult, Results
from mops.surveys.results.tables import (
    cost_table,
    describe_rows,
    difference_table,
    gain_table,
    mcnemar_table,
    missing_table,
    score_table,
    training_table,
)
from mops.tables import escape_markdown, markdown_table

LISTED = ("steps", "best_step", "best_epoch", "train_seconds")  # of each trial, in summary.csv
TABLES = (score_table, difference_table, mcnemar_table, gain_table, cost_table, training_table)


def write_results(results: Results) -> None:
    """All three, each of them complete or not at all."""
    write_text(results.folder / "summary.json", results.to_json())
    write_text(results.folder / "summary.csv", to_csv(results))
    write_text(results.folder / "summary.md", to_markdown(results))


def to_csv(results: Results) -> str:
    """A row per candidate; columns are the paths of summary.json, as `against.overall.low`."""
    rows = [flatten(one) for one in results.candidates]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flatten(one: CandidateResult) -> dict[str, Any]:
    """Everything about a candidate; `trials.steps` and the like are lists over its seeds."""
    data = asdict(one)
    data["trials"] = {
        "id": [trial.id for trial in one.trials],
        "seed": [trial.seed for trial in one.trials],
        **{key: [getattr(t.train_info, key) for t in one.trials] for key in LISTED},
        "passes": {
            task: [trial.train_info.tasks[task].passes for trial in one.trials]
            for task in one.tasks
        },
        "warnings": sum(len(trial.warnings) for trial in one.trials),
    }
    data["costs"].pop("parameters_by_owner")
    return dict(join_paths(data))


def join_paths(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by dots; values of a list are joined by spaces."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from join_paths(value, f"{prefix}{key}.")
        else:
            is_list = isinstance(value, list | tuple)
            yield f"{prefix}{key}", " ".join(map(str, value)) if is_list else value


def to_markdown(results: Results) -> str:
    decision = recommend(results).lines if results.candidates else ["No trial is finished."]
    parts = [f"# {escape_markdown(results.name)}", "\n".join(map(escape_markdown, decision))]
    for table in (make(results) for make in TABLES):
        if table.rows:
            parts += [f"## {table.title}", markdown_table(table), escape_markdown(table.note)]
    parts += bullets("Caveats", [caveat.text for caveat in results.caveats])
    parts += bullets("Warnings of the trainings", list_warnings(results))
    if (missing := missing_table(results)).rows:
        parts += [f"## {missing.title}", markdown_table(missing)]
    parts += ["## Rows", describe_rows(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(title: str, lines: Sequence[str]) -> list[str]:
    items = "\n".join(f"- {escape_markdown(line)}" for line in lines)
    return [f"## {title}", items] if lines else []


def list_warnings(results: Results) -> list[str]:
    """Each warning once for a candidate, with the seeds that gave it."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for one in results.candidates:
        for trial in one.trials:
            for warning in trial.warnings:
                seeds.setdefault((one.name, warning), []).append(trial.seed)
    return [
        f"{name} (seed {', '.join(map(str, of))}): {text}" for (name, text), of in seeds.items()
    ]
