"""From the folder of a survey, or of one run, to `Results`: trials read, checked, compared."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mops.config.recipe import differing_key, to_recipe
from mops.errors import MopsError, RunError, UsageError
from mops.evaluate.cost import tm_relative
from mops.evaluate.evaluate import JUDGING, PredictionRows, read_predictions
from mops.evaluate.metrics import EQUAL, Weights, overall_scores, score, soft_key
from mops.evaluate.statistics import mcnemar_by_task, mean_covariance, row_covariance, row_noise
from mops.files import file_digest
from mops.kinds.metrics import as_bytes
from mops.record import Record, read_record
from mops.surveys.design import Survey, read_survey
from mops.surveys.ledger import Candidate, Ledger, Trial, read_json, settings_of
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
    Group,
    MissingTrial,
    Results,
    TrialResult,
    read_results,
)
from mops.yaml_io import content_digest, to_value

JUDGED = (  # what results depend on
    "survey.yaml", "names.json", "costs.json", "failed/*.json", "paused/*.json",
    "trials/*/record.json", "trials/*/predictions/*.csv",
)  # fmt: skip
TOLERANCE = 1e-6  # between recorded and recomputed scores: summation order


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial whose predictions give the scores that it recorded."""

    trial: Trial
    record: Record
    judged: Mapping[str, PredictionRows]  # by task that it has learnt
    result: TrialResult


RowChoice = Mapping[str, NDArray[np.bool_]]  # task -> whether each row of its file judges
Members = Mapping[str, Sequence[FinishedTrial]]  # by candidate


def judge_survey(survey: Survey, folder: Path, rows: RowChoice | None = None) -> Results:
    """All that is known so far, on all rows or on some; nothing in the folder is changed."""
    design = Results(
        folder=folder,
        name=survey.name,
        baseline=survey.baseline,
        single=survey.single,
        on=survey.on,
        seeds=tuple(dict.fromkeys(trial.seed for trial in survey.trials())),
        rounds=survey.rounds,
        key=digest_files(folder),
    )
    trials = Ledger(folder).with_ids(survey.trials())
    found = [read_trial(trial, folder, survey.on) for trial in trials]
    return judge_trials(design, [on_rows(one, rows) for one in found] if rows else found)


def read_judged(folder: Path) -> Results:
    """The stored results of a survey, if they are as they were written and of the files that are
    there; else judged again.

    A folder with nothing but stored results is taken at its word.
    """
    stored, design = folder / "summary.json", folder / "survey.yaml"
    if not design.is_file():
        return read_results(folder)
    with suppress(UsageError):  # there are none, or of another version
        results = read_results(stored)
        is_intact = results.sha256 == content_digest(read_json(stored))
        if is_intact and results.key == digest_files(folder):
            return results
    return judge_survey(read_survey(design), folder)


