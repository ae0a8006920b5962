"""Every run of a survey scored on the same rows: each task and both overall scores. numpy only.

Which candidates of a survey differ: scores over seeds, paired comparisons, ties. numpy only.
Candidates that cannot be told apart form a tie; inside a tie there is no order. numpy only.
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
    Scored,
    holm,
    mcnemar,
    off_zero,
    row_covariance,
    student_quantile,
)
from mops.tasks import Task

Values = NDArray[np.float64]
Run = tuple[str, int]  # candidate, seed


def score_runs(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answers: Mapping[str, Mapping[Run, Values]],
    weights: Weights = EQUAL,
) -> dict[str, Scored]:
    """By task, if any run answered it, and by overall score, if any run answered every task."""
    found = {
        name: score_task(task, np.asarray(targets[name], dtype=float), answers[name])
        for name, task in tasks.items()
        if answers[name]
    }
    complete = [run for run in answers[min(tasks)] if all(run in of for of in answers.values())]
    return found | (dict(overall_scores(tasks, found, complete, weights)) if complete else {})


def score_task(task: Task, targets_N: Values, answers: Mapping[Run, Values]) -> Scored:
    of = scores_of(task)[task.score_name]
    return Scored(
        at=stand(answers),
        values_R=np.array([of(targets_N, answer_N) for answer_N in answers.values()]),
        covariance_RR=row_covariance(task, targets_N, np.stack(list(answers.values()))),
    )


def overall_scores(
    tasks: Mapping[str, Task], scored: Mapping[str, Scored], runs: list[Run], weights: Weights
) -> Iterator[tuple[str, Scored]]:
    """An overall score is linear in the tasks' scores, and tasks have rows of their own."""
    at = stand(runs)
    places = {name: [of.at[name][seed] for name, seed in runs] for name, of in scored.items()}
    nothing = dict.fromkeys(tasks, 0.0)
    for key, overall in OVERALL.items():
        start = overall(tasks, nothing, weights)
        slope = {name: overall(tasks, nothing | {name: 1.0}, weights) - start for name in tasks}
        values = [slope[name] * scored[name].values_R[place] for name, place in places.items()]
        moved = [
            slope[name] ** 2 * scored[name].covariance_RR[np.ix_(place, place)]
            for name, place in places.items()
        ]
        yield key, Scored(at, start + np.sum(values, axis=0), np.sum(moved, axis=0))


def stand(runs: Iterable[Run]) -> dict[str, dict[int, int]]:
    """Candidate -> seed -> the place of that run."""
    at: dict[str, dict[int, int]] = {}
    for place, (name, seed) in enumerate(runs):
        at.setdefault(name, {})[seed] = place
    return at


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Answered:
    """What a candidate answered on the judged rows."""

    name: str
    by_seed: Mapping[int, Mapping[str, Values]]  # seed -> task -> class numbers, or values


@dataclass(frozen=True)
class Estimate:
    """A score over seeds; with one seed its error is over rows alone."""

    mean: float
    stderr: float
    spread: float | None  # standard deviation over seeds; none with one
    seeds: int


@dataclass(frozen=True)
class Difference:
    """One candidate minus another, over the seeds that both have.

    With one seed the noise between runs is unknown: error, interval and p are over rows, which says
    something about two trained models and nothing about the two plans. So it is never real.
    """

    mean: float
    stderr: float
    low: float  # 95 % interval, for this difference alone
    high: float
    p: float
    p_holm: float
    is_real: bool
    seeds: int


@dataclass(frozen=True)
class Judged:
    """All that can be said about a candidate. What was not answered has no key."""

    name: str
    scores: Mapping[str, Estimate]  # each task by its name, "overall" and "overall_normalised"
    against: Mapping[str, Difference]  # the baseline, by the same keys; Holm over candidates
    gains: Mapping[str, Difference]  # over the single-task candidate; Holm over (candidate, task)
    mcnemar: Mapping[str, tuple[float, ...]]  # exact p against the baseline, for each common seed
    tie: int  # 1: cannot be told from the best; 2: the next group; 0: has no such score
    apart: tuple[str, ...]  # candidates that it can be told from; Holm over all pairs


def compare(
    tasks: Mapping[str, Task],
    targets: Mapping[str, Values],
    answered: Sequence[Answered],
    baseline: str,
    single: str | None = None,
    by: str = "overall",
    weights: Weights = EQUAL,
) -> tuple[Judged, ...]:
    """The candidates in the order they came, each judged; `by` is the score that makes ties.

    `weights` are what tasks count in an overall score.
    """
    check_names([one.name for one in answered], (baseline, single or baseline))
    check_rows(tasks, targets, answered)
    check_score(by, (*tasks, *OVERALL))
    answers = {name: dict(runs(answered, name)) for name in tasks}
    scored = score_runs(tasks, targets, answers, weights)
    names = [one.name for one in answered]
    against = {
        key: differences({name: of.mean(name, baseline) for name in names if name != baseline})
        for key, of in scored.items()
    }
    gains = gains_over(single, scored, [task for task in tasks if task in scored], names)
    different = told_apart(scored[by]) if by in scored else set()
    ties = find_ties(scored[by], different) if by in scored else {}
    by_name = {one.name: one for one in answered}
    return tuple(
        Judged(
            name=name,
            scores={key: estimate(of, name) for key, of in scored.items() if of.seeds(name)},
            against={key: of[name] for key, of in against.items() if name in of},
            gains={task: gains[name, task] for task in tasks if (name, task) in gains},
            mcnemar=dict(mcnemar_by_task(tasks, targets, by_name[name], by_name[baseline])),
            tie=ties.get(name, 0),
            apart=tuple(other for other in names if frozenset((name, other)) in different),
        )
        for name in names
    )


