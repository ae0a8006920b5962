"""The files of `Results`: summary.json (complete), summary.csv (flat), summary.md (for people)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from mops.evaluate.compare import Difference
from mops.evaluate.metrics import OVERALL
from mops.files import write_text
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import CandidateResult, Results
from mops.surveys.results.tables import (
    TESTED,
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


def write_results(results: Results) -> None:
    """All three, each of them complete or not at all."""
    write_text(results.folder / "summary.json", results.to_json())
    write_text(results.folder / "summary.csv", to_csv(results))
    write_text(results.folder / "summary.md", to_markdown(results))


def to_csv(results: Results) -> str:
    """A row per candidate."""
    rows = [flatten(one, list(results.tasks)) for one in results.candidates]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flatten(one: CandidateResult, tasks: Sequence[str]) -> dict[str, Any]:
    """Everything in single cells; lists have their values in the order of the seeds."""
    trials = one.trials
    return {
        "candidate": one.name,
        "plan": one.plan,
        **{key: to_cell(value) for key, value in one.settings.items() if key != "plan"},
        "learning_rate": one.learning_rate,
        "head_learning_rate": one.head_learning_rate,
        "loss_weights": to_cell(dict(one.loss_weights)),
        "tie": one.tie,
        "seeds": len(trials),
        "missing_seeds": " ".join(map(str, one.missing_seeds)),
        **{
            f"{name}{suffix}": value
            for name, of in sorted(one.scores.items(), key=lambda item: item[0] not in OVERALL)
            for suffix, value in (("", of.mean), ("_stderr", of.stderr), ("_spread", of.spread))
        },
        **flatten_differences("difference", one.against, (*OVERALL, *tasks)),
        **flatten_differences("gain", one.gains, tasks),
        **{f"mcnemar_{task}": join_values(p) for task, p in one.mcnemar.items()},
        **{key: getattr(one.costs, key) for key in COSTS},
        "tm_relative": one.tm_relative,
        "costs_from": one.costs.source,
        "steps": mean(trial.steps for trial in trials),
        "best_step": mean(trial.best_step for trial in trials),
        "best_epoch": mean(trial.best_epoch for trial in trials),
        **{f"passes_{t}": mean(trial.passes[t] for trial in trials) for t in one.tasks},
        "best_steps": join_values([trial.best_step for trial in trials]),
        "warnings": sum(len(trial.warnings) for trial in trials),
        "trials": join_values([trial.id for trial in trials]),
    }


def flatten_differences(
    prefix: str, differences: Mapping[str, Difference], keys: Sequence[str]
) -> dict[str, Any]:
    """`difference_overall`, `difference_overall_low`, ...; empty where there is none."""
    names = {"": "mean"} | {f"_{name}": name for name in TESTED}
    return {
        f"{prefix}_{key}{suffix}": getattr(differences[key], name) if key in differences else ""
        for key in keys
        for suffix, name in names.items()
    }


def to_cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def join_values(values: Sequence[Any]) -> str:
    return " ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)


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
