"""A survey's folder becomes its judged result: records joined, candidates compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mops.evaluate.compare import Answered, Judged, compare
from mops.evaluate.metrics import EQUAL, OVERALL, Weights
from mops.surveys.results.expense import expenses, relative
from mops.surveys.results.guards import findings
from mops.surveys.results.results import Design, Outside, Result, Results, outside, read_results
from mops.surveys.results.standings import Rows, Standing, Summary, TrialFacts


def summarise(survey: Design, folder: Path) -> Summary:
    """Everything that is known so far; nothing in the folder is changed."""
    return judge_results(survey, read_results(survey, folder), read_costs(folder / "costs.json"))


def judge_results(
    survey: Design, results: Results, costs: Mapping[str, Mapping[str, Any]]
) -> Summary:
    finished, strangers = on_common_rows(results.finished)
    standings: list[Standing] = []
    for group in by_tasks(finished, survey.baseline):
        standings += judge_group(survey, group, costs)
    summary = Summary(
        name=survey.name,
        baseline=survey.baseline,
        single=survey.single,
        on=survey.on,
        seeds=tuple(survey.seeds),
        tasks={n: task.score_name for one in finished for n, task in one.tasks.items()},
        rows={
            name: Rows(one.chosen_on[name], len(one.judged[name].targets))
            for one in finished
            for name in one.tasks
        },
        standings=tuple(standings),
        failed=results.failed,
        doubtful=(*results.doubtful, *strangers),
        waiting=results.waiting,
    )
    return replace(summary, findings=tuple(findings(summary)))


def read_costs(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """What the cost pass has measured so far, by candidate; nothing when it has not begun."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# ------------------------------------------------------------------ who is compared with whom


def on_common_rows(finished: Sequence[Result]) -> tuple[list[Result], list[Outside]]:
    """Only answers to the same rows are compared: those that most trials have."""
    keys = [{name: of.rows for name, of in one.judged.items()} for one in finished]
    counts = Counter((name, key) for of in keys for name, key in of.items())
    usual: dict[str, str] = {}
    for (name, key), _ in counts.most_common():
        usual.setdefault(name, key)
    kept, strangers = [], []
    for one, of in zip(finished, keys, strict=True):
        other = [name for name, key in of.items() if key != usual[name]]
        if other:
            reason = (
                f"its validation rows of {', '.join(other)} are not those of the other trials: "
                "train them again, or name another folder"
            )
            strangers.append(outside(one.trial, reason))
        else:
            kept.append(one)
    return kept, strangers


def by_tasks(finished: Sequence[Result], baseline: str) -> list[list[Result]]:
    """Candidates that have learnt the same tasks; the baseline's group first, then larger ones.

    An overall score over other tasks is another score.
    """
    learnt: dict[str, frozenset[str]] = {}
    for one in finished:
        learnt[one.candidate] = learnt.get(one.candidate, frozenset(one.tasks)) & set(one.tasks)
    groups: dict[frozenset[str], list[Result]] = {}
    for one in finished:
        groups.setdefault(learnt[one.candidate], []).append(one)
    groups.pop(frozenset(), None)
    first = learnt.get(baseline, frozenset())
    return [groups[key] for key in sorted(groups, key=lambda key: (key != first, -len(key)))]


def judge_group(
    survey: Design, group: Sequence[Result], costs: Mapping[str, Mapping[str, Any]]
) -> list[Standing]:
    """The candidates of one group, compared with the baseline or with its first candidate."""
    of: dict[str, list[Result]] = {}
    for one in group:
        of.setdefault(one.candidate, []).append(one)
    reference = survey.baseline if survey.baseline in of else next(iter(of))
    single = survey.single if survey.single in of else None
    judged = {one.name: one for one in compare_results(of, reference, single)}
    spent = {name: expenses(results, costs.get(name, {})) for name, results in of.items()}
    scores = {name: one.scores["overall"].mean for name, one in judged.items()}
    return [
        replace(
            standing(judged[name], of[name], survey.seeds),
            reference=reference,
            costs=spent[name],
            tm_relative=relative(scores, spent, name, reference),
        )
        for name in sorted(of, key=lambda name: judged[name].tie)
    ]


def compare_results(
    of: Mapping[str, Sequence[Result]],
    reference: str,
    single: str | None,
    weights: Weights = EQUAL,
) -> tuple[Judged, ...]:
    everyone = [one for results in of.values() for one in results]
    first = everyone[0]
    tasks = {
        name: task
        for name, task in first.tasks.items()
        if all(name in one.tasks for one in everyone)
    }
    answered = [
        Answered(
            name,
            {one.trial.seed: {t: one.judged[t].predictions for t in tasks} for one in results},
        )
        for name, results in of.items()
    ]
    targets = {name: first.judged[name].targets for name in tasks}
    return compare(tasks, targets, answered, reference, single, weights=weights)


# ------------------------------------------------------------------ what is known of one


def standing(judged: Judged, results: Sequence[Result], seeds: Sequence[int]) -> Standing:
    """All but what follows from the company it is in."""
    candidate, training = results[0].trial.candidate, results[0].trial.recipe.training
    done = {one.trial.seed for one in results}
    return Standing(
        name=judged.name,
        plan=results[0].record.run_info.plan,
        settings=dict(candidate.settings),
        learning_rate=training.learning_rate,
        head_learning_rate=training.head_learning_rate,
        loss_weights=dict(results[0].record.train_info.loss_weights),
        tasks=tuple(name for name in judged.scores if name not in OVERALL),
        reference="",
        tie=judged.tie,
        apart=tuple(judged.apart),
        scores=dict(judged.scores),
        against=dict(judged.against),
        gains=dict(judged.gains),
        mcnemar={task: tuple(p) for task, p in judged.mcnemar.items()},
        costs={},
        tm_relative=None,
        trials=tuple(trial_facts(one) for one in results),
        missing_seeds=tuple(seed for seed in seeds if seed not in done),
    )


def trial_facts(result: Result) -> TrialFacts:
    record, info, on = result.record, result.record.train_info, result.on
    main = {name: task.score_name for name, task in result.tasks.items()}
    scores = {name: record.scores.tasks[name][on][key] for name, key in main.items()}
    return TrialFacts(
        id=result.id,
        seed=result.trial.seed,
        digest=result.digest,
        selection=record.scores.overall.get("selection", {}).get("overall"),
        scores=scores | dict(record.scores.overall.get(on, {})),
        steps=info.steps,
        planned_steps=info.planned_steps,
        best_step=info.best_step,
        best_epoch=info.best_step / info.steps_per_epoch,
        rows={name: info.tasks[name].examples for name in main},
        passes={name: info.tasks[name].passes for name in main},
        train_seconds=info.train_seconds,
        batched=info.batched,
        is_stopped_early=info.stopped_early,
        is_best_last=info.is_best_last,
        warnings=tuple(record.warnings),
    )
