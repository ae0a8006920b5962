"""What would make a comparison misleading: guards over `Results`, one sentence each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from mops.surveys.results.results import COST_PASS, LEFT_OUT, CandidateResult, Caveat, Results

SHOWN = 4  # names in a sentence
SLACK = 0.01  # relative difference in rows that is no caveat: some schedules draw the next task
BUSY = 0.2  # processes that waited longer than this fraction of the time were disturbed


def find_caveats(results: Results) -> list[Caveat]:
    """All caveats, the worst first."""
    return [Caveat(kind, text) for kind, guard in GUARDS.items() for text in guard(results)]


def left_out_trials(results: Results) -> Iterator[str]:
    for trial in results.in_state(LEFT_OUT):
        yield f"{trial.name} (trial {trial.id}) is left out of the comparison: {trial.reason}"


def other_references(results: Results) -> Iterator[str]:
    """Candidates that are not compared with the baseline."""
    if results.candidates and results.baseline not in results:
        yield (
            f"the baseline {results.baseline} has no finished trial: differences are to "
            f"{results.candidates[0].reference}"
        )
    for group in results.groups[1:]:
        members = [one for one in results.candidates if one.name in group.candidates]
        yield (
            f"{list_names([one.name for one in members])} learnt {', '.join(group.rows)} and not "
            f"{', '.join(results.groups[0].rows)}: judged apart, differences are to "
            f"{members[0].reference}"
        )


def missing_seeds(results: Results) -> Iterator[str]:
    why = {(trial.candidate, trial.seed): trial.reason for trial in results.missing}
    for one in (one for one in results.candidates if one.missing_seeds):
        reasons = (f"seed {s}: {why.get((one.name, s), 'unknown')}" for s in one.missing_seeds)
        planned = len(one.trials) + len(one.missing_seeds)
        yield f"{one.name} has {len(one.trials)} of {planned} seeds; {'; '.join(reasons)}"


def single_seed(results: Results) -> Iterator[str]:
    if results.candidates and all(len(one.trials) == 1 for one in results.candidates):
        yield (
            "one seed: differences are between these trained models; another seed may reverse "
            "them, so they do not compare the plans"
        )


def unequal_budgets(results: Results) -> Iterator[str]:
    """Candidates that were given more steps, or more rows of a task, than others."""
    infos = {one.name: [t.train_info for t in one.trials] for one in results.candidates}
    steps = {name: max(info.planned_steps for info in infos[name]) for name in infos}
    yield from compare_budgets("training steps", steps, 0)
    for task in results.tasks:
        rows = {
            one.name: max(info.tasks[task].examples for info in complete)
            for one in results.candidates
            if task in one.tasks
            and (complete := [info for info in infos[one.name] if not info.stopped_early])
        }
        yield from compare_budgets(f"training rows of {task}", rows, SLACK)


def starved_tasks(results: Results) -> Iterator[str]:
    """Tasks whose scores say little about plans, because they have hardly been trained."""
    for task in results.tasks:
        starved = {
            one.name: own
            for one in results.candidates
            for trial in one.trials
            if task in one.tasks and (own := trial.train_info.tasks[task]).is_starved
        }
        if starved:
            least, most = (pick(own.passes for own in starved.values()) for pick in (min, max))
            span = " to ".join(dict.fromkeys((f"{least:.2f}", f"{most:.2f}")))
            yield (
                f"{task} was hardly trained ({span} passes over its rows) in "
                f"{list_names(list(starved))}: a larger budget may change its scores and ranks"
            )


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
        keys = dict.fromkeys(key for one in group for key in one.settings)
        first = group[0].settings
        changed = [k for k in keys if any(one.settings.get(k) != first.get(k) for one in group)]
        yield (
            f"{', '.join(changed) or 'the difference between them'} changed nothing: "
            f"{list_names([one.name for one in group], ' and ')} "
            "give the same predictions in every task and seed"
        )


def winner_below_default(results: Results) -> Iterator[str]:
    """The winner by the scores that chose the best states must hold on the rows that judge."""
    if results.baseline not in results:
        return
    default = results[results.baseline]
    picked = {
        one.name: fmean(values)
        for one in results.candidates
        if one.tasks == default.tasks
        and (values := [t.train_info.best_score for t in one.trials if t.train_info.best_score])
    }
    winner = results[max(picked, key=picked.__getitem__)] if picked else default
    difference = winner.against.get("overall")
    if difference and difference.is_significant and difference.mean < 0:
        yield (
            f"{winner.name} has the best scores at the evaluations that choose a state, but is "
            f"significantly worse than {default.name} on the rows that judge: {difference.in_words}"
        )


def unsuitable_budgets(results: Results) -> Iterator[str]:
    """Trainings that were still rising at their end, or that fell from the start."""
    trials = [(one.name, t.train_info) for one in results.candidates for t in one.trials]
    reasons = {
        "last": "a larger budget may give a better model",
        "first": "the learning rate is too high, or the data are too few",
    }
    for which, why in reasons.items():
        if names := [name for name, info in trials if getattr(info, f"is_best_{which}")]:
            yield (
                f"{len(names)} of {len(trials)} trials were best at their {which} evaluation "
                f"({list_names(list(dict.fromkeys(names)))}): {why}"
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
    """Equal work whose step times differ by more than the spread of the baseline's own time."""
    measured = [one for one in results.candidates if one.costs.noise and one.costs.step_seconds]
    noise = max((one.costs.noise or 0.0 for one in measured), default=0.0)
    if (waited := max((one.costs.waited for one in measured), default=0.0)) > BUSY:
        yield (
            f"other programs used this machine while costs were measured ({waited:.0%} of the "
            "time): times are noisy; delete costs.json and run the survey again to repeat them"
        )
    groups: list[list[CandidateResult]] = []
    for one in sorted(measured, key=lambda one: one.costs.step_seconds):
        home = next((group for group in groups if one.does_work_of(group[0])), None)
        groups.append([one]) if home is None else home.append(one)
    for group in groups:
        difference = group[-1].costs.step_seconds / group[0].costs.step_seconds - 1
        if difference > noise:
            names = " and ".join([", ".join(one.name for one in group[:-1]), group[-1].name])
            yield (
                f"{names} do the same work; their step times differ by {difference:.0%}: that is "
                "this machine's noise"
            )


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
    "starved": starved_tasks,
    "no effect": without_effect,
    "search": winner_below_default,
    "convergence": unsuitable_budgets,
    "costs": unmeasured_costs,
    "noise": timing_noise,
}
