"""A paper as data, read from a YAML file in this folder, and our results that stand for its models.

A file names its models once, under `models`; any other model name is the short form of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from mops.errors import UsageError, nearest
from mops.evaluate.cost import FLOAT_BYTES
from mops.record import Record
from mops.surveys.expansion import value_at
from mops.surveys.results.results import CandidateResult, Results
from mops.yaml_io import read_yaml, to_value

NAMES = ("mops", "milestone", "hybrid", "progressive", "pals")
TASKS = ("sentiment", "paraphrase", "similarity")  # of all five papers; ours have the same names
METRICS = {"similarity": "pearson"}  # other tasks: accuracy
TOLERANCE = 0.05  # relative, between two settings: papers print two digits


@dataclass(frozen=True)
class PaperModel:
    """Which of our candidates stands for a model of the paper."""

    plan: str  # short form; {half} is half of the encoder's depth
    needs: Mapping[str, Any] = field(default_factory=dict)  # required settings, by dotted key
    prefer: Mapping[str, Any] = field(default_factory=dict)  # chooses between several candidates
    trains: tuple[str, ...] = ()  # the only tasks that are trained; empty: all


Pair = tuple[tuple[PaperModel, ...], tuple[PaperModel, ...]]  # of several models the mean is meant


@dataclass(frozen=True)
class PaperRow:
    """A row as printed; the keys of its mappings are measures (`compare.TableFiller.value`)."""

    label: str
    model: PaperModel
    numbers: Mapping[str, int | float]
    models: Mapping[str, PaperModel] = field(default_factory=dict)  # columns with another model
    split: str = "validation"
    should: Mapping[str, float] = field(default_factory=dict)  # what a wrong number should be
    remark: str = ""


@dataclass(frozen=True)
class PaperTable:
    """One table, or some of its columns."""

    name: str  # file stem
    title: str
    columns: Mapping[str, str]  # measure -> its name in the paper
    rows: tuple[PaperRow, ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding as the paper states it, and the claim about our results that tests it."""

    text: str
    claim: Literal["greater", "not_worse", "equal"]
    quantity: Literal["score", "best", "correlation", "time", "tm", "parameters"] = "score"
    metrics: tuple[str, ...] = ("",)  # the claim must hold in each; costs have none
    pairs: tuple[Pair, ...]
    than: tuple[Pair, ...] = ()  # pairs whose gains are compared with those of `pairs`
    other_than: Mapping[str, Any] = field(default_factory=dict)  # settings that must differ
    bound: float | None = None  # a margin, or the largest ratio of parameters
    hold: int | Literal["all", "available"] = "all"  # how many of the comparisons must hold


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper with its tables and findings. All of them trained BERT-base."""

    name: str
    title: str
    source: str
    surveys: tuple[str, ...]  # named experiments that repeat it
    steps: int | None = None  # of one training; None: not stated
    rows: Mapping[str, int] = field(default_factory=dict)  # training rows of each task
    dev_rows: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[PaperTable, ...]
    findings: tuple[Finding, ...]
    differences: tuple[str, ...]  # from any survey of ours, and errors of the paper


@cache
def read_paper(name: str) -> Paper:
    """A paper; its `tm` is the printed TM divided by that of the table's first row."""
    if name not in NAMES:
        raise UsageError(f"no paper {name!r}; there are {', '.join(NAMES)}.{nearest(name, NAMES)}")
    path = Path(__file__).with_name(f"{name}.yaml")
    data = read_yaml(path, UsageError)
    models = data.pop("models", {})

    def side(names: str | list[str]) -> list[Any]:
        return [models.get(n, {"plan": n}) for n in ([names] if isinstance(names, str) else names)]

    for table in data["tables"]:
        measures = table.pop("numbers")
        for row in table["rows"]:
            row["model"] = side(row["model"])[0]
            row["models"] = {key: side(model)[0] for key, model in row.get("models", {}).items()}
            numbers = row["numbers"] = dict(zip(measures, row["numbers"], strict=False))
            if "tm_printed" in numbers:
                numbers["tm"] = numbers["tm_printed"] / table["rows"][0]["numbers"]["tm_printed"]
    for finding in data["findings"]:
        for key in {"pairs", "than"} & finding.keys():
            finding[key] = [[side(names) for names in pair] for pair in finding[key]]
    return to_value(Paper, data, where=str(path), error=UsageError)


# ------------------------------------------------------------------ our results


@dataclass(frozen=True)
class OurResults:
    """A survey, and one record of each candidate (recipe, encoder and data do not vary by seed)."""

    results: Results
    records: Mapping[str, Record]

    def plan(self, model: PaperModel) -> str:
        shapes = (record.meta_info.encoder_shape for record in self.records.values())
        depth = next((int(shape["depth"]) for shape in shapes if shape.get("depth")), 0)
        return model.plan.format(half=depth // 2 or "half")

    def find(self, model: PaperModel) -> CandidateResult | None:
        """The candidate that is meant; if several agree, the baseline or the first."""
        plan, needs = self.plan(model), {**model.needs, "training.train_tasks": model.trains}
        candidates = [c for c in self.results.candidates if c.plan == plan]
        agreeing = [c for c in candidates if self.has_settings(c, needs)]
        for key, value in model.prefer.items():
            agreeing = [c for c in agreeing if self.has_settings(c, {key: value})] or agreeing
        agreeing.sort(key=lambda candidate: candidate.name != self.results.baseline)
        return agreeing[0] if agreeing else None

    def has_settings(self, candidate: CandidateResult, wanted: Mapping[str, Any]) -> bool:
        """Whether its recipe has these; the record has those that do not vary in the survey."""
        total = sum(candidate.loss_weights.values()) or 1.0  # Adam's updates depend on ratios alone
        weights = {task: weight / total for task, weight in candidate.loss_weights.items()}
        varied = {
            **candidate.settings,
            "training.learning_rate": candidate.learning_rate,
            "training.loss_weights": weights,
        }
        record = self.records.get(candidate.name)
        recipe = record.run_info.recipe if record else {}
        return all(agree(v, varied.get(key, value_at(recipe, key))) for key, v in wanted.items())

    def values(
        self, candidate: CandidateResult, task: str, split: str, metric: str = ""
    ) -> list[float]:
        """A number for each seed, on a whole split; untrained tasks have numbers too."""
        metric = metric or METRICS.get(task, "accuracy")
        return [v for v in candidate.values(task, split, metric) if math.isfinite(v)]

    def overall(self, candidate: CandidateResult, split: str, convention: str) -> float | None:
        """Over the papers' three tasks, trained or not; None if one is missing."""
        by_task = {task: self.values(candidate, task, split) for task in TASKS}
        if not all(by_task.values()):
            return None
        *others, similarity = map(mean, by_task.values())
        is_normalised = convention == "overall_normalised"
        return mean([*others, (similarity + 1) / 2 if is_normalised else similarity])

    @staticmethod
    def checkpoint_bytes(candidate: CandidateResult) -> int:
        """The founding paper's "model size": weights, and Adam's two moments of the trained."""
        return candidate.costs.weight_bytes + 2 * FLOAT_BYTES * candidate.costs.trained_parameters


def agree(wanted: Any, setting: Any) -> bool:
    """Floats within the tolerance; mappings in the wanted keys, where an absent key is false."""
    if isinstance(wanted, Mapping):
        return isinstance(setting, Mapping) and all(
            agree(value, setting.get(key, False)) for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return list(wanted) == list(setting or ())
    if isinstance(wanted, float) and isinstance(setting, int | float):
        return math.isclose(wanted, setting, rel_tol=TOLERANCE)
    return bool(wanted == setting)
