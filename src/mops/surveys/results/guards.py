"""Guards for surveys: what would make a comparison misleading, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from mops.evaluate.cost import noise_sentences
from mops.surveys.results.expense import PASS
from mops.surveys.results.standings import Finding, Standing, Summary

SHOWN = 4  # names in a sentence
SLACK = 0.01  # rows of a task may differ by this share: some schedules draw the next task


def findings(summary: Summary) -> Iterator[Finding]:
    """All that the guards have to say, the worst first."""
    for kind, guard in GUARDS.items():
        for text in guard(summary):
            yield Finding(kind, text)


def doubtful(summary: Summary) -> Iterator[str]:
    for one in summary.doubtful:
        yield f"{one.name} (trial {one.id}) is left out of the comparison: {one.reason}"


def without_baseline(summary: Summary) -> Iterator[str]:
    """Who is compared with somebody else than the baseline."""
    names = [one.name for one in summary.standings]
    if names and summary.baseline not in names:
        yield (
            f"the baseline {summary.baseline} has no finished trial: differences are to "
            f"{summary.standings[0].reference}"
        )
    home = next((one.tasks for one in summary.standings), ())
    for tasks in dict.fromkeys(one.tasks for one in summary.standings if one.tasks != home):
        group = [one for one in summary.standings if one.tasks == tasks]
        yield (
            f"{listed([one.name for one in group])} learnt {', '.join(tasks)} and not "
            f"{', '.join(home)}: judged apart, differences are to {group[0].reference}"
        )


def missing_seeds(summary: Summary) -> Iterator[str]:
    outside = (*summary.failed, *summary.doubtful, *summary.waiting)
    for one in summary.standings:
        if one.missing_seeds:
            why = {other.seed: other.reason for other in outside if other.candidate == one.name}
            reasons = [f"seed {seed}: {why.get(seed, 'unknown')}" for seed in one.missing_seeds]
            yield (
                f"{one.name} has {len(one.trials)} of {len(summary.seeds)} seeds; "
                f"{'; '.join(reasons)}"
            )


def unequal_budgets(summary: Summary) -> Iterator[str]:
    """Candidates that were given more steps, or more rows of a task, than others."""
    steps = {one.name: max(t.planned_steps for t in one.trials) for one in summary.standings}
    yield from uneven("training steps", steps, 0)
    for task in summary.tasks:
        rows = {
            one.name: max(trial.rows[task] for trial in whole)
            for one in summary.standings
            if (whole := [t for t in one.trials if not t.is_stopped_early and task in t.rows])
        }
        yield from uneven(f"training rows of {task}", rows, SLACK)


def uneven(what: str, given: Mapping[str, int], slack: float) -> Iterator[str]:
    if given and max(given.values()) > (1 + slack) * min(given.values()):
        least, most = min(given.values()), max(given.values())
        few = [name for name, value in given.items() if value <= (1 + slack) * least]
        many = [name for name, value in given.items() if value >= most / (1 + slack)]
        yield (
            f"budgets differ: {what} go from {least:,} ({listed(few)}) to {most:,} "
            f"({listed(many)}); a difference in score may be one of budget"
        )


def without_effect(summary: Summary) -> Iterator[str]:
    """Options that changed nothing: different settings, the same answers everywhere."""
    same: dict[tuple[tuple[int, str], ...], list[Standing]] = {}
    for one in summary.standings:
        same.setdefault(tuple((t.seed, t.digest) for t in one.trials), []).append(one)
    for group in same.values():
        if len(group) > 1:
            yield (
                f"{', '.join(differing_keys(group))} changed nothing: "
                f"{listed([one.name for one in group], ' and ')} "
                "give the same predictions in every task and seed"
            )


def differing_keys(group: Sequence[Standing]) -> list[str]:
    keys = dict.fromkeys(chain.from_iterable(one.settings for one in group))
    values = {key: [one.settings.get(key) for one in group] for key in keys}
    found = [key for key, of in values.items() if any(value != of[0] for value in of)]
    return found or ["what differs between them"]


def winner_below_default(summary: Summary) -> Iterator[str]:
    """A search picks by the selection rows; what it picks must hold on the rows that judge."""
    default = next((one for one in summary.standings if one.name == summary.baseline), None)
    if default is None:
        return
    picked = {
        one.name: sum(values) / len(values)
        for one in summary.standings
        if one.tasks == default.tasks
        and (values := [t.selection for t in one.trials if t.selection is not None])
    }
    if not picked or (winner := max(picked, key=picked.__getitem__)) == default.name:
        return
    (best,) = (one for one in summary.standings if one.name == winner)
    if best.overall.mean < default.overall.mean:
        yield (
            f"the winner on the selection rows, {winner}, is worse than the default "
            f"{default.name} on the rows that judge: {best.overall.mean:.3f} against "
            f"{default.overall.mean:.3f}"
        )


def small_budgets(summary: Summary) -> Iterator[str]:
    trials = [trial for one in summary.standings for trial in one.trials]
    last = [one.name for one in summary.standings if any(t.is_best_last for t in one.trials)]
    if last:
        count = sum(trial.is_best_last for trial in trials)
        yield (
            f"{count} of {len(trials)} trials were best at their last evaluation "
            f"({listed(last)}): a larger budget may give a better model"
        )


def one_seed(summary: Summary) -> Iterator[str]:
    if summary.standings and all(len(one.trials) == 1 for one in summary.standings):
        yield (
            "one seed: differences are between these trained models; another seed may turn "
            "them round, so nothing is said of the plans"
        )


def unmeasured(summary: Summary) -> Iterator[str]:
    """Whose times are those of its trainings, and why."""
    names = [one.name for one in summary.standings if one.costs["source"] != PASS]
    if names:
        yield (
            f"no cost pass for {listed(names)}: the times are those of the trainings, which met "
            "the machine at different moments"
        )
    for one in summary.standings:
        yield from (f"{one.name}: {warning}" for warning in one.costs.get("warnings", ()))


def machine_noise(summary: Summary) -> Iterator[str]:
    """Equal work that took different times."""
    measured = {one.name: one.costs for one in summary.standings if one.costs.get("noise")}
    if measured:
        yield from noise_sentences(measured, max(of["noise"] for of in measured.values()))


def listed(names: Sequence[str], joint: str = ", ") -> str:
    """The first names and how many more there are."""
    more = len(names) - SHOWN
    return joint.join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


GUARDS: dict[str, Callable[[Summary], Iterator[str]]] = {
    "predictions": doubtful,
    "baseline": without_baseline,
    "seeds": missing_seeds,
    "one seed": one_seed,
    "budget": unequal_budgets,
    "no effect": without_effect,
    "search": winner_below_default,
    "last evaluation": small_budgets,
    "costs": unmeasured,
    "noise": machine_noise,
}
