"""From the folder of a survey, or of one run, to `Results`: trials read, checked, compared."""

from __future__ import annotations

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
from mops.evaluate.compare import CandidateComparison, compare
from mops.evaluate.cost import tm_relative
from mops.evaluate.metrics import EQUAL, OVERALL, Weights, score
from mops.evaluate.predictions import SPLIT_FILE, PredictionRows, read_predictions
from mops.record import Record, RunScores, read_record
from mops.surveys.design import Survey
from mops.surveys.ledger import Candidate, Trial
from mops.surveys.results.caveats import find_caveats
from mops.surveys.results.results import (
    COST_PASS,
    FAILED,
    LEFT_OUT,
    RECORDS,
    STATES,
    WAITING,
    CandidateCosts,
    CandidateResult,
    Caveat,
    MissingTrial,
    Results,
    RowCounts,
    TrialResult,
)
from mops.tasks import Task

TOLERANCE = 1e-6  # between recorded and recomputed scores: summation order
PARTS_IN = {"report": ("validation", "selection", "report"), "test": ("test",)}  # of a file


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial whose predictions give the scores that it recorded."""

    trial: Trial
    record: Record
    tasks: Mapping[str, Task]  # that it has learnt
    judged: Mapping[str, PredictionRows]
    result: TrialResult


Group = Mapping[str, Sequence[FinishedTrial]]  # by candidate


def judge_survey(survey: Survey, folder: Path) -> Results:
    """All that is known so far; nothing in the folder is changed."""
    design = Results(
        folder=folder,
        name=survey.name,
        baseline=survey.baseline,
        single=survey.single,
        on=survey.on,
        seeds=tuple(survey.seeds),
    )
    trials = [one.trial(seed) for one in survey.candidates() for seed in survey.seeds]
    return judge_trials(design, [read_trial(trial, folder, survey.on) for trial in trials])


def judge_run(folder: Path) -> Results:
    """A single run as a survey with one candidate and one seed."""
    record = read_record(folder / "record.json")
    on = next((on for on in SPLIT_FILE if record.scores.overall.get(on)), None)
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
        rows={
            name: RowCounts(
                int(one.record.scores.tasks[name].get("selection", {}).get("rows", 0)),
                len(rows.targets),
            )
            for one in finished
            for name, rows in one.judged.items()
        },
        candidates=tuple(
            candidate
            for group in group_by_tasks(finished, design.baseline)
            for candidate in judge_group(design, group, measured)
        ),
        missing=tuple(sorted(missing, key=lambda one: STATES.index(one.state))),
    )
    return replace(results, caveats=(*problems, *find_caveats(results)))


# ------------------------------------------------------------------ trials


def read_trial(trial: Trial, folder: Path, on: str) -> FinishedTrial | MissingTrial:
    """A trial of the survey in this folder, or why it has no result."""
    run, failure = folder / "trials" / trial.id, folder / "failed" / f"{trial.id}.json"
    state, reason = WAITING, "not finished yet"
    if (run / "record.json").is_file():
        try:
            return check_trial(trial, run, on)
        except MopsError as error:
            state, reason = LEFT_OUT, str(error)
    elif failure.is_file():
        state, reason = FAILED, f"{failure} cannot be read"
        with suppress(OSError, ValueError, KeyError, TypeError):
            reason = str(json.loads(failure.read_text("utf-8"))["reason"])
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
        path = run / "predictions" / f"{name}-{SPLIT_FILE[on]}.csv"
        rows = read_predictions(path, task)
        for problem in find_mismatches(rows, scores, on):
            raise RunError(f"{path}: {problem}: not the predictions that were recorded")
        judged[name] = rows.part(on)
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


def find_mismatches(rows: PredictionRows, scores: RunScores, on: str) -> Iterator[str]:
    """Where the scores of stored predictions differ from the record."""
    stored = scores.tasks.get(rows.task.name, {})
    if on not in stored or on not in rows.columns["half"]:
        yield f"there are no labelled rows of {on!r} to judge on"
    for part in (part for part in PARTS_IN[on] if part in stored):
        here = rows.part(part)
        again = score(rows.task, here.targets, here.values) if len(here.targets) else {"rows": 0}
        for key in (key for key in stored[part] if key != "stderr"):
            recorded, now = stored[part][key], again.get(key, np.nan)
            if not abs(now - recorded) <= TOLERANCE:
                yield f"{key} on {part} is {now:.6g}, recorded is {recorded:.6g}"


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


def group_by_tasks(finished: Sequence[FinishedTrial], baseline: str) -> list[Group]:
    """Candidates that have learnt the same tasks: only their overall scores can be compared.

    The baseline's group comes first, then larger ones.
    """
    by_name: dict[str, list[FinishedTrial]] = {}
    for one in finished:
        by_name.setdefault(one.trial.candidate.name, []).append(one)
    groups: dict[frozenset[str], dict[str, list[FinishedTrial]]] = {}
    for name, trials in by_name.items():
        if tasks := frozenset.intersection(*(frozenset(one.tasks) for one in trials)):
            groups.setdefault(tasks, {})[name] = trials
    order = sorted(groups, key=lambda tasks: (baseline not in groups[tasks], -len(tasks)))
    return [groups[tasks] for tasks in order]


def judge_group(
    design: Results, group: Group, measured: Mapping[str, Mapping[str, Any]]
) -> list[CandidateResult]:
    """Candidates compared with the baseline, or with the first of the group without it."""
    reference = design.baseline if design.baseline in group else next(iter(group))
    compared = compare_trials(group, reference, design.single)
    candidates = []
    for name, trials in group.items():
        first, training = trials[0], trials[0].trial.recipe.training
        done = {one.trial.seed for one in trials}
        candidates.append(
            CandidateResult(
                **vars(compared[name]),
                name=name,
                plan=first.record.run_info.plan,
                settings=dict(first.trial.candidate.settings),
                learning_rate=training.learning_rate,
                head_learning_rate=training.head_learning_rate,
                loss_weights=dict(first.record.train_info.loss_weights),
                tasks=tuple(key for key in compared[name].scores if key not in OVERALL),
                reference=reference,
                costs=join_costs([one.record for one in trials], measured.get(name, {})),
                trials=tuple(one.result for one in trials),
                missing_seeds=tuple(seed for seed in design.seeds if seed not in done),
            )
        )
    return rank(candidates, reference)


def compare_trials(
    group: Group,
    reference: str,
    single: str | None = None,
    weights: Weights = EQUAL,
    by: str = "overall",
) -> dict[str, CandidateComparison]:
    """The candidates of a group on the tasks that all of their trials have learnt."""
    trials = list(chain.from_iterable(group.values()))
    names = [name for name in trials[0].tasks if all(name in one.tasks for one in trials)]
    answers = {
        name: {one.trial.seed: {t: one.judged[t].values for t in names} for one in members}
        for name, members in group.items()
    }
    return compare(
        {name: trials[0].tasks[name] for name in names},
        {name: trials[0].judged[name].targets for name in names},
        answers,
        baseline=reference,
        single=single if single in group else None,
        by=by,
        weights=weights,
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


def rank(candidates: Sequence[CandidateResult], reference: str) -> list[CandidateResult]:
    """Candidates by tie, each with its score per time and memory."""

    def measure(one: CandidateResult) -> tuple[float, float, float]:
        return one.overall.mean, one.costs.train_seconds, one.costs.weight_bytes

    (base,) = (one for one in candidates if one.name == reference)
    priced = []
    for one in candidates:
        is_same_moment = one.costs.source == base.costs.source  # else times are not comparable
        relative = tm_relative(measure(one), measure(base)) if is_same_moment else None
        priced.append(replace(one, tm_relative=relative))
    return sorted(priced, key=lambda one: one.tie)
