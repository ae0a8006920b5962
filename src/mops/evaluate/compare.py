"""Which candidates of a survey differ: scores over seeds, paired comparisons, ties. No torch.

`compare` scores every run on the same rows, and says for each candidate how good it is and from
whom it differs. `tie_groups` and `different_pairs` decide what counts as different.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mops.errors import UsageError, nearest
from mops.evaluate.metrics import EQUAL, OVERALL, Weights, scores_of
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
Run = tuple[str, int]  # candidate, seed
AnswersByRun = Mapping[
    str, Mapping[int, Mapping[str, Values]]
]  # candidate -> seed -> task -> values
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
    answers: AnswersByRun,
    *,
    baseline: str,
    single: str | None = None,
    by: str = "overall",
    weights: Weights = EQUAL,
) -> dict[str, CandidateComparison]:
    """Each candidate, compared; ties are formed by the score `by`, overall scores by weights."""
    check(tasks, targets, answers, wanted=(baseline, single or baseline))
    if by not in (*tasks, *OVERALL):
        raise UsageError(f"no score is named {by!r}; allowed: {', '.join((*tasks, *OVERALL))}")
    scored = score_runs(tasks, targets, answers, weights)
    against = {
        key: differences({name: runs.mean(name, baseline) for name in answers if name != baseline})
        for key, runs in scored.items()
    }
    gains = gains_over(single, scored, [task for task in tasks if task in scored], answers)
    different = different_pairs(scored[by]) if by in scored else set()
    ties = tie_groups(means_by_name(scored[by]), different) if by in scored else {}
    return {
        name: CandidateComparison(
            scores={key: estimate(runs, name) for key, runs in scored.items() if runs.seeds(name)},
            against={key: found[name] for key, found in against.items() if name in found},
            gains={task: gains[name, task] for task in tasks if (name, task) in gains},
            mcnemar=dict(mcnemar_by_task(tasks, targets, answers, (name, baseline))),
            tie=ties.get(name, 0),
            apart=tuple(other for other in answers if frozenset((name, other)) in different),
        )
        for name in answers
    }


def check(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: AnswersByRun,
    wanted: Iterable[str],
) -> None:
    """Refuse candidates that are not there, and answers to other rows."""
    for name in wanted:
        if name not in answers:
            raise UsageError(
                f"no candidate is named {name!r}; there are: {', '.join(answers)}."
                f"{nearest(name, list(answers))}"
            )
    for task in tasks:
        for (name, seed), values in task_runs(answers, task):
            if not len(values) == len(targets[task]) > 0:
                raise UsageError(
                    f"{name}, seed {seed}: {len(values)} predictions of {task} for "
                    f"{len(targets[task])} rows; all candidates must answer the same rows"
                )


# ------------------------------------------------------------------ scores of runs


def score_runs(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: AnswersByRun,
    weights: Weights,
) -> dict[str, ScoredRuns]:
    """By task, if any run answered it, and by overall score, if any run answered every task."""
    by_task = {name: dict(task_runs(answers, name)) for name in tasks}
    scored = {
        name: score_task(task, np.asarray(targets[name], dtype=float), by_task[name])
        for name, task in tasks.items()
        if by_task[name]
    }
    complete = [run for run in by_task[min(tasks)] if all(run in of for of in by_task.values())]
    return scored | (dict(overall_scores(tasks, scored, complete, weights)) if complete else {})


def task_runs(answers: AnswersByRun, task: str) -> Iterator[tuple[Run, Values]]:
    for name, by_seed in answers.items():
        for seed, by_task in by_seed.items():
            if task in by_task:
                yield (name, seed), np.asarray(by_task[task], dtype=float)


def score_task(task: Task, targets_N: Values, answers: Mapping[Run, Values]) -> ScoredRuns:
    metric = scores_of(task)[task.score_name]
    return ScoredRuns(
        at=indices(answers),
        values_R=np.array([metric(targets_N, values_N) for values_N in answers.values()]),
        covariance_RR=row_covariance(task, targets_N, np.stack(list(answers.values()))),
    )


def overall_scores(
    tasks: Mapping[str, Task],
    scored: Mapping[str, ScoredRuns],
    runs: Sequence[Run],
    weights: Weights,
) -> Iterator[tuple[str, ScoredRuns]]:
    """An overall score is linear in the tasks' scores, and tasks have rows of their own."""
    at = indices(runs)
    places = {task: [of.at[name][seed] for name, seed in runs] for task, of in scored.items()}
    nothing = dict.fromkeys(tasks, 0.0)
    for key, overall in OVERALL.items():
        start = overall(tasks, nothing, weights)
        slope = {name: overall(tasks, nothing | {name: 1.0}, weights) - start for name in tasks}
        values = [slope[name] * scored[name].values_R[place] for name, place in places.items()]
        covariances = [
            slope[name] ** 2 * scored[name].covariance_RR[np.ix_(place, place)]
            for name, place in places.items()
        ]
        yield key, ScoredRuns(at, start + np.sum(values, axis=0), np.sum(covariances, axis=0))


