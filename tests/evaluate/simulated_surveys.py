"""Surveys whose truth is known: plans with a skill, runs that scatter, rows that are hard for all.

A run has row i right with chance `MEAN + skill + run - hard_i + taste_ci`, where `run` is drawn for
each run, `hard_i` for each row, and `taste_ci` for each row and plan (identical plans have none).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mops.evaluate.statistics import ScoredRuns

ROWS = 500
MEAN, HARD = 0.45, 0.1
ROW_NOISE = (MEAN * (1 - MEAN) / ROWS) ** 0.5  # standard error of one run's score over rows


@dataclass(frozen=True)
class World:
    plans: int
    seeds: int
    run_noise: float  # in units of ROW_NOISE
    taste: float = 0.0

    def survey(self, draw: np.random.Generator, skill: float = 0.0) -> np.ndarray:
        """[plan, seed, row]: is it right? Plan 1 is better than the others by `skill`."""
        chance = np.full((self.plans, self.seeds, ROWS), MEAN)
        chance[1] += skill
        chance += self.run_noise * ROW_NOISE * draw.normal(size=(self.plans, self.seeds, 1))
        chance -= draw.uniform(-HARD, HARD, ROWS)
        chance += self.taste * draw.choice([-1, 1], (self.plans, 1, ROWS))
        return draw.random(chance.shape) < chance

    def surveys(self, count: int, name: int, skill: float = 0.0) -> list[np.ndarray]:
        draw = np.random.default_rng([name, self.plans, self.seeds, round(100 * self.run_noise)])
        return [self.survey(draw, skill) for _ in range(count)]

    def true_error(self) -> float:
        """Of the mean difference of two plans: all variances are known (but for the rare chance
        outside 0 to 1); a row that is right with chance p has the variance p (1 - p)."""
        run = (self.run_noise * ROW_NOISE) ** 2
        row = MEAN * (1 - MEAN) - HARD**2 / 3 - self.taste**2 - run
        return float((2 * (run + row / ROWS) / self.seeds + 2 * self.taste**2 / ROWS) ** 0.5)


def scored(right: np.ndarray) -> ScoredRuns:
    """Accuracies of all runs; the covariance is what endlessly many resamples would give."""
    plans, seeds, rows = right.shape
    right_RN = right.reshape(-1, rows).astype(float)
    at = {f"plan{p}": {s: p * seeds + s for s in range(seeds)} for p in range(plans)}
    return ScoredRuns(at, right_RN.mean(1), np.cov(right_RN, bias=True) / rows)
