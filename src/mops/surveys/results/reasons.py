"""Why a decision was made, in words with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mops.surveys.results.standings import Standing, Summary
from mops.surveys.results.weighing import Weighed

CONSERVATIVE = (
    "weighted scores are judged from the task scores alone, as if each candidate had answered "
    "other rows: ties may be wider than they are"
)
ONE_SEED = (
    "one seed: this is a choice between these trained models, told apart by their rows; of the "
    "plans it says nothing"
)


def reason_for(
    summary: Summary,
    chosen: Standing,
    tied: Sequence[Standing],
    scores: Mapping[str, Weighed],
    why: str,
) -> str:
    """One sentence; `scores` has all who could have been chosen."""

    def score(name: str) -> str:
        return f"{name} with {scores[name].mean:.3f} ± {scores[name].stderr:.3f}"

    start = "do not share: use" if chosen.name == summary.single else "use"
    start = f"{start} {score(chosen.name)} over {counted(len(chosen.trials), 'seed')}"
    if len(tied) > 1:
        best = max((one.name for one in tied), key=lambda name: scores[name].mean)
        is_best = best == chosen.name
        place = "has the highest mean" if is_best else f"cannot be told from {score(best)}"
        cost = f"has {why}" if why else "costs no more than any"
        return f"{start}: it {place} and {cost} of the {len(tied)} that are tied"
    rest = [name for name in scores if name != chosen.name]
    if not rest:
        return f"{start}: no other candidate is left"
    second = max(rest, key=lambda name: scores[name].mean)
    doubt = "beyond doubt" if len(chosen.trials) > 1 else "on these rows"
    return f"{start}: it is better {doubt} than the next, {score(second)}"


def counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def notes(
    summary: Summary, chosen: Standing | None, weights: Mapping[str, float] | None
) -> Iterator[str]:
    """What to know beside the decision."""
    if weights:
        yield CONSERVATIVE
    if max(len(one.trials) for one in summary.standings) == 1:
        yield ONE_SEED
    if chosen and (found := chosen.against.get("overall")):
        yield (
            f"against the baseline {chosen.reference}: overall {found.mean:+.3f}, 95 % interval "
            f"{found.low:+.3f} to {found.high:+.3f}"
        )
    for task, gain in (chosen.gains if chosen else {}).items():
        if gain.is_real and gain.mean < 0:
            yield (
                f"{task} loses against a model of its own ({summary.single}): {gain.mean:+.3f}, "
                f"95 % interval {gain.low:+.3f} to {gain.high:+.3f}"
            )
    if summary.waiting:
        yield f"{counted(len(summary.waiting), 'trial')} not finished: this may change"