def check_score(by: str, known: Sequence[str]) -> None:
    if by not in known:
        raise UsageError(f"no score is named {by!r}; allowed: {', '.join(known)}")


# ------------------------------------------------------------------ comparisons


def runs(answered: Sequence[Answered], task: str) -> Iterator[tuple[Run, Values]]:
    for one in answered:
        for seed, by_task in one.by_seed.items():
            if task in by_task:
                yield (one.name, seed), np.asarray(by_task[task], dtype=float)


def estimate(scored: Scored, name: str) -> Estimate:
    mean, values = scored.mean(name), scored.values(name)
    assert mean is not None
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    return Estimate(mean.value, mean.stderr, spread, mean.seeds)


def differences(means: Mapping[Key, Mean | None]) -> dict[Key, Difference]:
    """Differences tested together; those of one seed, which test another thing, on their own."""
    known = {key: mean for key, mean in means.items() if mean is not None}
    families = (
        {key: mean for key, mean in known.items() if mean.seeds > 1},
        {key: mean for key, mean in known.items() if mean.seeds == 1},
    )
    found = {key: one for family in families for key, one in tested(family)}
    return {key: found[key] for key in known}


def tested(means: Mapping[Key, Mean]) -> Iterator[tuple[Key, Difference]]:
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
                is_real=bool(adjusted < LEVEL) and mean.seeds > 1,
                seeds=mean.seeds,
            ),
        )


def gains_over(
    single: str | None, scored: Mapping[str, Scored], tasks: Sequence[str], names: Sequence[str]
) -> dict[tuple[str, str], Difference]:
    """(candidate, task) -> what it gains over a model of its own; nothing without such models."""
    others = [name for name in names if single and name != single]
    return differences(
        {(name, task): scored[task].mean(name, single or "") for name in others for task in tasks}
    )


def told_apart(scored: Scored) -> set[frozenset[str]]:
    """The pairs that differ: all are compared, with Holm's correction over all pairs."""
    pairs = {pair: scored.mean(*pair) for pair in combinations(scored.at, 2)}
    return {frozenset(pair) for pair, one in differences(pairs).items() if one.is_real}


def find_ties(scored: Scored, different: Collection[frozenset[str]]) -> dict[str, int]:
    return tie_groups({n: float(scored.values(n).mean()) for n in scored.at}, different)


def mcnemar_by_task(
    tasks: Mapping[str, Task], targets: Mapping[str, Values], one: Answered, baseline: Answered
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """For each task that is scored by accuracy; nothing for the baseline itself."""
    seeds = sorted(
        one.by_seed.keys() & baseline.by_seed.keys() if one.name != baseline.name else ()
    )
    for name in (name for name, task in tasks.items() if task.score_name == "accuracy"):
        pairs = [(one.by_seed[seed], baseline.by_seed[seed]) for seed in seeds]
        p = tuple(
            mcnemar(a[name] == targets[name], b[name] == targets[name])
            for a, b in pairs
            if name in a and name in b
        )
        if p:
            yield name, p


# ------------------------------------------------------------------ what cannot be compared


def check_names(names: Sequence[str], wanted: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UsageError(f"two candidates have the same name; found: {', '.join(sorted(names))}")
    for name in wanted:
        if name not in names:
            raise UsageError(
                f"no candidate is named {name!r}; there are: {', '.join(names)}."
                f"{nearest(name, names)}"
            )


def check_rows(
    tasks: Mapping[str, Task], targets: Mapping[str, Values], answered: Sequence[Answered]
) -> None:
    for task in tasks:
        for (name, seed), predictions in runs(answered, task):
            if not len(predictions) == len(targets[task]) > 0:
                raise UsageError(
                    f"{name}, seed {seed}: {len(predictions)} predictions of {task} for "
                    f"{len(targets[task])} rows; all candidates must answer the same rows"
                )


def tie_groups(means: Mapping[str, float], different: Collection[frozenset[str]]) -> dict[str, int]:
    """The group of each candidate, from 1; `different` holds the pairs that can be told apart.

    The best candidate and all that cannot be told from it are group 1; the best of the rest and all
    of the rest that cannot be told from that one, are group 2; and so on.
    """
    left = sorted(means, key=lambda name: -means[name])
    groups: dict[str, int] = {}
    number = 0
    while left:
        number += 1
        best = left[0]
        tied = [name for name in left if frozenset((best, name)) not in different]
        groups |= dict.fromkeys(tied, number)
        left = [name for name in left if name not in groups]
    return groups
