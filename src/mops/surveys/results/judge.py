"""From the folder of a survey, or of one run, to `Results`: trials read, checked, compared."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mops.config.recipe import to_recipe
from mops.errors import MopsError, RunError, UsageError
from mops.evaluate.cost import tm_relative
from mops.evaluate.evaluate import JUDGING, PredictionRows, read_predictions
from mops.evaluate.joint import compare
from mops.evaluate.metrics import EQUAL, Weights, score
from mops.evaluate.statistics import mcnemar_by_task, row_noise
from mops.record import Record, read_record
from mops.surveys.design import Survey
from mops.surveys.ledger import Candidate, Ledger, Trial
from mops.surveys.results.caveats import find_caveats
from mops.surveys.results.results import (
    COST_PASS,
    FAILED,
    LEFT_OUT,
    PAUSED,
    RECORDS,
    STATES,
    WAITING,
    CandidateCosts,
    CandidateResult,
    Caveat,
    Group,
    MissingTrial,
    Results,
    TrialResult,
)
from mops.tasks import Task

TOLERANCE = 1e-6  # between recorded and recomputed scores: summation order


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial whose predictions give the scores that it recorded."""

    trial: Trial
    record: Record
    tasks: Mapping[str, Task]  # that it has learnt
    judged: Mapping[str, PredictionRows]
    result: TrialResult


Members = Mapping[str, Sequence[FinishedTrial]]  # by candidate


def judge_survey(survey: Survey, folder: Path) -> Results:
    """All that is known so far; nothing in the folder is changed."""
    design = Results(
        folder=folder,
        name=survey.name,
        baseline=survey.baseline,
        single=survey.single,
        on=survey.on,
        seeds=tuple(dict.fromkeys(trial.seed for trial in survey.trials())),
        rounds=survey.rounds,
    )
    trials = Ledger(folder).with_ids(survey.trials())
    return judge_trials(design, [read_trial(trial, folder, survey.on) for trial in trials])


def judge_run(folder: Path) -> Results:
    """A single run as a survey with one candidate and one seed."""
    record = read_record(folder / "record.json")
    on = next((on for on in JUDGING if record.scores.overall.get(on)), None)
    if on is None:
        raise UsageError(f"{folder}: no labelled row judges this run, nothing can be reported")
    design = Results(
        folder=folder,
        name=folder.resolve().name,
        baseline=record.run_info.plan,
        single=None,
        on=on,
        seeds=(record.run_info.seed,),
    )
    return judge_trials(design, [read_run(folder.resolve(), on)])


def judge_trials(design: Results, trials: Sequence[FinishedTrial | MissingTrial]) -> Results:
    finished, strangers = split_by_rows([one for one in trials if isinstance(one, FinishedTrial)])
    missing = [one for one in trials if isinstance(one, MissingTrial)] + strangers
    measured, problems = read_costs(design.folder / "costs.json")
    results = replace(
        design,
        tasks={name: task.score_name for one in finished for name, task in one.tasks.items()},
        rows={name: len(rows.targets) for one in finished for name, rows in one.judged.items()},
        missing=tuple(sorted(missing, key=lambda one: STATES.index(one.state))),
    )
    for members in group_by_tasks(finished, design.baseline):
        results = add_group(results, members, measured)
    return replace(results, caveats=(*problems, *find_caveats(results)))


# ------------------------------------------------------------------ trials


def read_trial(trial: Trial, folder: Path, on: str) -> FinishedTrial | MissingTrial:
    """A trial of the survey in this folder, or why it has no result."""
    ledger, failure = Ledger(folder), Ledger(folder).failure_file(trial.id)
    state, reason = WAITING, "not finished yet"
    if ledger.is_finished(trial.id):
        try:
            return check_trial(trial, ledger.run_folder(trial.id), on)
        except MopsError as error:
            state, reason = LEFT_OUT, str(error)
    elif failure.is_file():
        state, reason = FAILED, f"{failure} cannot be read"
        with suppress(OSError, ValueError, KeyError, TypeError):
            reason = str(ledger.failure(trial.id)["reason"])
    elif ledger.is_paused(trial.id):
        state, pause = PAUSED, ledger.pause(trial.id)
        reason = f"trained to {pause['reached']:.0%} of its steps"
        if pause.get("score") is not None:
            reason += f"; its best validation score is {pause['score']:.3f}"
    return missing_trial(trial, state, reason)


