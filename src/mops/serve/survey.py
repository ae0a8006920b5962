"""A survey as it is being trained: `GET /survey`, read from the files that its processes write."""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from threading import Lock

from fastapi import Depends, FastAPI, HTTPException
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException as StarletteHTTPException

from mops import __version__
from mops.config.recipe import Recipe
from mops.errors import MopsError, UsageError
from mops.record import read_curve
from mops.reports.figures.style import OTHER, SERIES
from mops.reports.source import JUDGES
from mops.serve.app import check_key, count_requests, note, refuse
from mops.serve.page import static_files
from mops.surveys.design import Survey, read_survey
from mops.surveys.expansion import count_steps
from mops.surveys.ledger import FINISHED, RUNNING, STARTED, WAITING, Ledger, Round, Trial
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import WORTH, Decision, recommend
from mops.surveys.results.results import Results, read_results

log = logging.getLogger("mops.serve")
Stamp = tuple[tuple[str, int], ...]  # files and when they were written
JUDGED = (
    "survey.yaml", "names.json", "costs.json", "summary.json", "failed/*", "trials/*/record.json",
)  # fmt: skip
OPEN = (RUNNING, STARTED, WAITING)  # trials that still have to be trained
PATIENCE = 0.5  # seconds to wait for a comparison before an earlier one is shown
# What the survey as a whole is doing.
TRAINING, IDLE, COMPARING, MEASURING, OVER = (
    "training", "idle", "comparing", "measuring costs", "finished",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LiveTrial:
    """One training: its state in the ledger, how far it is, and its scores on the way."""

    seed: int
    state: str
    step: int
    steps: int | None  # in all; None until that is known
    until: float  # fraction of the steps at which this round of a race stops
    seconds: float  # of work so far
    curve: tuple[tuple[int, float], ...]  # step, overall score on the validation rows

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.steps) if self.steps else 0.0


@dataclass(frozen=True, kw_only=True)
class LiveCandidate:
    """A candidate over its seeds; what is not known yet is None."""

    name: str
    colour: str
    trials: tuple[LiveTrial, ...]
    best: float | None  # score on the way, of all seeds
    score: float | None = None  # mean of the finished seeds on the rows that judge
    stderr: float | None = None
    within: float | None = None  # probability that it is within the margin of the best
    cost: str = ""


@dataclass(frozen=True, kw_only=True)
class LiveSurvey:
    """Everything that the page shows."""

    name: str
    state: str
    judges: str  # in words
    worth: float  # the margin
    baseline: str
    decision: tuple[str, ...]  # in sentences; none before the first result
    rounds: tuple[Round, ...]
    budget: float | None  # seconds of a race
    seconds_done: float  # of work, for one worker
    seconds_left: float | None  # until the planned trainings are done, by the clock; about
    candidates: tuple[LiveCandidate, ...]


@dataclass(frozen=True)
class Judgement:
    """What the finished trials say."""

    results: Results
    decision: Decision | None  # None before the first result
    is_written: bool  # the survey itself has come to the end and written the same


