"""A survey judged once more, by what its tasks count for you."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mops.config.recipe import to_recipe
from mops.errors import MopsError, RunError
from mops.record import read_record
from mops.surveys.ledger import Candidate
from mops.surveys.results.expense import relative
from mops.surveys.results.results import Result, read_result
from mops.surveys.results.standings import Standing, Summary, read_summary
from mops.surveys.results.summary import compare_results
from mops.surveys.results.weighing import normalised


def read_weighed(folder: Path, weights: Mapping[str, float] | None) -> Summary:
    """The summary in a folder; the candidates of its baseline's group by these weights.

    Their answers, which lie in the folder, are compared row by row, as for the plain mean. Where
    they are gone the summary is as it was written.
    """
    stored = read_summary(folder)
    if not weights or not stored.standings:
        return stored
    home = stored.standings[0].tasks
    normalised(weights, home)
    group = [one for one in stored.standings if one.tasks == home]
    try:
        results = {one.name: read_trials(folder, one, stored.on) for one in group}
    except MopsError:
        return stored
    weighed = weigh_again(group, results, stored.single, weights)
    rest = [one for one in stored.standings if one.tasks != home]
    return replace(stored, standings=(*weighed, *rest), weights=dict(weights))


def read_trials(folder: Path, one: Standing, on: str) -> list[Result]:
    """The trials of a candidate, if they still answer what was judged."""
    found = []
    for facts in one.trials:
        run = folder / "trials" / facts.id
        recipe = to_recipe(dict(read_record(run / "record.json").run_info.recipe))
        result = read_result(Candidate(one.name, {}, recipe).trial(facts.seed), run, on)
        if result.digest != facts.digest:
            raise RunError(f"{run}: these are not the predictions that were judged")
        found.append(result)
    return found


def weigh_again(
    group: Sequence[Standing],
    results: Mapping[str, Sequence[Result]],
    single: str | None,
    weights: Mapping[str, float],
) -> list[Standing]:
    """What follows from overall scores: the scores, the differences, the ties."""
    reference = group[0].reference
    known = single if single in results else None
    judged = {one.name: one for one in compare_results(results, reference, known, weights)}
    scores = {name: one.scores["overall"].mean for name, one in judged.items()}
    costs = {one.name: one.costs for one in group}
    found = [
        replace(
            one,
            scores=dict(judged[one.name].scores),
            against=dict(judged[one.name].against),
            tie=judged[one.name].tie,
            apart=judged[one.name].apart,
            tm_relative=relative(scores, costs, one.name, reference),
        )
        for one in group
    ]
    return sorted(found, key=lambda one: one.tie)
