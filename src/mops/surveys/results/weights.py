"""The score that a decision goes by: the plain mean of the tasks, or weights of the user's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from mops.errors import MopsError, RunError, UsageError, nearest
from mops.evaluate.compare import tie_groups
from mops.evaluate.statistics import LEVEL, holm, off_zero
from mops.surveys.results.judge import compare_trials, rank
from mops.surveys.results.results import CandidateResult, Results, read_results
from mops.surveys.results.trials import FinishedTrial, read_run


@dataclass(frozen=True)
class WeightedScore:
    """A candidate's score with its standard error, and its group of ties."""

    mean: float
    stderr: float
    tie: int


def parse_weights(text: str) -> dict[str, float]:
    """`sentiment=2,similarity=1` as numbers by task."""
    weights = {}
    for part in text.split(","):
        task, _, number = part.partition("=")
        try:
            weights[task.strip()] = float(number)
        except ValueError:
            weights[task.strip()] = -1.0
    if not all(0 <= weight < math.inf for weight in weights.values()):
        raise UsageError(
            f"--weights {text!r}: write TASK=NUMBER,TASK=NUMBER with numbers from 0 on, "
            "for example sentiment=2,similarity=1"
        )
    return weights


def normalise_weights(weights: Mapping[str, float], tasks: Sequence[str]) -> dict[str, float]:
    """Weights that sum to 1; tasks that are not named count 1."""
    for name in weights:
        if name not in tasks:
            raise UsageError(
                f"--weights names {name!r}; the tasks are {', '.join(tasks)}.{nearest(name, tasks)}"
            )
    total = sum(weights.get(name, 1.0) for name in tasks)
    if total <= 0:
        raise UsageError("--weights gives every task 0; at least one must count")
    return {name: weights.get(name, 1.0) / total for name in tasks}


def weigh(
    candidates: Sequence[CandidateResult], weights: Mapping[str, float] | None
) -> dict[str, WeightedScore]:
    """The score and tie of each candidate, by `overall` or by weights.

    How the errors of tasks are correlated is not known here: their weighted sum is the largest
    possible error.
    """
    means = {one.name: one.overall.mean for one in candidates}
    errors = {one.name: one.overall.stderr for one in candidates}
    if weights:
        for one in candidates:
            shares = normalise_weights(weights, one.tasks).items()
            means[one.name] = sum(share * one.scores[task].mean for task, share in shares)
            errors[one.name] = sum(share * one.scores[task].stderr for task, share in shares)
    seeds = {one.name: one.overall.seeds for one in candidates}
    if weights or 1 in seeds.values():
        # With one seed no difference between plans is significant. The decision is then one
        # between trained models, which are compared on their rows.
        different = unpaired_differences(means, errors, seeds)
    else:
        different = {frozenset((one.name, other)) for one in candidates for other in one.apart}
    ties = tie_groups(means, different)
    return {name: WeightedScore(means[name], errors[name], ties[name]) for name in means}


def unpaired_differences(
    means: Mapping[str, float], errors: Mapping[str, float], seeds: Mapping[str, int]
) -> set[frozenset[str]]:
    """Pairs that differ significantly even if each candidate had answered other rows.

    They have answered the same rows, so the true error of the difference is smaller: pairs that
    differ here do differ, others may.
    """
    pairs = list(combinations(means, 2))
    p = [
        off_zero(
            means[a] - means[b],
            math.hypot(errors[a], errors[b]),
            (seeds[a] + seeds[b] - 2) or math.inf,  # one seed each: over rows, which are many
        )
        for a, b in pairs
    ]
    return {frozenset(pair) for pair, value in zip(pairs, holm(p), strict=True) if value < LEVEL}


# ------------------------------------------------------------------ compared again


def read_reweighted(folder: Path, weights: Mapping[str, float] | None) -> Results:
    """The stored results, with the baseline's group compared again with these task weights.

    The predictions in the folder are compared row by row, as for the plain mean. Where they are
    gone, the results are returned as they were written.
    """
    stored = read_results(folder)
    if not weights or not stored.candidates:
        return stored
    home, reference = stored.candidates[0].tasks, stored.candidates[0].reference
    normalise_weights(weights, home)  # refuses tasks that do not exist
    group = [one for one in stored.candidates if one.tasks == home]
    try:
        trials = {one.name: reread_trials(stored, one) for one in group}
    except MopsError:
        return stored
    compared = compare_trials(trials, reference, stored.single, weights)
    changed = [replace(one, **vars(compared[one.name])) for one in group]
    rest = [one for one in stored.candidates if one.tasks != home]
    return replace(stored, candidates=(*rank(changed, reference), *rest), weights=dict(weights))


def reread_trials(stored: Results, one: CandidateResult) -> list[FinishedTrial]:
    """The trials of a candidate, if their predictions are still those that were judged."""
    trials = []
    for before in one.trials:
        run = stored.run_folder(before)
        trials.append(read_run(run, stored.on, name=one.name, seed=before.seed))
        if trials[-1].digest != before.digest:
            raise RunError(f"{run}: these are not the predictions that were judged")
    return trials
