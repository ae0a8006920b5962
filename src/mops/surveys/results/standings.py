"""The judged result of a survey as plain values; `summary.json` in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.evaluate.compare import Difference, Estimate
from mops.surveys.results.results import Outside
from mops.yaml_io import to_value


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """What one finished training adds to a summary."""

    id: str
    seed: int
    digest: str  # of its predictions
    selection: float | None  # overall on the rows that chose the best evaluation
    scores: Mapping[str, float]  # on the rows that judge: tasks and both overall scores
    steps: int
    planned_steps: int
    best_step: int
    best_epoch: float
    rows: Mapping[str, int]  # training rows that each task has seen
    passes: Mapping[str, float]
    train_seconds: float
    batched: int  # trainings that shared the time
    is_stopped_early: bool
    is_best_last: bool  # the last evaluation was the best: the budget may be too small
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One candidate over its seeds: how good, at what cost, and against whom."""

    name: str
    plan: str
    settings: Mapping[str, Any]  # what varies in the survey
    learning_rate: float
    head_learning_rate: float
    loss_weights: Mapping[str, float]
    tasks: tuple[str, ...]  # that it has learnt
    reference: str  # what it is compared with: the baseline, where that learns the same tasks
    tie: int  # 1: cannot be told from the best
    apart: tuple[str, ...]  # candidates that it can be told from
    scores: Mapping[str, Estimate]
    against: Mapping[str, Difference]
    gains: Mapping[str, Difference]  # over the single-task candidate
    mcnemar: Mapping[str, tuple[float, ...]]
    costs: Mapping[str, Any]
    tm_relative: float | None
    trials: tuple[TrialFacts, ...]
    missing_seeds: tuple[int, ...]

    @property
    def overall(self) -> Estimate:
        return self.scores["overall"]


@dataclass(frozen=True)
class Rows:
    """How many rows of a task chose the best evaluation, and how many judge it."""

    chose: int
    judge: int


@dataclass(frozen=True)
class Finding:
    """What a guard says of the whole survey."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A survey, judged. Tables, pages and recommendations are functions of it."""

    name: str
    baseline: str
    single: str | None
    on: str  # the rows that judge: report or test
    seeds: tuple[int, ...]
    tasks: Mapping[str, str]  # task -> its score
    rows: Mapping[str, Rows]
    standings: tuple[Standing, ...]  # by tie; inside a tie as in the design
    failed: tuple[Outside, ...]
    doubtful: tuple[Outside, ...]
    waiting: tuple[Outside, ...]
    findings: tuple[Finding, ...] = ()
    weights: Mapping[str, float] = field(
        default_factory=dict
    )  # of tasks, where they do not all count 1

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_data(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_summary(path: Path) -> Summary:
    """The summary in a file, or in the folder of a survey."""
    path = path / "summary.json" if path.is_dir() else path
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as cause:
        raise UsageError(
            f"{path} is no summary of a survey: {cause}; pass the folder of a survey that "
            "`mops survey` has judged"
        ) from cause
    return to_value(Summary, data, where=str(path), error=UsageError)
