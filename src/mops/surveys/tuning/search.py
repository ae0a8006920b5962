"""A search with Ray Tune: trials that fall behind on the selection half are stopped (ASHA).

Every trial is a run in the ledger of a survey, with one evaluation after the other told to Tune. A
stopped one has a note with its step. Nothing of Tune is kept: an interrupted search tells it again
what the runs have written down, and goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mops.files import write_text
from mops.surveys.ledger import Ledger, Trial
from mops.surveys.local import MOST_DEATHS as DEATHS
from mops.surveys.ray_executor import ray_session
from mops.surveys.tuning.spaces import EVALUATIONS
from mops.surveys.worker import train_trials
from mops.training.trainer import Silent

GRACE = 2  # evaluations before a trial may be stopped: the first one is hardly after the warm-up
KEEP = 3  # one of so many goes on at each comparison
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000",
}
Told = Callable[[str, int, float], None]  # trial, evaluations so far, best score so far


def run_search(
    trials: Sequence[Trial], ledger: Ledger, told: Told, *, address: str | None, cpus: float
) -> None:
    """Train all; the first one, the default, is never stopped."""
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
                scheduler=scheduler(tune, trials[0].id),
                reuse_actors=True,  # a new process takes longer than a small trial
            ),
            run_config=tune.RunConfig(
                storage_path=scratch,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=DEATHS - 1),
                callbacks=[listener(tune, told)],
            ),
        )
        for result in tuner.fit():
            close(ledger, result.config["trial"], result.metrics or {}, result.error)


def close(
    ledger: Ledger, trial_id: str, metrics: Mapping[str, Any], error: Exception | None
) -> None:
    """Note what was stopped, and what Tune could not finish."""
    note = ledger.stopped_file(trial_id)
    if not ledger.is_open(trial_id) or note.is_file():
        return
    if error is not None:
        ledger.fail(trial_id, f"its Ray worker died {DEATHS} times. {str(error)[:300]}")
        return
    facts = {"step": metrics.get("step", 0), "best_score": metrics.get("score")}
    write_text(note, json.dumps(facts, indent=2) + "\n")


# ------------------------------------------------------------------ in a worker


def train_trial(config: Mapping[str, Any]) -> None:
    """Tell what is known of the trial, then train what is left; what was stopped stays so."""
    ledger, trial_id = Ledger(Path(config["folder"])), config["trial"]
    reporter = Reporter(config["best_by"])
    for step, score in evaluations(ledger.run_folder(trial_id) / "curve.jsonl", reporter.by):
        reporter.tell_score(step, score)
    if not ledger.stopped_file(trial_id).is_file():
        train_trials(ledger.folder, [trial_id], reporter)


def evaluations(curve: Path, by: str) -> list[tuple[int, float]]:
    """What an interrupted run has scored so far; a line that was cut off does not count."""
    found = []
    for line in curve.read_text("utf-8").splitlines() if curve.is_file() else ():
        try:
            facts = json.loads(line)
        except ValueError:
            break
        if by in facts:
            found.append((facts["step"], facts[by]))
    return found


class Reporter(Silent):
    """A watcher that tells Tune each evaluation once; Tune may end the process's work there."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.scores: dict[int, float] = {}

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        if step not in self.scores:
            self.tell_score(step, scores[self.by])

    def tell_score(self, step: int, score: float) -> None:
        self.scores[step] = score
        tune: Any = importlib.import_module("ray.tune")
        best = max(self.scores.values())
        tune.report({"score": best, "step": step, "evaluations": len(self.scores)})


# ------------------------------------------------------------------ Tune's side


def scheduler(tune: Any, default: str) -> Any:
    """ASHA (Li et al. 2020) over evaluations, for all but the default.

    The last evaluation stops nobody: then a run is as good as finished.
    """
    asha: Any = importlib.import_module("ray.tune.schedulers").ASHAScheduler

    class KeepDefault(asha):  # type: ignore[misc]
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            decision: str = super().on_trial_result(controller, trial, result)
            return self.CONTINUE if trial.config["trial"] == default else decision

    return KeepDefault(
        time_attr="evaluations",
        metric="score",
        mode="max",
        max_t=EVALUATIONS - 1,
        grace_period=GRACE,
        reduction_factor=KEEP,
        stop_last_trials=False,
    )


def listener(tune: Any, told: Told) -> Any:
    """What Tune hears goes to the screen, which it must not copy or write to its files."""

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
        ) -> None:
            self.told(trial.config["trial"], result["evaluations"], result["score"])

        def __getstate__(self) -> dict[str, Any]:
            return {}

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            return self

    made = Listener()
    made.told = told
    return made