def missing_trial(trial: Trial, state: str, reason: str) -> MissingTrial:
    return MissingTrial(trial.id, trial.name, trial.candidate.name, trial.seed, state, reason)


def read_run(run: Path, on: str, name: str = "", seed: int | None = None) -> FinishedTrial:
    """A run as the trial of a candidate, which is named by its plan unless a name is given."""
    record = read_record(run / "record.json")
    recipe = to_recipe(dict(record.run_info.recipe), where=str(run))
    candidate = Candidate(name or record.run_info.plan, {}, recipe)
    return check_trial(candidate.trial(recipe.training.seed if seed is None else seed), run, on)


def check_trial(trial: Trial, run: Path, on: str) -> FinishedTrial:
    """The trial, or an error if its predictions do not give its recorded scores."""
    record = read_record(run / "record.json")
    scores, recipe = record.scores, to_recipe(dict(record.run_info.recipe), where=str(run))
    known = recipe.task_values()
    tasks = {name: known[name] for name in scores.tasks if name not in scores.untrained}
    digest, judged = hashlib.sha256(), {}
    for name, task in tasks.items():
        path = run / "predictions" / f"{name}-{on}.csv"
        rows = judged[name] = read_predictions(path, task)
        for problem in find_mismatches(rows, scores.tasks[name].get(on, {})):
            raise RunError(f"{path}: {problem}: not the predictions that were recorded")
        digest.update(f"{name}:".encode() + rows.values.tobytes())
    main = {name: scores.tasks[name][on][scores.main[name]] for name in tasks}
    result = TrialResult(
        id=run.name,
        seed=trial.seed,
        digest=digest.hexdigest()[:16],
        scores=main | dict(scores.overall.get(on, {})),
        metrics={**scores.tasks, "overall": scores.overall},
        train_info=record.train_info,
        warnings=record.warnings,
    )
    return FinishedTrial(trial, record, tasks, judged, result)


def find_mismatches(rows: PredictionRows, stored: Mapping[str, float]) -> Iterator[str]:
    """Where the scores of stored predictions differ from the record."""
    if not len(rows.targets) or not stored:
        yield "there are no labelled rows to judge on"
        return
    again = score(rows.task, rows.targets, rows.values)
    for key in (key for key in stored if key != "stderr"):
        recorded, now = stored[key], again.get(key, np.nan)
        if not abs(now - recorded) <= TOLERANCE:
            yield f"{key} is {now:.6g}, recorded is {recorded:.6g}"


# ------------------------------------------------------------------ who is compared with whom


def split_by_rows(
    trials: Sequence[FinishedTrial],
) -> tuple[list[FinishedTrial], list[MissingTrial]]:
    """Trials that were judged on the same rows as most others, and those that were not."""
    counts = Counter((name, rows.digest) for one in trials for name, rows in one.judged.items())
    usual = dict(key for key, _ in reversed(counts.most_common()))
    kept, strangers = [], []
    for one in trials:
        if other := [name for name, rows in one.judged.items() if rows.digest != usual[name]]:
            reason = (
                f"its validation rows of {', '.join(other)} are not those of the other trials: "
                "train them again, or name another folder"
            )
            strangers.append(missing_trial(one.trial, LEFT_OUT, reason))
        else:
            kept.append(one)
    return kept, strangers


def group_by_tasks(finished: Sequence[FinishedTrial], baseline: str) -> list[Members]:
    """Candidates that have learnt the same tasks: the baseline's first, then larger groups."""
    by_name: dict[str, list[FinishedTrial]] = {}
    for one in finished:
        by_name.setdefault(one.trial.candidate.name, []).append(one)
    groups: dict[frozenset[str], dict[str, list[FinishedTrial]]] = {}
    for name, trials in by_name.items():
        if tasks := frozenset.intersection(*(frozenset(one.tasks) for one in trials)):
            groups.setdefault(tasks, {})[name] = trials
    order = sorted(groups, key=lambda tasks: (baseline not in groups[tasks], -len(tasks)))
    return [groups[tasks] for tasks in order]


