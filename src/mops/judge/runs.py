"""Every run of a survey scored on the same rows: each task and both overall scores. numpy only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mops.judge.noise import Scored
from mops.judge.resampling import row_covariance
from mops.judge.scores import EQUAL, OVERALL, Weights, scores_of
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
