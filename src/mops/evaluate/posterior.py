"""How likely each candidate is close to the best: the posterior of the candidates' true means.

True means scatter around a common one: mu_c ~ N(g, tau^2), with a flat prior for g and a
half-normal prior for tau. So few seeds shrink the means towards each other, and the largest of many
noisy means is not taken at its word. Given tau, with S the covariance of the observed means m:

    V = S + tau^2 I     q = 1' V^-1 1     g = 1' V^-1 m / q     K = tau^2 V^-1     k = (I - K) 1
    mu | m, tau  ~  N( g + K (m - g),  tau^2 (I - K) + k k' / q )

Each tau of a grid weighs by its marginal likelihood. The draws are scaled like Student's t, because
S is itself estimated. Shapes: C candidates, D draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mops.data.schedule import generator
from mops.evaluate.joint import Joint, student_noise
from mops.evaluate.metrics import Values

DRAWS = 4000
RUN_SPREAD = 0.01  # of single runs, assumed where one seed each does not show it
SPREAD = 0.02  # scale of the prior of tau: how far apart plans usually are
TAUS = np.geomspace(5e-4, 0.2, 24)
MORE_SEEDS = (1, 2, 3, 4, 6, 8, 12, 16)  # numbers that `seeds_to_settle` tries
SIMULATED = 200  # outcomes of these
SETTLED = 0.9  # probability at which a decision counts as settled, and a race ends


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of the true means of all candidates."""

    names: tuple[str, ...]
    shrunken: dict[str, float]  # candidate -> its mean
    draws_DC: Values

    def within(self, worth: float) -> dict[str, float]:
        """P(best - candidate <= worth), by candidate."""
        behind_DC = self.draws_DC.max(1, keepdims=True) - self.draws_DC
        return dict(zip(self.names, (behind_DC <= worth).mean(0).tolist(), strict=True))

    def any_within(self, names: Sequence[str], worth: float) -> float:
        """P(best - the best of some candidates <= worth)."""
        own_D = self.draws_DC[:, [self.names.index(name) for name in names]].max(1)
        return float(np.mean(self.draws_DC.max(1) - own_D <= worth))

    def regret(self) -> dict[str, float]:
        """E[best - candidate]: the score that choosing it is expected to lose."""
        behind_DC = self.draws_DC.max(1, keepdims=True) - self.draws_DC
        return dict(zip(self.names, behind_DC.mean(0).tolist(), strict=True))


def posterior(joint: Joint, draws: int = DRAWS) -> Posterior:
    noise_CC = joint.covariance_CC
    if not joint.has_run_noise:
        noise_CC = noise_CC + RUN_SPREAD**2 * np.eye(len(joint.names))
    given = [given_tau(joint.mean_C, noise_CC, float(tau)) for tau in TAUS]
    logs = np.array([log for _, _, log in given]) - 0.5 * (TAUS / SPREAD) ** 2 + np.log(TAUS)
    weights = np.exp(logs - logs.max())  # x tau: the grid is geometric
    weights /= weights.sum()
    draw = generator(0, "posterior", *joint.names)
    counts = draw.multinomial(draws, weights)
    parts = [
        centre_C + student_noise(draw, spread_CC, joint.freedom, count)
        for count, (centre_C, spread_CC, _) in zip(counts, given, strict=True)
    ]
    centre_C = np.sum([w * c for w, (c, _, _) in zip(weights, given, strict=True)], axis=0)
    shrunken = dict(zip(joint.names, centre_C.tolist(), strict=True))
    return Posterior(joint.names, shrunken, np.concatenate(parts))


def given_tau(mean_C: Values, covariance_CC: Values, tau: float) -> tuple[Values, Values, float]:
    """Mean and covariance of the true means, and the log marginal likelihood of tau."""
    ones_C, identity_CC = np.ones(len(mean_C)), np.eye(len(mean_C))
    total_CC = covariance_CC + tau**2 * identity_CC
    inverse_CC = np.linalg.inv(total_CC)
    precision = float(ones_C @ inverse_CC @ ones_C)
    common = float(ones_C @ inverse_CC @ mean_C) / precision
    gain_CC = tau**2 * inverse_CC
    rest_C = (identity_CC - gain_CC) @ ones_C
    spread_CC = tau**2 * (identity_CC - gain_CC) + np.outer(rest_C, rest_C) / precision
    off_C = mean_C - common
    log = -0.5 * (np.linalg.slogdet(total_CC)[1] + math.log(precision) + off_C @ inverse_CC @ off_C)
    return common + gain_CC @ off_C, spread_CC, float(log)


def seeds_to_settle(
    joint: Joint, contenders: Sequence[str], worth: float, sure: float = SETTLED
) -> int | None:
    """How many more seeds of the contenders would probably settle which one is the best.

    Settled: one of them is within `worth` of the best with probability `sure`. This must be so in
    at least half of the simulated outcomes; None if even the largest number is too small. The
    true means are drawn from the posterior, the scores of new seeds around them.
    """
    field = joint.among(contenders)
    truths_DC = posterior(field, draws=SIMULATED).draws_DC
    draw = generator(0, "more seeds", *contenders)
    for more in MORE_SEEDS:
        seeds_C = field.seeds_C + more
        saved_C = field.run_C / field.seeds_C - field.run_C / seeds_C
        covariance_CC = field.covariance_CC - np.diag(saved_C)
        settled = 0
        for truth_C in truths_DC:
            new_C = truth_C + draw.standard_normal(len(seeds_C)) * np.sqrt(field.run_C / more)
            mean_C = (field.seeds_C * field.mean_C + more * new_C) / seeds_C
            future = replace(field, mean_C=mean_C, covariance_CC=covariance_CC, seeds_C=seeds_C)
            within = posterior(future, draws=SIMULATED).within(worth)
            settled += max(within.values()) >= sure
        if settled >= SIMULATED / 2:
            return more
    return None
