"""Our side of a comparison with a paper: candidates found by what they are, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from mops.evaluate.metrics import OVERALL
from mops.papers.paper import TASKS, Match
from mops.reports.material import Material, TrialFiles
from mops.surveys.expansion import value_at
from mops.surveys.results.results import CandidateResult, Results

SCORES = {"sentiment": "accuracy", "paraphrase": "accuracy", "similarity": "pearson",
          "movies": "accuracy"}  # fmt: skip
NEAR = 0.05  # shares by which two rates may differ and be the same: papers print two digits


@dataclass(frozen=True)
class Ours:
    """A survey, asked by a paper."""

    material: Material

    @property
    def summary(self) -> Results:
        return self.material.summary

    @cached_property
    def depth(self) -> int:
        shapes = [trial.record.meta_info.encoder_shape for trial in self.trials]
        return next((int(shape["depth"]) for shape in shapes if shape.get("depth")), 0)

    @property
    def trials(self) -> tuple[TrialFiles, ...]:
        return self.material.trials

    # -------------------------------------------------------------- who

    def plan_of(self, match: Match) -> str:
        return match.plan.format(half=self.depth // 2 or "half")

    def find(self, match: Match) -> CandidateResult | None:
        """The candidate that is meant; of several that agree the baseline, or the first."""
        plan = self.plan_of(match)
        found = [one for one in self.summary.candidates if one.plan == plan]
        found = [one for one in found if self.agrees(one, match)]
        for key, wanted in match.rather.items():
            found = [one for one in found if agree(wanted, self.setting(one, key))] or found
        found.sort(key=lambda one: one.name != self.summary.baseline)
        return found[0] if found else None

    def agrees(self, one: CandidateResult, match: Match) -> bool:
        trained = tuple(self.setting(one, "training.train_tasks") or ())
        is_asked = all(agree(wanted, self.setting(one, key)) for key, wanted in match.needs.items())
        return is_asked and trained == match.trains

    def setting(self, one: CandidateResult, key: str) -> Any:
        """A key of its recipe; the record has those that do not vary in the survey."""
        told = {
            **one.settings,
            "training.learning_rate": one.learning_rate,
            "training.loss_weights": shares(one.loss_weights),
        }
        if key in told:
            return told[key]
        files = self.material.of(one.name)
        return value_at(files[0].record.run_info.recipe, key) if files else None

    # -------------------------------------------------------------- how good

    def scores(self, one: CandidateResult, task: str, split: str) -> list[float]:
        """On a whole split, a number for each seed; also of tasks that it was not taught."""
        return self.metric(one, task, split, SCORES[task])

    def metric(self, one: CandidateResult, task: str, split: str, name: str) -> list[float]:
        found = [
            value_at(trial.record.scores.tasks, f"{task}.{split}.{name}")
            for trial in self.material.of(one.name)
        ]
        return [float(value) for value in found if value is not None and math.isfinite(value)]

    def overall(self, one: CandidateResult, split: str, convention: str) -> float | None:
        """Over the papers' three tasks, by one of the two conventions; none where one is missing.

        A task that was not taught counts, as it does in the papers' baselines.
        """
        found = {task: self.scores(one, task, split) for task in TASKS}
        if not all(found.values()):
            return None
        means = {task: mean(values) for task, values in found.items()}
        if convention == "overall_normalised":
            means["similarity"] = (means["similarity"] + 1) / 2
        return mean(means.values())

    def is_comparable(self, one: CandidateResult) -> bool:
        """Whether its judged overall score is over the papers' three tasks."""
        return set(one.tasks) == set(TASKS) and set(OVERALL) <= set(one.scores)


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as shares of their sum: Adam moves alike whatever the sum is."""
    total = sum(weights.values()) or 1.0
    return {task: weight / total for task, weight in weights.items()}


def agree(wanted: Any, found: Any) -> bool:
    """Numbers nearly; mappings in the keys that are wanted, of which an absent one is false."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            agree(value, found.get(key, False)) for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return list(wanted) == list(found or ())
    if isinstance(wanted, float):
        is_number = isinstance(found, int | float)
        return is_number and math.isclose(wanted, found, rel_tol=NEAR)
    return bool(wanted == found)
