"""Which candidates of a survey differ: scores over seeds, paired comparisons, ties. No torch.

`compare` scores every run on the same rows, and says for each candidate how good it is and from
whom it differs. `tie_groups` and `different_pairs` decide what counts as different.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations, count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mops.evaluate.metrics import EQUAL, OVERALL, Weights, metrics_of
from mops.evaluate.statistics import (
    LEVEL,
    Mean,
    ScoredRuns,
    holm,
    mcnemar,
    off_zero,
    row_covariance,
    student_quantile,
)
from mops.tasks import Task

Values = NDArray[np.float64]
Answers = Mapping[int, Mapping[str, Values]]  # seed -> task -> values
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A score over seeds; with one seed its error is over rows alone."""

    mean: float
    stderr: float
    spread: float | None  # standard deviation over seeds; None with one
    seeds: int


@dataclass(frozen=True)
class Difference:
    """One candidate minus another, over the seeds that both have.

    With one seed the noise between runs is unknown: error, interval and p are over rows, which
    compares two trained models but not the two plans. So it is never significant.
    """

    mean: float
    stderr: float
    low: float  # 95 % interval, for this difference alone
    high: float
    p: float
    p_holm: float
    is_significant: bool
    seeds: int

    @property
    def in_words(self) -> str:
        return f"{self.mean:+.3f}, 95 % interval {self.low:+.3f} to {self.high:+.3f}"


@dataclass(frozen=True)
class CandidateComparison:
    """One candidate, compared. What it did not answer has no key."""

    scores: Mapping[str, Estimate]  # each task, "overall" and "overall_normalised"
    against: Mapping[str, Difference]  # the baseline, by the same keys; Holm over candidates
    gains: Mapping[str, Difference]  # over the single-task candidate; Holm over (candidate, task)
    mcnemar: Mapping[str, tuple[float, ...]]  # exact p against the baseline, for each common seed
    tie: int  # 1: not significantly different from the best; 2: the next group; 0: no such score
    apart: tuple[str, ...]  # candidates that differ significantly; Holm over all pairs


def compare(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: Mapping[str, Answers],
    *,
    baseline: str,
    single: str | None = None,
    by: str = "overall",
    weights: Weights = EQUAL,
) -> dict[str, CandidateComparison]:
    """Each candidate, compared; ties are formed by the score `by`, overall scores by weights.

    All runs must have answered the same rows of all tasks.
    """
    scored = score_runs(tasks, targets, answers, weights)
    against = {
        key: differences({name: runs.mean(name, baseline) for name in answers if name != baseline})
        for key, runs in scored.items()
    }
    others = [name for name in answers if single and name != single]
    gains = differences({(n, task): scored[task].mean(n, single) for n in others for task in tasks})
    different = different_pairs(scored[by])
    ties = tie_groups({name: scored[by].values(name).mean() for name in answers}, different)
    return {
        name: CandidateComparison(
            scores={key: estimate(runs, name) for key, runs in scored.items()},
            against={key: tested[name] for key, tested in against.items() if name in tested},
            gains={task: gains[name, task] for task in tasks if (name, task) in gains},
            mcnemar=mcnemar_by_task(tasks, targets, answers[name], answers[baseline]),
            tie=ties[name],
            apart=tuple(other for other in answers if frozenset((name, other)) in different),
        )
        for name in answers
    }


def score_runs(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: Mapping[str, Answers],
    weights: Weights,
) -> dict[str, ScoredRuns]:
    """The scores of all runs, by task and by overall score."""
    index = count()
    at = {name: {seed: next(index) for seed in by_seed} for name, by_seed in answers.items()}
    runs = [by_task for by_seed in answers.values() for by_task in by_seed.values()]
    scored = {}
    for name, task in tasks.items():
        metric, answers_RN = metrics_of(task)[task.score_name], np.stack([r[name] for r in runs])
        values_R = np.array([metric(targets[name], answers_N) for answers_N in answers_RN])
        scored[name] = ScoredRuns(at, values_R, row_covariance(task, targets[name], answers_RN))
    # An overall score is linear in the scores of the tasks, which have rows of their own.
    nothing = dict.fromkeys(tasks, 0.0)
    overalls = {}
    for key, overall in OVERALL.items():
        start = overall(tasks, nothing, weights)
        slope = {name: overall(tasks, nothing | {name: 1.0}, weights) - start for name in tasks}
        values = [slope[name] * runs.values_R for name, runs in scored.items()]
        covariances = [slope[name] ** 2 * runs.covariance_RR for name, runs in scored.items()]
        overalls[key] = ScoredRuns(at, start + np.sum(values, axis=0), np.sum(covariances, axis=0))
    return scored | overalls


def estimate(scored: ScoredRuns, name: str) -> Estimate:
    mean, values = scored.mean(name), scored.values(name)
    assert mean is not None
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    return Estimate(mean.value, mean.stderr, spread, mean.seeds)


def differences(means: Mapping[Key, Mean | None]) -> dict[Key, Difference]:
    """Differences tested as one family; those of one seed form a family of their own."""
    known = {key: mean for key, mean in means.items() if mean is not None}
    p = {key: off_zero(mean.value, mean.stderr, mean.freedom) for key, mean in known.items()}
    several = [key for key, mean in known.items() if mean.seeds > 1]
    adjusted = dict(zip(several, holm([p[key] for key in several]), strict=True))
    single = [key for key in known if key not in adjusted]
    adjusted |= zip(single, holm([p[key] for key in single]), strict=True)
    tested = {}
    for key, mean in known.items():
        reach = student_quantile(LEVEL / 2, mean.freedom) * mean.stderr
        tested[key] = Difference(
            mean=mean.value,
            stderr=mean.stderr,
            low=mean.value - reach,
            high=mean.value + reach,
            p=p[key],
            p_holm=float(adjusted[key]),
            is_significant=bool(adjusted[key] < LEVEL) and mean.seeds > 1,
            seeds=mean.seeds,
        )
    return tested


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


# ------------------------------------------------------------------ ties


def different_pairs(scored: ScoredRuns) -> set[frozenset[str]]:
    """The pairs that differ significantly, with Holm's correction over all pairs."""
    pairs = {pair: scored.mean(*pair) for pair in combinations(scored.at, 2)}
    return {frozenset(pair) for pair, one in differences(pairs).items() if one.is_significant}


def tie_groups(means: Mapping[str, float], different: Collection[frozenset[str]]) -> dict[str, int]:
    """The group of each candidate, from 1.

    The best candidate and all that do not differ from it are group 1; the best of the rest and
    all of the rest that do not differ from that one are group 2; and so on.
    """
    left = sorted(means, key=lambda name: -means[name])
    groups: dict[str, int] = {}
    number = 0
    while left:
        number += 1
        tied = [name for name in left if frozenset((left[0], name)) not in different]
        groups |= dict.fromkeys(tied, number)
        left = [name for name in left if name not in groups]
    return groups
