"""A summary as files: summary.json is complete, summary.csv is flat, summary.md is to be read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from mops.evaluate.compare import Difference
from mops.evaluate.metrics import OVERALL
from mops.files import write_text
from mops.surveys.results.recommend import recommend
from mops.surveys.results.standings import Standing, Summary
from mops.surveys.results.tables import (
    cost_table,
    difference_table,
    gain_table,
    mcnemar_table,
    outside_table,
    score_table,
    training_table,
)
from mops.surveys.results.wording import decided, what_was_chosen
from mops.tables import escape_markdown, markdown_table

COSTS = (
    "parameters",
    "trained_parameters",
    "weight_bytes",
    "training_state_bytes",
    "step_seconds",
    "encode_seconds",
    "train_seconds",
    "peak_memory_bytes",
    "latency_seconds",
    "throughput",
    "disk_bytes",
)
TABLES = (score_table, difference_table, mcnemar_table, gain_table, cost_table, training_table)
COMPARED = ("mean", "stderr", "low", "high", "p", "p_holm", "is_real")


def write_summary(folder: Path, summary: Summary) -> None:
    """All three, each of them complete or not at all."""
    write_text(folder / "summary.json", summary.to_json())
    write_text(folder / "summary.csv", to_csv(summary))
    write_text(folder / "summary.md", to_markdown(summary))


# ------------------------------------------------------------------ a row per candidate


def to_csv(summary: Summary) -> str:
    rows = [flat(one, summary) for one in summary.standings]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flat(one: Standing, summary: Summary) -> dict[str, Any]:
    """Everything in single cells; what is a list has its values in the order of the seeds."""
    trials = one.trials
    return {
        "candidate": one.name,
        "plan": one.plan,
        **{key: plain(value) for key, value in one.settings.items() if key != "plan"},
        "learning_rate": one.learning_rate,
        "head_learning_rate": one.head_learning_rate,
        "loss_weights": plain(dict(one.loss_weights)),
        "tie": one.tie,
        "seeds": len(trials),
        "missing_seeds": " ".join(map(str, one.missing_seeds)),
        **estimates(one),
        **compared("difference", one.against, (*OVERALL, *summary.tasks)),
        **compared("gain", one.gains, tuple(summary.tasks)),
        **{f"mcnemar_{task}": words(p) for task, p in one.mcnemar.items()},
        **{key: one.costs.get(key) for key in COSTS},
        "tm_relative": one.tm_relative,
        "costs_from": one.costs["source"],
        "steps": mean(trial.steps for trial in trials),
        "best_step": mean(trial.best_step for trial in trials),
        "best_epoch": mean(trial.best_epoch for trial in trials),
        **{f"passes_{t}": mean(trial.passes[t] for trial in trials) for t in one.tasks},
        "best_steps": words([trial.best_step for trial in trials]),
        "warnings": sum(len(trial.warnings) for trial in trials),
        "trials": words([trial.id for trial in trials]),
    }


def estimates(one: Standing) -> dict[str, Any]:
    return {
        f"{name}{suffix}": value
        for name, of in sorted(one.scores.items(), key=lambda item: item[0] not in OVERALL)
        for suffix, value in (("", of.mean), ("_stderr", of.stderr), ("_spread", of.spread))
    }


def compared(what: str, found: Any, keys: Sequence[str]) -> dict[str, Any]:
    """`difference_overall`, `difference_overall_low`, ...; empty where there is none."""
    cells: dict[str, Any] = {}
    for key in keys:
        of: Difference | None = found.get(key)
        for field in COMPARED:
            name = f"{what}_{key}" if field == "mean" else f"{what}_{key}_{field}"
            cells[name] = "" if of is None else getattr(of, field)
    return cells


def plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def words(values: Sequence[Any]) -> str:
    return " ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)


# ------------------------------------------------------------------ to be read


def to_markdown(summary: Summary) -> str:
    decision = decided(recommend(summary)) if summary.standings else ["No trial is finished."]
    parts = [f"# {summary.name}", "\n".join(decision)]
    for make in TABLES:
        if (table := make(summary)).rows:
            parts += [f"## {table.title}", markdown_table(table), escape_markdown(table.note)]
    if summary.findings:
        parts += ["## Guards", bullets([finding.text for finding in summary.findings])]
    warnings = warnings_by_candidate(summary)
    if warnings:
        parts += ["## Warnings of the trainings", bullets(warnings)]
    if (outside := outside_table(summary)).rows:
        parts += [f"## {outside.title}", markdown_table(outside)]
    parts += ["## Rows", what_was_chosen(summary)]
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def warnings_by_candidate(summary: Summary) -> list[str]:
    """Each warning once for a candidate, with the seeds that gave it."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in summary.standings:
        for trial in one.trials:
            for warning in trial.warnings:
                found.setdefault((one.name, warning), []).append(trial.seed)
    return [
        f"{name} (seed {', '.join(map(str, seeds))}): {warning}"
        for (name, warning), seeds in found.items()
    ]
