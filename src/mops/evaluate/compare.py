"""Which candidates of a survey differ, from their scores and the noise of rows and runs. No torch.

`compare` says for each candidate how good it is, whether it may be the best, and how it differs
from the baseline and from a model per task. Each question is one family: the set of the best over
all candidates, the differences from the baseline over all candidates for each score, and the gains
over the single-task candidate over all candidates for each task.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mops.evaluate.joint import Difference, Joint, RowNoise, RunValues, estimate_joint
from mops.evaluate.metrics import EQUAL, Weights
from mops.evaluate.statistics import mcnemar
from mops.tasks import CORRELATIONS, Task

Values = NDArray[np.float64]
Answers = Mapping[int, Mapping[str, Values]]  # seed -> task -> values


@dataclass(frozen=True)
class Estimate:
    """A score over seeds; with one seed its error is over rows alone."""

    mean: float
    stderr: float
    spread: float | None  # standard deviation over seeds; None with one
    seeds: int


@dataclass(frozen=True)
class CandidateComparison:
    """One candidate, compared. What it did not answer has no key."""

    scores: Mapping[str, Estimate]  # each task, "overall" and "overall_normalised"
    against: Mapping[str, Difference]  # minus the baseline, by the same keys
    gains: Mapping[str, Difference]  # minus the single-task candidate, by task
    is_best: bool  # whether the set that contains the best candidate, at 95 %, has this one


def joint_scores(
    metrics: Mapping[str, str],
    values: Mapping[str, RunValues],
    rows: Mapping[str, RowNoise],
    weights: Weights = EQUAL,
) -> dict[str, Joint]:
    """The joint estimate of each task and of both overall scores.

    `metrics` names the main metric of each task. An overall score is linear in the scores of the
    tasks, whose rows are drawn independently.
    """
    joint = {task: estimate_joint(values[task], *rows[task].scaled(1.0)) for task in metrics}
    total = sum(weights.get(task, 1.0) for task in metrics)
    halved = {task for task, metric in metrics.items() if metric in CORRELATIONS}
    for key, correlations in (("overall", set()), ("overall_normalised", halved)):
        part = {task: weights.get(task, 1.0) / total for task in metrics}
        start = sum(part[task] / 2 for task in correlations)  # (r + 1) / 2
        slope = {task: part[task] / (2 if task in correlations else 1) for task in metrics}
        runs = {
            name: {s: start + sum(slope[t] * values[t][name][s] for t in metrics) for s in by_seed}
            for name, by_seed in next(iter(values.values())).items()
        }
        noise = [rows[task].scaled(slope[task]) for task in metrics]
        shared_CC, within_C = (np.sum(parts, axis=0) for parts in zip(*noise, strict=True))
        joint[key] = estimate_joint(runs, shared_CC, within_C)
    return joint


def compare(
    joint: Mapping[str, Joint],
    values: Mapping[str, RunValues],
    *,
    baseline: str,
    single: str | None = None,
    by: str = "overall",
) -> dict[str, CandidateComparison]:
    """Each candidate, compared; the set of the best is that of the score `by`."""
    against = {key: estimate.against(baseline) for key, estimate in joint.items()}
    gains = {task: joint[task].against(single) for task in values} if single else {}
    best = joint[by].best_set()
    return {
        name: CandidateComparison(
            scores={key: estimate_of(estimate, name) for key, estimate in joint.items()},
            against={key: tested[name] for key, tested in against.items() if name in tested},
            gains={task: tested[name] for task, tested in gains.items() if name in tested},
            is_best=name in best,
        )
        for name in joint[by].names
    }


def estimate_of(joint: Joint, name: str) -> Estimate:
    at = joint.index(name)
    mean, stderr = joint.contrast({name: 1.0})
    return Estimate(mean, stderr, joint.spread[at], int(joint.seeds_C[at]))


def mcnemar_by_task(
    tasks: Mapping[str, Task], targets: Mapping[str, Values], own: Answers, baseline: Answers
) -> dict[str, tuple[float, ...]]:
    """For each task that is scored by accuracy; nothing for the baseline itself."""
    seeds = sorted(own.keys() & baseline.keys()) if own is not baseline else []
    return {
        name: tuple(
            mcnemar(own[seed][name] == targets[name], baseline[seed][name] == targets[name])
            for seed in seeds
        )
        for name, task in tasks.items()
        if seeds and task.score_name == "accuracy"
    }
