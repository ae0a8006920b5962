"""A survey from its design to its results: train, measure costs, compare, write.

With a budget it is a race, which spends its time on the candidates between which it has to decide.
Sequential halving over seeds (Karnin, Koren and Somekh 2013): every candidate is trained with one
seed, then the better half with new seeds, and so on, until the choice is settled or the time is
spent. If there is not even time for about 1.5 trainings of each candidate, a first pass trains all
of them to a quarter of their steps, the better half to half of their steps, and the best quarter
to the end; each training continues where it stopped.

What was decided is in survey.yaml, round by round, so a race that was killed goes on as it would
have: `next_round` depends on the rounds, the scores and the measured times alone.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mops.errors import RecipeError
from mops.evaluate.joint import Joint
from mops.evaluate.posterior import SETTLED, posterior
from mops.files import holds, write_text
from mops.surveys.benchmark import measure_costs
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey, read_survey
from mops.surveys.executors import LocalExecutor, RayExecutor, plan_jobs
from mops.surveys.ledger import NAMES, Ledger, Round, SurveyWatcher, Trial, write_json
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import WORTH, recommend
from mops.surveys.results.results import Results
from mops.training.tracking import refuse_missing_trackers

FILE = "survey.yaml"
RESERVE = 0.1  # of the time of a race, for the cost pass
RUNGS = (0.25, 0.5, 1.0)  # fractions of the steps at which a short race compares
SCARCE = 1.5  # trainings of each candidate: with less time there are rungs
FEWEST = 3  # candidates that are trained to the end
LEAST_FREEDOM = 6  # degrees of freedom before a race may end
Executor = LocalExecutor | RayExecutor
MakeExecutor = Callable[[Ledger, SurveyWatcher], Executor]
Choose = Callable[[Joint], str]  # the candidate that would be recommended now


def run_survey(
    survey: Survey,
    folder: Path,
    watcher: SurveyWatcher,
    *,
    executor: MakeExecutor = LocalExecutor,
    keep: str = "best",
    retrain: bool = False,
) -> Results:
    """Train all open trials, measure the costs of the candidates, compare them, write the results.

    The folder may hold an earlier, smaller survey: finished trials are not trained again. Trials
    of other data, another encoder or other code are refused; with `retrain` they no longer count.
    """
    if retrain:
        write_json(folder / NAMES, {})
        survey = survey.model_copy(update={"rounds": ()}) if survey.budget else survey
    ledger = begin(survey, folder)
    if survey.budget:
        survey = run_race(survey, executor(ledger, watcher))
    else:
        train_round(survey.trials(), executor(ledger, watcher))
    drop_models(survey, ledger, keep)
    finished = {t.candidate.name for t in survey.trials() if ledger.is_finished(t.id)}
    measured = [c for c in survey.candidates() if c.name in {*finished, survey.baseline}]
    measure_costs(measured, folder, survey.baseline, watcher)
    watcher.phase("comparing candidates")
    results = judge_survey(survey, folder)
    results.write()
    return results


def begin(survey: Survey, folder: Path) -> Ledger:
    """Write the design into the folder; a survey that was killed in that write starts again."""
    holds(folder, FILE, kind="survey")
    for candidate in survey.candidates():
        refuse_missing_trackers(candidate.recipe.training)
    ledger = Ledger(folder)
    if ledger.names():
        ledger.refuse_others(survey.trials())
    write_text(folder / FILE, survey.to_yaml())
    return ledger


def continued(survey: Survey, folder: Path) -> Survey:
    """The survey with the steps and rounds of the same one in the folder, if it was begun there.

    A budget in time becomes a number of steps that depends on the speed of the machine at that
    moment; a survey that goes on keeps the number that it began with.
    """
    if not (folder / FILE).is_file():
        return survey
    stored = open_survey(folder)
    chosen = {"steps", "evaluations", "rounds", "budget"}
    if stored.model_dump(exclude=chosen) != survey.model_dump(exclude=chosen):
        return survey
    return stored.model_copy(update={"budget": survey.budget})


def open_survey(folder: Path) -> Survey:
    """The design of the survey in a folder."""
    if not (folder / FILE).is_file():
        raise RecipeError(f"{folder} holds no survey: there is no {FILE}")
    return read_survey(folder / FILE)


def train_round(trials: Sequence[Trial], executor: Executor, until: float = 1.0) -> None:
    """Train those of the trials that are open, to a fraction of their steps."""
    ledger = executor.ledger
    ledger.register(trials)
    for trial in trials:
        if ledger.pause(trial.id).until != until:
            ledger.note_pause(trial.id, until=until)
    left = [trial for trial in trials if ledger.is_open(trial.id)]
    executor.watcher.planned(left)
    executor.run(plan_jobs(left, executor.workers))


def drop_models(survey: Survey, ledger: Ledger, keep: str) -> None:
    """Delete models that are not kept; records and predictions stay."""
    for candidate in survey.candidates():
        own = (t.id for t in survey.trials() if t.candidate.name == candidate.name)
        done = [trial_id for trial_id in own if ledger.is_finished(trial_id)]
        best = max(done, key=lambda of: ledger.record(of).train_info.best_score or 0, default="")
        kept = {"best": [best], "all": done, "none": []}[keep]
        for trial_id in done:
            shutil.rmtree(ledger.run_folder(trial_id) / "state", ignore_errors=True)
            if trial_id not in kept:
                shutil.rmtree(ledger.run_folder(trial_id) / "model", ignore_errors=True)


def run_race(survey: Survey, executor: Executor) -> Survey:
    """Train round by round until the choice is settled or the time is spent."""
    estimates = {trial.name: trial.seconds for trial in Estimator().survey(survey).candidates}
    while True:
        if survey.rounds:
            entry = survey.rounds[-1]
            executor.watcher.phase(f"round {len(survey.rounds)}: {entry.why}")
            train_round(survey.trials_of(entry), executor, entry.until)
        following = plan_round(survey, executor, estimates)
        if following is None:
            return survey
        survey = survey.with_round(following)
        write_text(executor.ledger.folder / FILE, survey.to_yaml())


@dataclass(frozen=True)
class Standing:
    """What a race knows between two rounds."""

    costs: Mapping[str, float]  # candidate -> seconds of one training
    left: float  # seconds
    baseline: str
    rounds: Sequence[Round]
    scores: Mapping[str, float]  # candidate -> best validation score so far, in the rungs
    joint: Joint | None  # of all finished trainings; None before the first

    def seconds(self, names: Sequence[str]) -> float:
        return sum(self.costs[name] for name in names)

    def new_seeds(self, count: int) -> tuple[int, ...]:
        first = 1 + max((seed for entry in self.rounds for seed in entry.seeds), default=0)
        return tuple(range(first, first + count))


def plan_round(survey: Survey, executor: Executor, estimates: Mapping[str, float]) -> Round | None:
    """From what the finished and paused trainings say; measured times scale the estimated ones."""
    assert survey.budget is not None
    spent, expected = 0.0, 0.0
    scores = dict.fromkeys(estimates, -math.inf)
    for trial in survey.trials():
        name, progress = trial.candidate.name, executor.ledger.progress(trial.id)
        scores[name] = max(scores[name], progress.rank)
        spent += progress.seconds
        expected += progress.reached * estimates[name]
    # Estimates are for the whole machine, which the workers share.
    ratio = spent / expected if spent and expected else executor.workers
    results = judge_survey(survey, executor.ledger.folder)
    costs = {name: ratio * seconds for name, seconds in estimates.items()}
    spent += idle_seconds(survey.rounds, costs, executor.workers)
    now = Standing(
        costs=costs,
        left=(1 - RESERVE) * survey.budget * executor.workers - spent,
        baseline=survey.baseline,
        rounds=survey.rounds,
        scores=scores,
        joint=results.joint()["overall"] if results.groups else None,
    )
    return next_round(now, lambda _: str(recommend(results).candidate), WORTH)


def idle_seconds(rounds: Sequence[Round], costs: Mapping[str, float], workers: int) -> float:
    """How long workers have waited for the last training of a round, in all rounds."""
    idle, reached = 0.0, 0.0  # fraction of the steps; a round after a whole one has new seeds
    for entry in rounds:
        busy = [0.0] * workers
        for name in entry.candidates * len(entry.seeds):
            busy[busy.index(min(busy))] += costs[name] * (entry.until - reached)
        idle += workers * max(busy) - sum(busy)
        reached = entry.until if entry.until < 1 else 0.0
    return idle


def next_round(now: Standing, choose: Choose, worth: float) -> Round | None:
    """Who is trained next, with which seeds and why; None: the race is over."""
    if not now.rounds:
        return first_round(now)
    last = now.rounds[-1]
    if last.until < 1.0:
        return next_rung(last, now.scores, now.baseline)
    if now.joint is None:  # every training has failed
        return None
    chances = posterior(now.joint)
    near, means = chances.within(worth), chances.shrunken
    chosen = choose(now.joint)
    full = [entry for entry in now.rounds if entry.until == 1.0]
    is_known = now.joint.has_run_noise and now.joint.freedom >= LEAST_FREEDOM
    if len(full) > 1 and is_known and near[chosen] >= SETTLED:
        return None
    rounds_left = max(1, math.ceil(math.log2(max(2, len(now.costs)))) - len(full))
    alive = [name for name in last.candidates if name in means]
    ranked = sorted(alive, key=lambda name: -means[name])
    kept = {chosen, *ranked[: max(2, math.ceil(len(ranked) / 2))]}
    if now.left > 2 * rounds_left * now.seconds((*kept, now.baseline)):  # time is plentiful
        kept.add(now.baseline)
    names = tuple(name for name in now.costs if name in kept)
    if now.seconds(names) > now.left:
        names = tuple(dict.fromkeys((ranked[0], chosen, *ranked[1:])))[:2]
    if now.seconds(names) > now.left:
        return None
    count = max(1, int(now.left / (rounds_left * now.seconds(names))))
    why = f"{chosen} is within {worth:g} of the best with {near[chosen]:.0%} probability"
    why += list_dropped(last.candidates, names)
    return Round(candidates=names, seeds=now.new_seeds(count), why=why)


def first_round(now: Standing) -> Round:
    """All candidates: to the end, or to the first rung if time is scarce."""
    names = tuple(now.costs)
    if now.left < SCARCE * now.seconds(names) and len(names) > FEWEST:
        why = "time is scarce: all candidates to a quarter of their steps"
        return Round(candidates=names, seeds=(1,), until=RUNGS[0], why=why)
    rounds = max(1, math.ceil(math.log2(max(2, len(names)))))
    count = max(1, int(now.left / (rounds * now.seconds(names))))
    return Round(candidates=names, seeds=now.new_seeds(count), why="all candidates")


def next_rung(last: Round, scores: Mapping[str, float], baseline: str) -> Round:
    """The better half of the candidates goes on; the baseline always does."""
    until = RUNGS[RUNGS.index(last.until) + 1]
    ranked = sorted(last.candidates, key=lambda name: -scores[name])
    kept = {*ranked[: max(FEWEST, math.ceil(len(ranked) / 2))], baseline}
    names = tuple(name for name in last.candidates if name in kept)
    why = f"to {until:.0%} of the steps" if until < 1 else "to the end"
    why += list_dropped(last.candidates, names)
    return replace(last, candidates=names, until=until, why=why)


def list_dropped(before: Sequence[str], names: Sequence[str]) -> str:
    dropped = [name for name in before if name not in names]
    return f"; dropped: {', '.join(dropped)}" if dropped else ""
