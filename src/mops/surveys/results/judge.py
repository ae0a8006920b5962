"""From the folder of a survey, or of one run, to `Results`: trials compared, costs joined."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from mops.errors import UsageError
from mops.evaluate.compare import CandidateComparison, compare
from mops.evaluate.cost import tm_relative
from mops.evaluate.metrics import EQUAL, OVERALL, Weights
from mops.evaluate.predictions import SPLIT_FILE
from mops.record import Record, read_record
from mops.surveys.design import Survey
from mops.surveys.results.caveats import find_caveats
from mops.surveys.results.results import (
    COST_PASS,
    FAILED,
    LEFT_OUT,
    RECORDS,
    WAITING,
    CandidateCosts,
    CandidateResult,
    Caveat,
    MissingTrial,
    Results,
    RowCounts,
)
from mops.surveys.results.trials import FinishedTrial, missing_trial, read_run, read_trial

Group = Mapping[str, Sequence[FinishedTrial]]  # by candidate
Measured = Mapping[str, Mapping[str, Any]]  # candidate -> what the cost pass measured


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
    missing.sort(key=lambda one: (FAILED, LEFT_OUT, WAITING).index(one.state))
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
        missing=tuple(missing),
    )
    return replace(results, caveats=(*problems, *find_caveats(results)))


# ------------------------------------------------------------------ who is compared with whom


def split_by_rows(
    trials: Sequence[FinishedTrial],
) -> tuple[list[FinishedTrial], list[MissingTrial]]:
    """Trials that were judged on the same rows as most others, and those that were not."""
    digests = [{name: rows.digest for name, rows in one.judged.items()} for one in trials]
    usual: dict[str, str] = {}
    for (name, digest), _ in Counter(x for of in digests for x in of.items()).most_common():
        usual.setdefault(name, digest)
    kept, strangers = [], []
    for one, of in zip(trials, digests, strict=True):
        if other := [name for name, digest in of.items() if digest != usual[name]]:
            reason = (
                f"its validation rows of {', '.join(other)} are not those of the other trials: "
                "train them again, or name another folder"
            )
            strangers.append(missing_trial(one.trial, LEFT_OUT, reason))
        else:
            kept.append(one)
    return kept, strangers


def group_by_tasks(finished: Sequence[FinishedTrial], baseline: str) -> Iterator[Group]:
    """Candidates that have learnt the same tasks: only their overall scores can be compared.

    The baseline's group comes first, then larger ones.
    """
    learnt: dict[str, frozenset[str]] = {}
    for one in finished:
        learnt[one.candidate] = learnt.get(one.candidate, frozenset(one.tasks)) & set(one.tasks)
    groups: dict[frozenset[str], dict[str, list[FinishedTrial]]] = {}
    for one in finished:
        if tasks := learnt[one.candidate]:
            groups.setdefault(tasks, {}).setdefault(one.candidate, []).append(one)
    first = learnt.get(baseline, frozenset())
    for key in sorted(groups, key=lambda tasks: (tasks != first, -len(tasks))):
        yield groups[key]


def judge_group(design: Results, group: Group, measured: Measured) -> list[CandidateResult]:
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
                trials=tuple(one.to_result() for one in trials),
                missing_seeds=tuple(seed for seed in design.seeds if seed not in done),
            )
        )
    return rank(candidates, reference)


def rank(candidates: Sequence[CandidateResult], reference: str) -> list[CandidateResult]:
    """Candidates by tie, each with its score per time and memory."""
    (base,) = (one for one in candidates if one.name == reference)
    priced = [replace(one, tm_relative=relative_tm(one, base)) for one in candidates]
    return sorted(priced, key=lambda one: one.tie)


def compare_trials(
    group: Group, reference: str, single: str | None, weights: Weights = EQUAL
) -> dict[str, CandidateComparison]:
    trials = [one for of in group.values() for one in of]
    names = [name for name in trials[0].tasks if all(name in one.tasks for one in trials)]
    answers = {
        name: {one.trial.seed: {t: one.judged[t].values for t in names} for one in of}
        for name, of in group.items()
    }
    return compare(
        {name: trials[0].tasks[name] for name in names},
        {name: trials[0].judged[name].targets for name in names},
        answers,
        baseline=reference,
        single=single if single in group else None,
        weights=weights,
    )


# ------------------------------------------------------------------ costs


def read_costs(path: Path) -> tuple[Measured, tuple[Caveat, ...]]:
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
    known = {field.name for field in fields(CandidateCosts)}
    costs = [record.costs for record in records]
    recorded = {key: value for key, value in vars(costs[0]).items() if key in known} | {
        "train_seconds": median(one.train_seconds for one in costs),
        "step_seconds": median(one.step_seconds_median for one in costs),
        "peak_memory_bytes": max(one.peak_memory_bytes for one in costs),
        "disk_bytes": max(one.bundle_bytes for one in costs),
        "source": COST_PASS if "train_seconds" in measured else RECORDS,
    }
    kept = {key: value for key, value in measured.items() if key in known}
    return CandidateCosts(**recorded | kept | {"warnings": tuple(measured.get("warnings", ()))})


def relative_tm(one: CandidateResult, base: CandidateResult) -> float | None:
    """Score per time and memory, relative to the reference; None where it has no meaning."""
    own, other = one.costs, base.costs
    if own.source != other.source:  # times that were measured at different moments
        return None
    ratio = tm_relative(
        one.overall.mean,
        own.train_seconds,
        own.weight_bytes,
        score0=base.overall.mean,
        seconds0=other.train_seconds,
        size0=other.weight_bytes,
    )
    return ratio if math.isfinite(ratio) else None
