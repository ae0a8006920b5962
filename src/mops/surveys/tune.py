"""Hyperparameter search with Ray Tune: ASHA stops trials that fall behind on the selection half.

Every trial is a run in the ledger of a survey and reports its evaluations to Tune; a stopped trial
has a note with its step. No state of Tune is kept: an interrupted search reports again what the
runs have written, and goes on. The winner is compared with the default on the report half.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.errors import RunError
from mops.evaluate.compare import Difference
from mops.files import write_text
from mops.record import read_curve
from mops.surveys.executors import MOST_DEATHS, ray_session
from mops.surveys.ledger import Candidate, Ledger, Trial
from mops.surveys.results.judge import check_trial, compare_trials
from mops.surveys.search_space import EVALUATIONS
from mops.surveys.worker import train_trials
from mops.training.tracking import Watcher

GRACE = 2  # evaluations before a trial may be stopped: the first one is hardly after the warm-up
REDUCTION = 3  # one in so many trials goes on at each comparison
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000",
}
OnResult = Callable[[str, int, float], None]  # trial, evaluations so far, best score so far


def run_search(
    trials: Sequence[Trial],
    ledger: Ledger,
    on_result: OnResult,
    *,
    address: str | None,
    cpus: float,
) -> None:
    """Train all trials; the first one, the default, is never stopped."""
    os.environ |= QUIET
    with ray_session(address, cpus), tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        tune: Any = importlib.import_module("ray.tune")
        tuner = tune.Tuner(
            tune.with_resources(train_trial, {"cpu": cpus}),
            param_space={
                "folder": str(ledger.folder.resolve()),
                "best_by": trials[0].recipe.training.best_by,
                "trial": tune.grid_search([trial.id for trial in trials]),
            },
            tune_config=tune.TuneConfig(
                scheduler=make_scheduler(trials[0].id, on_result),
                reuse_actors=True,  # a new process takes longer than a small trial
            ),
            run_config=tune.RunConfig(
                storage_path=scratch,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=MOST_DEATHS - 1),
            ),
        )
        for result in tuner.fit():
            close(ledger, result.config["trial"], result.metrics or {}, result.error)


def close(
    ledger: Ledger, trial_id: str, metrics: Mapping[str, Any], error: Exception | None
) -> None:
    """Note a trial that was stopped, or that Tune could not finish."""
    note = ledger.stopped_file(trial_id)
    if not ledger.is_open(trial_id) or note.is_file():
        return
    if error is not None:
        ledger.fail(trial_id, f"its Ray worker died {MOST_DEATHS} times. {str(error)[:300]}")
    else:
        facts = {"step": metrics.get("step", 0), "best_score": metrics.get("score")}
        write_text(note, json.dumps(facts, indent=2) + "\n")


def make_scheduler(default: str, on_result: OnResult) -> Any:
    """ASHA (Li et al. 2020) over evaluations, for all trials but the default.

    The last evaluation stops no trial: then a run is as good as finished.
    """
    asha: Any = importlib.import_module("ray.tune.schedulers").ASHAScheduler

    class KeepDefault(asha):  # type: ignore[misc]
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            on_result(trial.config["trial"], result["evaluations"], result["score"])
            decision: str = super().on_trial_result(controller, trial, result)
            return self.CONTINUE if trial.config["trial"] == default else decision

        def __reduce__(self) -> Any:  # Tune writes it to a file that nobody reads
            return (object, ())

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            return self

    return KeepDefault(
        time_attr="evaluations",
        metric="score",
        mode="max",
        max_t=EVALUATIONS - 1,
        grace_period=GRACE,
        reduction_factor=REDUCTION,
        stop_last_trials=False,
    )


# ------------------------------------------------------------------ in a Ray worker


def train_trial(config: Mapping[str, Any]) -> None:
    """Report the evaluations that are known, then train the rest unless it was stopped."""
    ledger, trial_id = Ledger(Path(config["folder"])), config["trial"]
    reporter = TuneReporter(config["best_by"])
    for line in read_curve(ledger.run_folder(trial_id) / "curve.jsonl"):
        if reporter.best_by in line:
            reporter.evaluation(line["step"], line, False)
    if not ledger.stopped_file(trial_id).is_file():
        train_trials(ledger.folder, [trial_id], reporter)


class TuneReporter(Watcher):
    """A watcher that reports each evaluation to Tune once; Tune may end the work there."""

    def __init__(self, best_by: str) -> None:
        self.best_by = best_by
        self.scores: dict[int, float] = {}

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        if step in self.scores:
            return
        self.scores[step] = scores[self.best_by]
        tune: Any = importlib.import_module("ray.tune")
        best = max(self.scores.values())
        tune.report({"score": best, "step": step, "evaluations": len(self.scores)})


# ------------------------------------------------------------------ the winner


@dataclass(frozen=True)
class SearchTrial:
    """How far one trial of a search came."""

    name: str
    id: str
    settings: Mapping[str, Any]
    state: str
    step: int
    selection: float | None  # the best score on the selection half
    report: float | None  # on the report half, if it is finished


@dataclass(frozen=True)
class SearchResult:
    """The winner of a search, compared with the default."""

    best_by: str
    tried: tuple[SearchTrial, ...]  # the default first
    winner: str
    seeds: tuple[int, ...]  # that winner and default were compared with
    difference: Difference | None  # winner minus default on the report half
    warning: str


def look_up(trial: Trial, ledger: Ledger) -> SearchTrial:
    step, selection, report = 0, None, None
    if ledger.is_finished(trial.id):
        record = ledger.record(trial.id)
        step, selection = record.train_info.steps, record.train_info.best_score
        report = record.scores.overall["report"].get(trial.recipe.training.best_by)
    elif (note := ledger.stopped_file(trial.id)).is_file():
        facts = json.loads(note.read_text("utf-8"))
        step, selection = facts["step"], facts["best_score"]
    name, settings = trial.candidate.name, trial.candidate.settings
    return SearchTrial(name, trial.id, settings, ledger.state(trial.id), step, selection, report)


def pick_winner(trials: Sequence[Trial], ledger: Ledger) -> Candidate:
    """The finished trial with the best score on the selection half; the default wins a draw."""
    finished = [trial for trial in trials if ledger.is_finished(trial.id)]
    if not finished:
        reason = ledger.failure(trials[0].id).get("reason", "see failed/ in its folder")
        raise RunError(f"no trial of the search has finished; the first one: {reason}")
    return max(finished, key=lambda trial: look_up(trial, ledger).selection or 0.0).candidate


def judge_search(
    trials: Sequence[Trial], winner: Candidate, seeds: Sequence[int], ledger: Ledger
) -> SearchResult:
    """Compare winner and default on the same rows, with all seeds that both were trained with."""
    default = trials[0].candidate
    by, difference = default.recipe.training.best_by, None
    if winner.name != default.name and ledger.is_finished(trials[0].id):
        finished = {
            candidate.name: [
                check_trial(trial, ledger.run_folder(trial.id), "report")
                for trial in map(candidate.trial, seeds)
                if ledger.is_finished(trial.id)
            ]
            for candidate in (default, winner)
        }
        difference = compare_trials(finished, default.name, by=by)[winner.name].against[by]
    tried = tuple(look_up(trial, ledger) for trial in trials)
    warning = find_warning(winner, default, difference)
    return SearchResult(by, tried, winner.name, tuple(seeds), difference, warning)


def find_warning(winner: Candidate, default: Candidate, difference: Difference | None) -> str:
    """Why the winner should not be trusted; empty if it may be."""
    if winner.name == default.name:
        return "no trial was better than the default on the selection half: keep the default"
    if difference is None:
        return "the default has not finished: the winner cannot be compared with it"
    shown = f"{difference.mean:+.3f} ± {difference.stderr:.3f} on the report half"
    if difference.mean <= 0:
        return f"the winner is worse than the default ({shown}): keep the default"
    if difference.seeds == 1:
        return (
            f"one seed does not show that the winner is better than the default ({shown}, for "
            "these two models alone): --seeds 3 trains both with two more"
        )
    if not difference.is_significant:
        shown += f", {difference.seeds} seeds"
        return f"the winner is not significantly different from the default ({shown})"
    return ""
