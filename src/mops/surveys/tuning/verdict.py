"""The end of a search: all trials, the winner on rows that picked nothing, beside the default."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mops.errors import RunError
from mops.evaluate.compare import Answered, Difference, compare
from mops.surveys.ledger import Candidate, Ledger, Trial
from mops.surveys.results.results import read_result


@dataclass(frozen=True)
class Tried:
    """One trial of a search."""

    name: str
    id: str
    settings: Mapping[str, Any]
    state: str
    step: int
    selection: float | None  # the best score on the half that picks
    report: float | None  # on the half that does not; only of what is finished


@dataclass(frozen=True)
class Verdict:
    """What a search has found."""

    best_by: str
    tried: tuple[Tried, ...]  # the default first
    winner: str
    seeds: tuple[int, ...]  # that winner and default were compared with
    difference: Difference | None  # winner minus default on the report half; none: they are one
    warning: str

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def look_up(trial: Trial, ledger: Ledger) -> Tried:
    """How far a trial came."""
    step, selection, report = 0, None, None
    if ledger.is_finished(trial.id):
        record = ledger.record(trial.id)
        step, selection = record.train_info.steps, record.train_info.best_score
        report = record.scores.overall["report"].get(trial.recipe.training.best_by)
    elif (note := ledger.stopped_file(trial.id)).is_file():
        facts = json.loads(note.read_text("utf-8"))
        step, selection = facts["step"], facts["best_score"]
    settings = trial.candidate.settings
    state = ledger.state(trial.id)
    return Tried(trial.candidate.name, trial.id, settings, state, step, selection, report)


def pick_winner(trials: Sequence[Trial], ledger: Ledger) -> Candidate:
    """The finished trial with the best score on the selection half; the default wins a draw."""
    finished = [trial for trial in trials if ledger.is_finished(trial.id)]
    if not finished:
        reason = ledger.failure(trials[0].id).get("reason", "see failed/ in its folder")
        raise RunError(f"no trial of the search has finished; the first one: {reason}")
    return max(finished, key=lambda trial: look_up(trial, ledger).selection or 0.0).candidate


def judge_search(
    trials: Sequence[Trial], winner: Candidate, seeds: Sequence[int], ledger: Ledger
) -> Verdict:
    """Winner and default on the same rows, with all seeds that both were trained with."""
    default = trials[0].candidate
    by = default.recipe.training.best_by
    difference = None
    if winner.name != default.name and ledger.is_finished(trials[0].id):
        difference = compare_two(winner, default, seeds, ledger, by)
    return Verdict(
        best_by=by,
        tried=tuple(look_up(trial, ledger) for trial in trials),
        winner=winner.name,
        seeds=tuple(seeds),
        difference=difference,
        warning=warn(winner, default, difference),
    )


def compare_two(
    winner: Candidate, default: Candidate, seeds: Sequence[int], ledger: Ledger, by: str
) -> Difference:
    results = {
        one.name: {
            seed: read_result(trial, ledger.run_folder(trial.id), "report")
            for seed in seeds
            if ledger.is_finished((trial := one.trial(seed)).id)
        }
        for one in (default, winner)
    }
    first = next(iter(results[default.name].values()))
    answered = [
        Answered(
            name,
            {s: {t: a.predictions for t, a in of.judged.items()} for s, of in by_seed.items()},
        )
        for name, by_seed in results.items()
    ]
    targets = {task: answers.targets for task, answers in first.judged.items()}
    judged = compare(first.tasks, targets, answered, default.name, by=by)
    return judged[1].against[by]


def warn(winner: Candidate, default: Candidate, found: Difference | None) -> str:
    """Why the winner should not be believed; empty when it may be."""
    if winner.name == default.name:
        return "nothing was better than the default on the selection half: keep it"
    if found is None:
        return "the default has not finished: there is nothing to compare the winner with"
    told = f"{found.mean:+.3f} ± {found.stderr:.3f} on rows that picked nothing"
    if found.mean <= 0:
        return f"the winner is worse than the default ({told}): keep the default"
    if found.seeds == 1:
        return (
            f"one seed cannot tell the winner from the default ({told}, of these two models "
            "alone): --seeds 3 trains both with two more"
        )
    if not found.is_real:
        return f"the winner cannot be told from the default ({told}, {found.seeds} seeds)"
    return ""