def digest_files(folder: Path) -> str:
    """A digest of everything that a survey is judged by."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in JUDGED for path in folder.glob(pattern)):
        with suppress(FileNotFoundError):  # a survey may be running
            digest.update(f"{path.relative_to(folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def judge_run(folder: Path) -> Results:
    """A single run as a survey with one candidate and one seed."""
    record = read_record(folder / "record.json")
    on = next((on for on in JUDGING if record.scores.overall.get(on)), None)
    if on is None:
        raise UsageError(f"{folder}: no labelled row judges this run, nothing can be reported")
    run, plan = folder.resolve(), record.run_info.plan
    recipe = to_recipe(dict(record.run_info.recipe), where=str(run))
    trial = Candidate(plan, {}, recipe).trial(recipe.training.seed)
    seeds = (record.run_info.seed,)
    design = Results(folder=folder, name=run.name, baseline=plan, single=None, on=on, seeds=seeds)
    return judge_trials(design, [check_trial(trial, run, on)])


def judge_trials(design: Results, trials: Sequence[FinishedTrial | MissingTrial]) -> Results:
    finished, missing = split_by_rows(trials)
    measured = read_json(design.folder / "costs.json", dict[str, dict[str, Any]])
    results = replace(
        design,
        tasks={task: rows.task.score_name for one in finished for task, rows in one.judged.items()},
        rows={task: len(rows.targets) for one in finished for task, rows in one.judged.items()},
        references=join_references([one.record for one in finished]),
        missing=tuple(sorted(missing, key=lambda one: STATES.index(one.state))),
    )
    for members in group_by_tasks(finished, design.baseline):
        results = add_group(results, members, measured)
    return replace(results, caveats=tuple(find_caveats(results)))


def join_references(records: Sequence[Record]) -> dict[str, Mapping[str, float]]:
    """Those of all trials; with several encoders, of each."""
    known = {
        (Path(r.meta_info.encoder).name, n): s for r in records for n, s in r.references.items()
    }
    has_several = len({encoder for encoder, _ in known}) > 1
    return {f"{n} ({own})" if has_several else n: scores for (own, n), scores in known.items()}


def read_trial(trial: Trial, folder: Path, on: str) -> FinishedTrial | MissingTrial:
    """A trial of the survey in this folder, or why it has no result."""
    ledger = Ledger(folder)
    state, reason = WAITING, "not finished yet"
    if ledger.is_finished(trial.id):
        try:
            return check_trial(trial, ledger.run_folder(trial.id), on)
        except MopsError as error:
            state, reason = LEFT_OUT, str(error)
    elif failure := ledger.failure(trial.id):
        state, reason = FAILED, failure.get("reason", "")
    elif (pause := ledger.pause(trial.id)).is_paused:
        state, reason = PAUSED, f"trained to {pause.reached:.0%} of its steps"
    return missing_trial(trial, state, reason)


def missing_trial(trial: Trial, state: str, reason: str) -> MissingTrial:
    return MissingTrial(trial.id, trial.name, trial.candidate.name, trial.seed, state, reason)


def check_trial(trial: Trial, run: Path, on: str) -> FinishedTrial:
    """The trial, or an error if its record or its predictions are not its own."""
    record = read_record(run / "record.json")
    scores, recipe = record.scores, to_recipe(dict(record.run_info.recipe), where=str(run))
    if other := differing_key(settings_of(trial.recipe), settings_of(recipe)):
        raise RunError(f"{run}: its record is of another training ({other})")
    tasks = recipe.task_values()
    digest, judged = hashlib.sha256(), {}
    for name in (name for name in scores.tasks if name not in scores.untrained):
        path = run / "predictions" / f"{name}-{on}.csv"
        rows = judged[name] = read_predictions(path, tasks[name])
        if record.predictions_sha256.get(path.name) not in (None, file_digest(path)):
            raise RunError(f"{path}: its digest is another: not the predictions that were recorded")
        for problem in find_mismatches(rows, scores.tasks[name].get(on, {})):
            raise RunError(f"{path}: {problem}: not the predictions that were recorded")
        digest.update(f"{name}:".encode() + as_bytes(rows.values))
    main = {name: scores.tasks[name][on][scores.main[name]] for name in judged}
    result = TrialResult(
        id=run.name,
        seed=trial.seed,
        digest=digest.hexdigest()[:16],
        scores={**main, **soft_scores(judged), **scores.overall.get(on, {})},
        metrics={**scores.tasks, "overall": scores.overall},
        train_info=record.train_info,
        warnings=record.warnings,
    )
    return FinishedTrial(trial, record, judged, result)


def soft_scores(judged: Mapping[str, PredictionRows]) -> dict[str, float]:
    """The mean probability of the true class, of each task that has it."""
    return {
        soft_key(name): float(rows.probabilities.mean())
        for name, rows in judged.items()
        if rows.task.score_name == "accuracy" and "loss" in rows.columns
    }


def on_rows(one: FinishedTrial | MissingTrial, chosen: RowChoice) -> FinishedTrial | MissingTrial:
    """The trial as some of its rows judge it."""
    if isinstance(one, MissingTrial):
        return one
    judged = {name: rows.among(chosen[name]) for name, rows in one.judged.items()}
    tasks = {name: rows.task for name, rows in judged.items()}
    main = {n: score(r.task, r.targets, r.values)[r.task.score_name] for n, r in judged.items()}
    scores = {**main, **soft_scores(judged), **overall_scores(tasks, main)}
    return replace(one, judged=judged, result=replace(one.result, scores=scores))


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


def split_by_rows(
    trials: Sequence[FinishedTrial | MissingTrial],
) -> tuple[list[FinishedTrial], list[MissingTrial]]:
    """Trials that were judged on the same rows as most others, and all that were not."""
    finished = [one for one in trials if isinstance(one, FinishedTrial)]
    counts = Counter((name, rows.digest) for one in finished for name, rows in one.judged.items())
    usual = dict(key for key, _ in reversed(counts.most_common()))
    kept, missing = [], [one for one in trials if isinstance(one, MissingTrial)]
    for one in finished:
        if other := [name for name, rows in one.judged.items() if rows.digest != usual[name]]:
            reason = (
                f"its validation rows of {', '.join(other)} are not those of the other trials: "
                "train them again, or name another folder"
            )
            missing.append(missing_trial(one.trial, LEFT_OUT, reason))
        else:
            kept.append(one)
    return kept, missing


def group_by_tasks(finished: Sequence[FinishedTrial], baseline: str) -> list[Members]:
    """Candidates that have learnt the same tasks: the baseline's first, then larger groups."""
    by_name: dict[str, list[FinishedTrial]] = {}
    for one in finished:
        by_name.setdefault(one.trial.candidate.name, []).append(one)
    groups: dict[frozenset[str], dict[str, list[FinishedTrial]]] = {}
    for name, trials in by_name.items():
        if tasks := frozenset.intersection(*(frozenset(one.judged) for one in trials)):
            groups.setdefault(tasks, {})[name] = trials
    order = sorted(groups, key=lambda tasks: (baseline not in groups[tasks], -len(tasks)))
    return [groups[tasks] for tasks in order]


