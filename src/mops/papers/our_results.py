"""Our side of a comparison with a paper: the candidate that stands for a model, and its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from mops.evaluate.cost import FLOAT_BYTES
from mops.evaluate.metrics import OVERALL
from mops.papers.paper import TASKS, PaperModel
from mops.record import Record
from mops.surveys.expansion import value_at
from mops.surveys.results.results import CandidateResult, Results

METRICS = {"similarity": "pearson"}  # other tasks: accuracy
TOLERANCE = 0.05  # relative, between two settings: papers print two digits


@dataclass(frozen=True)
class OurResults:
    """A survey, and one record of each candidate (recipe, encoder and data do not vary by seed)."""

    results: Results
    records: Mapping[str, Record]

    @cached_property
    def depth(self) -> int:
        shapes = [record.meta_info.encoder_shape for record in self.records.values()]
        return next((int(shape["depth"]) for shape in shapes if shape.get("depth")), 0)

    def plan(self, model: PaperModel) -> str:
        return model.plan.format(half=self.depth // 2 or "half")

    def find(self, model: PaperModel) -> CandidateResult | None:
        """The candidate that is meant; if several agree, the baseline or the first."""
        plan = self.plan(model)
        agreeing = [
            candidate
            for candidate in self.results.candidates
            if candidate.plan == plan and self.has_settings(candidate, model.needs)
            and tuple(self.setting(candidate, "training.train_tasks") or ()) == model.trains
        ]  # fmt: skip
        for key, value in model.prefer.items():
            agreeing = [c for c in agreeing if self.has_settings(c, {key: value})] or agreeing
        agreeing.sort(key=lambda candidate: candidate.name != self.results.baseline)
        return agreeing[0] if agreeing else None

    def has_settings(self, candidate: CandidateResult, wanted: Mapping[str, Any]) -> bool:
        return all(agree(value, self.setting(candidate, key)) for key, value in wanted.items())

    def setting(self, candidate: CandidateResult, key: str) -> Any:
        """A key of its recipe; the record has those that do not vary in the survey."""
        total = sum(candidate.loss_weights.values()) or 1.0  # Adam's updates depend on ratios alone
        weights = {task: weight / total for task, weight in candidate.loss_weights.items()}
        known = {
            **candidate.settings,
            "training.learning_rate": candidate.learning_rate,
            "training.loss_weights": weights,
        }
        record = self.records.get(candidate.name)
        return known.get(key, value_at(record.run_info.recipe, key) if record else None)

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
        means = {task: mean(values) for task, values in by_task.items()}
        if convention == "overall_normalised":
            means["similarity"] = (means["similarity"] + 1) / 2
        return mean(means.values())

    def is_comparable(self, candidate: CandidateResult) -> bool:
        """Whether the survey's overall score is over the papers' three tasks."""
        return set(candidate.tasks) == set(TASKS) and set(OVERALL) <= set(candidate.scores)


def agree(wanted: Any, setting: Any) -> bool:
    """Floats within the tolerance; mappings in the wanted keys, of which an absent one is false."""
    if isinstance(wanted, Mapping):
        return isinstance(setting, Mapping) and all(
            agree(value, setting.get(key, False)) for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return list(wanted) == list(setting or ())
    if isinstance(wanted, float) and isinstance(setting, int | float):
        return math.isclose(wanted, setting, rel_tol=TOLERANCE)
    return bool(wanted == setting)


def checkpoint_bytes(candidate: CandidateResult) -> int:
    """A checkpoint as the founding paper stored it: weights, and Adam's two moments of each.

    Its "model size" is this file; frozen weights have no moments.
    """
    return candidate.costs.weight_bytes + 2 * FLOAT_BYTES * candidate.costs.trained_parameters