class SurveyService:
    """Looks into the folder of a survey and changes nothing in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, Ledger(folder)
        self.lock = Lock()
        self.judge = ThreadPoolExecutor(1)  # it takes a second, and longer on a busy machine
        self.asked: Stamp = ()
        self.judging: Future[Judgement] | None = None
        self.judged: Judgement | None = None
        if not (folder / "survey.yaml").is_file():
            raise UsageError(f"{folder} holds no survey: there is no survey.yaml")
        read_design(folder, stamp(folder, "survey.yaml"))

    def show(self) -> LiveSurvey:
        """How far the survey is, and what it knows."""
        try:
            with self.lock:
                return self.look()
        except (MopsError, OSError):
            log.exception("the survey cannot be read")
            raise HTTPException(
                503, "the survey cannot be read; the server's log says why"
            ) from None

    def look(self) -> LiveSurvey:
        survey = read_design(self.folder, stamp(self.folder, "survey.yaml"))
        judged, trials = self.latest(survey), self.ledger.with_ids(survey.trials())
        live = {trial.id: look_at(trial, self.ledger) for trial in trials}
        own = {one.name: tuple(live[t.id] for t in trials if t.candidate.name == one.name)
               for one in survey.candidates()}  # fmt: skip
        # Each process that trains has a log; a batch of trials is one process.
        running = [trial_id for trial_id, one in live.items() if one.state == RUNNING]
        jobs = sum((self.folder / "logs" / f"{trial_id}.txt").is_file() for trial_id in running)
        left = seconds_left(own.values())
        return LiveSurvey(
            name=survey.name,
            state=TRAINING if running else IDLE if left != 0 else self.name_end(judged),
            judges=JUDGES[survey.on],
            worth=WORTH,
            baseline=survey.baseline,
            decision=judged.decision.lines if judged and judged.decision else (),
            rounds=survey.rounds,
            budget=survey.budget,
            seconds_done=sum(one.seconds for one in live.values()),
            seconds_left=None if left is None else left / max(1, jobs),
            candidates=tuple(
                describe(name, colour or OTHER, trials, judged)
                for (name, trials), colour in zip_longest(own.items(), SERIES[: len(own)])
            ),
        )

    def latest(self, survey: Survey) -> Judgement | None:
        """The comparison of what is finished; an earlier one while a new one is being made."""
        now = stamp(self.folder, *JUDGED)
        if self.judging is None or (self.judging.done() and self.asked != now):
            self.asked, self.judging = now, self.judge.submit(judge, survey, self.folder)
        if wait([self.judging], PATIENCE).done:
            self.judged = self.judging.result()
        return self.judged

    def name_end(self, judged: Judgement | None) -> str:
        """When all planned trainings are done."""
        if judged is None or not (self.judging and self.judging.done()):
            return COMPARING
        return OVER if judged.is_written else MEASURING


def judge(survey: Survey, folder: Path) -> Judgement:
    results, written = judge_survey(survey, folder), None
    with suppress(MopsError):  # there is none yet, or one of another version
        written = read_results(folder)
    # Commands in its sentences name the folder, not its place on this machine.
    named = replace(results, folder=Path(folder.resolve().name))
    decision = recommend(named) if results.candidates else None
    is_written = written is not None and trial_ids(written) == trial_ids(results)
    return Judgement(results, decision, is_written)


def describe(
    name: str, colour: str, trials: tuple[LiveTrial, ...], judged: Judgement | None
) -> LiveCandidate:
    """A candidate with what the comparison says of it."""
    scores = [score for trial in trials for _, score in trial.curve]
    plain = LiveCandidate(name=name, colour=colour, trials=trials, best=max(scores, default=None))
    if judged is None or name not in judged.results:
        return plain
    overall = judged.results[name].overall
    odds = judged.decision.odds if judged.decision else ()
    own = next((one for one in odds if one.name == name), None)
    return replace(
        plain,
        score=overall.mean,
        stderr=overall.stderr,
        within=own.within if own else None,
        cost=own.cost if own else "",
    )


def look_at(trial: Trial, ledger: Ledger) -> LiveTrial:
    """A trial as its files say."""
    state, progress = ledger.state(trial.id), ledger.pause(trial.id)
    run = ledger.run_folder(trial.id)
    curve = follow_curve(run / "curve.jsonl", stamp(run, "curve.jsonl"))
    steps = count_steps(trial.recipe.to_data()["training"]) or curve.steps(trial.recipe)
    step, seconds = curve.step, max(curve.seconds, progress.seconds)
    if state == FINISHED:
        info = ledger.record(trial.id).train_info
        step, steps, seconds = info.steps, info.steps, info.run_seconds
    return LiveTrial(
        seed=trial.seed,
        state=state,
        step=step,
        steps=steps,
        until=progress.until,
        seconds=seconds,
        curve=curve.scores,
    )


@dataclass(frozen=True)
class CurveFacts:
    """What the lines of a curve say so far."""

    step: int = 0
    epoch: float = 0.0
    seconds: float = 0.0
    scores: tuple[tuple[int, float], ...] = ()

    def steps(self, recipe: Recipe) -> int | None:
        """Of the whole training, if its recipe counts epochs."""
        epochs = recipe.training.num_train_epochs
        return round(epochs * self.step / self.epoch) if self.epoch else None


@lru_cache(maxsize=1024)
def follow_curve(path: Path, at: Stamp) -> CurveFacts:
    """Read anew only when the file has grown."""
    lines = list(read_curve(path))
    if not lines:
        return CurveFacts()
    scores = ((line["step"], line.get("overall")) for line in lines if "selection" in line)
    last = lines[-1]
    return CurveFacts(
        last["step"], last["epoch"], last["seconds"],
        tuple((step, score) for step, score in scores if score is not None),
    )  # fmt: skip


def seconds_left(candidates: Iterable[Sequence[LiveTrial]]) -> float | None:
    """Work until all planned trainings reach their ends; None while nothing has been measured.

    A training takes as long as others of its candidate, or else as an average one.
    """
    measured = [
        [one.seconds / one.fraction for one in trials if one.fraction and one.seconds]
        for trials in candidates
    ]
    known = [fmean(own) for own in measured if own]
    left = 0.0
    for trials, own in zip(candidates, measured, strict=True):
        rest = sum(max(0.0, one.until - one.fraction) for one in trials if one.state in OPEN)
        if rest and not known:
            return None
        left += rest * fmean(own or known) if rest else 0.0
    return left


def trial_ids(results: Results) -> set[str]:
    return {trial.id for one in results.candidates for trial in one.trials}


@lru_cache(maxsize=2)
def read_design(folder: Path, at: Stamp) -> Survey:
    """survey.yaml, which a race writes again for each round."""
    return read_survey(folder / "survey.yaml")


def stamp(folder: Path, *patterns: str) -> Stamp:
    """Which files there are, and their times; files may vanish meanwhile."""
    found = []
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        with suppress(FileNotFoundError):
            found.append((str(path), path.stat().st_mtime_ns))
    return tuple(found)


def build_survey_app(service: SurveyService, api_key: str = "") -> FastAPI:
    """The addresses of a survey's page."""
    app = FastAPI(title="mops survey", version=__version__, docs_url=None, redoc_url=None)
    app.get("/survey", dependencies=[Depends(partial(check_key, api_key))])(service.show)
    app.include_router(static_files("survey.html"))
    app.get("/health")(lambda: {"status": "ok"})
    app.exception_handler(StarletteHTTPException)(refuse)
    app.middleware("http")(partial(note, count_requests(CollectorRegistry())))
    return app