def indices(runs: Iterable[Run]) -> dict[str, dict[int, int]]:
    """Candidate -> seed -> index of that run."""
    at: dict[str, dict[int, int]] = {}
    for index, (name, seed) in enumerate(runs):
        at.setdefault(name, {})[seed] = index
    return at


# ------------------------------------------------------------------ comparisons


def means_by_name(scored: ScoredRuns) -> dict[str, float]:
    return {name: float(scored.values(name).mean()) for name in scored.at}


def estimate(scored: ScoredRuns, name: str) -> Estimate:
    mean, values = scored.mean(name), scored.values(name)
    assert mean is not None
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    return Estimate(mean.value, mean.stderr, spread, mean.seeds)


def differences(means: Mapping[Key, Mean | None]) -> dict[Key, Difference]:
    """Differences tested as one family; those of one seed form a family of their own."""
    known = {key: mean for key, mean in means.items() if mean is not None}
    families = (
        {key: mean for key, mean in known.items() if mean.seeds > 1},
        {key: mean for key, mean in known.items() if mean.seeds == 1},
    )
    found = {key: difference for family in families for key, difference in run_tests(family)}
    return {key: found[key] for key in known}


def run_tests(means: Mapping[Key, Mean]) -> Iterator[tuple[Key, Difference]]:
    p = [off_zero(mean.value, mean.stderr, mean.freedom) for mean in means.values()]
    for (key, mean), alone, adjusted in zip(means.items(), p, holm(p), strict=True):
        reach = student_quantile(LEVEL / 2, mean.freedom) * mean.stderr
        yield (
            key,
            Difference(
                mean=mean.value,
                stderr=mean.stderr,
                low=mean.value - reach,
                high=mean.value + reach,
                p=alone,
                p_holm=float(adjusted),
                is_significant=bool(adjusted < LEVEL) and mean.seeds > 1,
                seeds=mean.seeds,
            ),
        )


def gains_over(
    single: str | None, scored: Mapping[str, ScoredRuns], tasks: Sequence[str], names: Iterable[str]
) -> dict[tuple[str, str], Difference]:
    """(candidate, task) -> its gain over a model of its own; empty without such models."""
    others = [name for name in names if single and name != single]
    return differences(
        {(name, task): scored[task].mean(name, single or "") for name in others for task in tasks}
    )


def mcnemar_by_task(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: AnswersByRun,
    pair: tuple[str, str],
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """For each task that is scored by accuracy; nothing for the baseline itself."""
    one, other = (answers[name] for name in pair)
    seeds = sorted(one.keys() & other.keys()) if one is not other else []
    for name in (name for name, task in tasks.items() if task.score_name == "accuracy"):
        p = tuple(
            mcnemar(one[seed][name] == targets[name], other[seed][name] == targets[name])
            for seed in seeds
            if name in one[seed] and name in other[seed]
        )
        if p:
            yield name, p


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
