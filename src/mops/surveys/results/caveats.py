"""What would make a comparison misleading: guards over `Results`, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from mops.evaluate.cost import noise_sentences
from mops.surveys.results.results import (
    COST_PASS,
    LEFT_OUT,
    CandidateResult,
    Caveat,
    Results,
)

SHOWN = 4  # names in a sentence
SLACK = 0.01  # relative difference in rows that is no caveat: some schedules draw the next task


def find_caveats(results: Results) -> Iterator[Caveat]:
    """All caveats, the worst first."""
    for kind, guard in GUARDS.items():
        for text in guard(results):
            yield Caveat(kind, text)


def left_out_trials(results: Results) -> Iterator[str]:
    for trial in results.in_state(LEFT_OUT):
        yield f"{trial.name} (trial {trial.id}) is left out of the comparison: {trial.reason}"


def other_references(results: Results) -> Iterator[str]:
    """Candidates that are not compared with the baseline."""
    if not results.candidates:
        return
    first = results.candidates[0]
    if results.baseline not in results:
        yield (
            f"the baseline {results.baseline} has no finished trial: differences are to "
            f"{first.reference}"
        )
    others = [one for one in results.candidates if one.tasks != first.tasks]
    for tasks in dict.fromkeys(one.tasks for one in others):
        group = [one for one in others if one.tasks == tasks]
        yield (
            f"{list_names([one.name for one in group])} learnt {', '.join(tasks)} and not "
            f"{', '.join(first.tasks)}: judged apart, differences are to {group[0].reference}"
        )


def missing_seeds(results: Results) -> Iterator[str]:
    for one in results.candidates:
        if one.missing_seeds:
            why = {
                other.seed: other.reason for other in results.missing if other.candidate == one.name
            }
            reasons = [f"seed {seed}: {why.get(seed, 'unknown')}" for seed in one.missing_seeds]
            yield (
                f"{one.name} has {len(one.trials)} of {len(results.seeds)} seeds; "
                f"{'; '.join(reasons)}"
            )


def single_seed(results: Results) -> Iterator[str]:
    if results.candidates and all(len(one.trials) == 1 for one in results.candidates):
        yield (
            "one seed: differences are between these trained models; another seed may reverse "
            "them, so they do not compare the plans"
        )


def unequal_budgets(results: Results) -> Iterator[str]:
    """Candidates that were given more steps, or more rows of a task, than others."""
    infos = {one.name: [t.train_info for t in one.trials] for one in results.candidates}
    steps = {name: max(info.planned_steps for info in of) for name, of in infos.items()}
    yield from compare_budgets("training steps", steps, 0)
    for task in results.tasks:
        complete = {
            one.name: [info for info in infos[one.name] if not info.stopped_early]
            for one in results.candidates
            if task in one.tasks
        }
        rows = {n: max(i.tasks[task].examples for i in of) for n, of in complete.items() if of}
        yield from compare_budgets(f"training rows of {task}", rows, SLACK)


def compare_budgets(what: str, given: Mapping[str, int], slack: float) -> Iterator[str]:
    least, most = min(given.values(), default=0), max(given.values(), default=0)
    if most > (1 + slack) * least:
        few = [name for name, value in given.items() if value <= (1 + slack) * least]
        many = [name for name, value in given.items() if value >= most / (1 + slack)]
        yield (
            f"budgets differ: {what} go from {least:,} ({list_names(few)}) to {most:,} "
            f"({list_names(many)}); a difference in score may be one of budget"
        )


def without_effect(results: Results) -> Iterator[str]:
    """Different settings that gave the same predictions everywhere."""
    same: dict[tuple[tuple[int, str], ...], list[CandidateResult]] = {}
    for one in results.candidates:
        same.setdefault(tuple((t.seed, t.digest) for t in one.trials), []).append(one)
    for group in (group for group in same.values() if len(group) > 1):
        keys = dict.fromkeys(chain.from_iterable(one.settings for one in group))
        first = group[0].settings
        changed = [k for k in keys if any(one.settings.get(k) != first.get(k) for one in group)]
        yield (
            f"{', '.join(changed) or 'the difference between them'} changed nothing: "
            f"{list_names([one.name for one in group], ' and ')} "
            "give the same predictions in every task and seed"
        )


def winner_below_default(results: Results) -> Iterator[str]:
    """The winner on the selection rows must hold on the rows that judge."""
    if results.baseline not in results:
        return
    default = results[results.baseline]
    picked = {
        one.name: sum(values) / len(values)
        for one in results.candidates
        if one.tasks == default.tasks
        and (values := [t.selection for t in one.trials if t.selection is not None])
    }
    winner = results[max(picked, key=picked.__getitem__)] if picked else default
    if winner.overall.mean < default.overall.mean:
        yield (
            f"the winner on the selection rows, {winner.name}, is worse than the default "
            f"{default.name} on the rows that judge: {winner.overall.mean:.3f} against "
            f"{default.overall.mean:.3f}"
        )


def small_budgets(results: Results) -> Iterator[str]:
    is_last = {
        one.name: [trial.train_info.is_best_last for trial in one.trials]
        for one in results.candidates
    }
    names = [name for name, of in is_last.items() if any(of)]
    if names:
        count, trials = sum(map(sum, is_last.values())), sum(map(len, is_last.values()))
        yield (
            f"{count} of {trials} trials were best at their last evaluation "
            f"({list_names(names)}): a larger budget may give a better model"
        )


def unmeasured_costs(results: Results) -> Iterator[str]:
    names = [one.name for one in results.candidates if one.costs.source != COST_PASS]
    if names:
        yield (
            f"no cost pass for {list_names(names)}: the times are those of the trainings, which "
            "were measured at different moments"
        )
    for one in results.candidates:
        yield from (f"{one.name}: {warning}" for warning in one.costs.warnings)


def timing_noise(results: Results) -> Iterator[str]:
    """Equal work that took different times."""
    measured = {one.name: vars(one.costs) for one in results.candidates if one.costs.noise}
    if measured:
        yield from noise_sentences(measured, max(costs["noise"] for costs in measured.values()))


def list_names(names: Sequence[str], joint: str = ", ") -> str:
    """The first names and how many more there are."""
    more = len(names) - SHOWN
    return joint.join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


GUARDS: dict[str, Callable[[Results], Iterator[str]]] = {
    "predictions": left_out_trials,
    "baseline": other_references,
    "seeds": missing_seeds,
    "one seed": single_seed,
    "budget": unequal_budgets,
    "no effect": without_effect,
    "search": winner_below_default,
    "last evaluation": small_budgets,
    "costs": unmeasured_costs,
    "noise": timing_noise,
}
