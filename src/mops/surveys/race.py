"""A race: a survey that spends its time on the candidates between which it has to decide. No torch.

Sequential halving over seeds (Karnin, Koren and Somekh 2013): every candidate is trained with one
seed, then the better half with new seeds, and so on, until the choice is settled or the time is
spent. If there is not even time for about 1.5 trainings of each candidate, a first pass trains all
of them to a quarter of their steps, the better half to half of their steps, and the best quarter
to the end; each training continues where it stopped.

What was decided is in survey.yaml, round by round, so a race that was killed goes on as it would
have: `next_round` depends on the rounds, the scores and the measured times alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mops.evaluate.joint import Joint
from mops.evaluate.posterior import SETTLED, posterior
from mops.surveys.ledger import Round

RUNGS = (0.25, 0.5, 1.0)  # fractions of the steps at which a short race compares
SCARCE = 1.5  # trainings of each candidate: with less time there are rungs
FEWEST = 3  # candidates that are trained to the end
LEAST_FREEDOM = 4  # degrees of freedom before a race may end
Choose = Callable[[Joint], str]  # the candidate that would be recommended now


@dataclass(frozen=True)
class Standing:
    """What a race knows between two rounds."""

    costs: Mapping[str, float]  # candidate -> seconds of one training
    left: float  # seconds
    baseline: str
    rounds: Sequence[Round]
    scores: Mapping[str, float]  # candidate -> best validation score so far, in the rungs
    joint: Joint | None  # of all finished trainings; None before the first

    @property
    def alive(self) -> tuple[str, ...]:
        return self.rounds[-1].candidates if self.rounds else tuple(self.costs)

    def seconds(self, names: Sequence[str]) -> float:
        return sum(self.costs[name] for name in names)


def next_round(now: Standing, choose: Choose, worth: float) -> Round | None:
    """Who is trained next, with which seeds and why; None: the race is over."""
    if not now.rounds:
        return first_round(now)
    if (until := now.rounds[-1].until) < 1.0:
        return next_rung(now, RUNGS[RUNGS.index(until) + 1])
    if now.joint is None:  # every training has failed
        return None
    chances = posterior(now.joint)
    near, means = chances.within(worth), chances.shrunken
    chosen = choose(now.joint)
    full = [one for one in now.rounds if one.until == 1.0]
    is_known = now.joint.has_run_noise and now.joint.freedom >= LEAST_FREEDOM
    if len(full) > 1 and is_known and near[chosen] >= SETTLED:
        return None
    rounds_left = max(1, math.ceil(math.log2(max(2, len(now.costs)))) - len(full))
    ranked = sorted((name for name in now.alive if name in means), key=lambda name: -means[name])
    kept = {chosen, *ranked[: max(2, math.ceil(len(ranked) / 2))]}
    if rounds_left > 1:  # the last rounds are for those in the lead
        kept.add(now.baseline)
    names = tuple(name for name in now.costs if name in kept)
    if now.seconds(names) > now.left:
        names = tuple(dict.fromkeys((ranked[0], chosen, *ranked[1:])))[:2]
    if now.seconds(names) > now.left:
        return None
    count = max(1, int(now.left / (rounds_left * now.seconds(names))))
    dropped = [name for name in now.alive if name not in names]
    why = f"{chosen} is within {worth:g} of the best with {near[chosen]:.0%} probability"
    why += f"; dropped: {', '.join(dropped)}" if dropped else ""
    return Round(candidates=names, seeds=new_seeds(now, count), why=why)


def first_round(now: Standing) -> Round:
    """All candidates: to the end, or to the first rung if time is scarce."""
    names = tuple(now.costs)
    if now.left < SCARCE * now.seconds(names) and len(names) > FEWEST:
        why = "time is scarce: all candidates to a quarter of their steps"
        return Round(candidates=names, seeds=(1,), until=RUNGS[0], why=why)
    rounds = max(1, math.ceil(math.log2(max(2, len(names)))))
    count = max(1, int(now.left / (rounds * now.seconds(names))))
    return Round(candidates=names, seeds=new_seeds(now, count), why="all candidates")


def next_rung(now: Standing, until: float) -> Round:
    """The better half of the candidates goes on; the baseline always does."""
    others = sorted(now.alive, key=lambda name: -now.scores[name])
    kept = {*others[: max(FEWEST, math.ceil(len(others) / 2))], now.baseline}
    names = tuple(name for name in now.alive if name in kept)
    dropped = [name for name in now.alive if name not in kept]
    why = f"to {until:.0%} of the steps" if until < 1 else "to the end"
    why += f"; dropped: {', '.join(dropped)}" if dropped else ""
    return Round(candidates=names, seeds=(1,), until=until, why=why)


def new_seeds(now: Standing, count: int) -> tuple[int, ...]:
    first = 1 + max((seed for one in now.rounds for seed in one.seeds), default=0)
    return tuple(range(first, first + count))