def add_group(
    results: Results, members: Members, measured: Mapping[str, Mapping[str, Any]]
) -> Results:
    """Candidates compared with the baseline, or with the first of a group without it."""
    reference = results.baseline if results.baseline in members else next(iter(members))
    trials = list(chain.from_iterable(members.values()))
    tasks = {n: t for n, t in trials[0].tasks.items() if all(n in one.tasks for one in trials)}
    answers = {
        name: {one.trial.seed: {task: one.judged[task].values for task in tasks} for one in own}
        for name, own in members.items()
    }
    noise, targets = {}, {name: trials[0].judged[name].targets for name in tasks}
    for name, task in tasks.items():
        runs = {c: {seed: own[seed][name] for seed in own} for c, own in answers.items()}
        noise[name] = row_noise(task, targets[name], runs)
    candidates = [
        describe_candidate(
            name,
            own,
            tasks=tuple(tasks),
            reference=reference,
            mcnemar=mcnemar_by_task(tasks, targets, answers[name], answers[reference]),
            costs=join_costs([one.record for one in own], measured.get(name, {})),
            missing_seeds=tuple(one.seed for one in results.missing if one.candidate == name),
        )
        for name, own in members.items()
    ]
    group = Group(tuple(members), noise)
    results = replace(
        results,
        candidates=(*results.candidates, *candidates),
        groups=(*results.groups, group),
    )
    return compare_group(results, group)


def describe_candidate(name: str, trials: Sequence[FinishedTrial], **facts: Any) -> CandidateResult:
    """What its trials have in common, with further facts; it is not compared yet."""
    first, training = trials[0], trials[0].trial.recipe.training
    return CandidateResult(
        name=name,
        plan=first.record.run_info.plan,
        settings=dict(first.trial.candidate.settings),
        learning_rate=training.learning_rate,
        head_learning_rate=training.head_learning_rate,
        loss_weights=dict(first.record.train_info.loss_weights),
        trials=tuple(one.result for one in trials),
        **facts,
    )


# ------------------------------------------------------------------ costs


def read_costs(path: Path) -> tuple[Mapping[str, Mapping[str, Any]], tuple[Caveat, ...]]:
    """What the cost pass has measured so far, and a caveat if its file is unreadable."""
    if not path.is_file():
        return {}, ()
    try:
        data = json.loads(path.read_text("utf-8"))
        return {name: dict(entry) for name, entry in data.items()}, ()
    except (OSError, ValueError, TypeError, AttributeError) as cause:
        text = (
            f"{path} cannot be read ({cause}), so nothing that the cost pass measured is used; "
            "delete the file and run the survey again"
        )
        return {}, (Caveat("costs", text),)


def join_costs(records: Sequence[Record], measured: Mapping[str, Any]) -> CandidateCosts:
    """What the cost pass measured, else what the trials recorded."""
    costs = [record.costs for record in records]
    joined = {
        **vars(costs[0]),
        "train_seconds": median(one.train_seconds for one in costs),
        "step_seconds": median(one.step_seconds_median for one in costs),
        "peak_memory_bytes": max(one.peak_memory_bytes for one in costs),
        "disk_bytes": max(one.bundle_bytes for one in costs),
        "source": COST_PASS if "train_seconds" in measured else RECORDS,
        **measured,
        "warnings": tuple(measured.get("warnings", ())),
    }
    known = {field.name for field in fields(CandidateCosts)}
    return CandidateCosts(**{key: value for key, value in joined.items() if key in known})


# ------------------------------------------------------------------ the comparison


def compare_group(results: Results, group: Group, weights: Weights = EQUAL) -> Results:
    """The results with the candidates of a group compared, from the stored values and noise."""
    reference = results[group.candidates[0]].reference
    single = results.single if results.single in group.candidates else None
    compared = compare(results.joint(group, weights), baseline=reference, single=single)
    base = replace(results[reference], **vars(compared[reference]))
    members = []
    for name in group.candidates:
        candidate = replace(results[name], **vars(compared[name]))
        is_same_moment = candidate.costs.source == base.costs.source  # else not comparable
        relative = tm_relative(tm_factors(candidate), tm_factors(base)) if is_same_moment else None
        members.append(replace(candidate, tm_relative=relative))
    others = [one for one in results.candidates if one.name not in group.candidates]
    place = {name: n for n, own in enumerate(results.groups) for name in own.candidates}
    ordered = sorted((*others, *members), key=lambda one: (place[one.name], -one.overall.mean))
    return replace(results, candidates=tuple(ordered))


def tm_factors(candidate: CandidateResult) -> tuple[float, float, float]:
    costs = candidate.costs
    return candidate.overall.mean, costs.train_seconds, costs.weight_bytes