def add_group(
    results: Results, members: Members, measured: Mapping[str, Mapping[str, Any]]
) -> Results:
    """Candidates compared with the baseline, or with the first of a group without it."""
    reference = results.baseline if results.baseline in members else next(iter(members))
    trials = list(chain.from_iterable(members.values()))
    first = trials[0].judged
    tasks = {n: rows.task for n, rows in first.items() if all(n in one.judged for one in trials)}
    answers = {
        name: {one.trial.seed: {task: one.judged[task].values for task in tasks} for one in own}
        for name, own in members.items()
    }
    noise, targets = {}, {name: first[name].targets for name in tasks}
    for name, task in tasks.items():
        runs = {c: {seed: own[seed][name] for seed in own} for c, own in answers.items()}
        noise[name] = row_noise(partial(row_covariance, task, targets[name]), runs)
        if all(soft_key(name) in one.result.scores for one in trials):
            soft = {
                c: {one.trial.seed: one.judged[name].probabilities for one in own}
                for c, own in members.items()
            }
            noise[soft_key(name)] = row_noise(mean_covariance, soft)
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
    group, known = Group(tuple(members), noise), (*results.candidates, *candidates)
    return compare_group(replace(results, candidates=known, groups=(*results.groups, group)), group)


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
    }
    known = {field.name for field in fields(CandidateCosts)}
    own = {key: value for key, value in joined.items() if key in known}
    where = f"costs.json: {records[0].run_info.plan}"
    return to_value(CandidateCosts, own, where=where, error=UsageError)


def compare_group(results: Results, group: Group, weights: Weights = EQUAL) -> Results:
    """The results with the candidates of a group compared, from the stored values and noise."""
    reference = results[group.candidates[0]].reference
    members = compare_members(results, group, reference, weights)
    factors = {
        name: (one.overall.mean, one.costs.train_seconds, one.costs.weight_bytes)
        for name, one in members.items()
    }
    for name, one in members.items():
        if one.costs.source == members[reference].costs.source:  # else times of different moments
            relative = tm_relative(factors[name], factors[reference])
            members[name] = replace(one, tm_relative=relative)
    place = {name: n for n, own in enumerate(results.groups) for name in own.candidates}
    candidates = [members.get(one.name, one) for one in results.candidates]
    candidates.sort(key=lambda one: (place[one.name], -one.overall.mean))
    return replace(results, candidates=tuple(candidates))


def compare_members(
    results: Results, group: Group, reference: str, weights: Weights
) -> dict[str, CandidateResult]:
    """Each candidate of a group, compared with the reference and with a model per task.

    Each question is one family: the set of the best over all candidates, the differences from the
    reference over all candidates for each score, the gains over `single` for each task.
    """
    joint, single = results.joint(group, weights), results.single
    against = {key: own.against(reference) for key, own in joint.items()}
    has_single = single in group.candidates
    gains = {t: joint[t].against(str(single)) for t in joint if t in results.tasks and has_single}
    best = joint["overall"].best_set()
    return {
        name: replace(
            results[name],
            scores={key: own.estimate(name) for key, own in joint.items()},
            against={key: tested[name] for key, tested in against.items() if name in tested},
            gains={task: tested[name] for task, tested in gains.items() if name in tested},
            is_best=name in best,
        )
        for name in group.candidates
    }
