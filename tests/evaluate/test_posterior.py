"""The posterior of the candidates' means: closed forms, shrinkage, and the number of seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mops.evaluate.joint import Joint
from mops.evaluate.posterior import given_tau, posterior, seeds_to_settle


def made(means: list[float], stderr: float = 0.005, seeds: int = 2, freedom: float = 30) -> Joint:
    count = len(means)
    return Joint(
        names=tuple(f"plan{n}" for n in range(count)),
        mean_C=np.array(means),
        covariance_CC=stderr**2 * np.eye(count),
        freedom=freedom,
        run_C=np.full(count, seeds * stderr**2),
        own_C=np.zeros(count),
        seeds_C=np.full(count, seeds),
        spread=(stderr * math.sqrt(seeds),) * count,
    )


def test_given_tau_it_is_the_conditional_normal_distribution() -> None:
    """With equal errors: each mean moves to the common one by tau^2 / (tau^2 + s^2)."""
    mean_C, tau, s = np.array([0.1, 0.3, 0.8]), 0.2, 0.1
    centre_C, spread_CC, _ = given_tau(mean_C, s**2 * np.eye(3), tau)
    kept = tau**2 / (tau**2 + s**2)
    assert centre_C == pytest.approx(0.4 + kept * (mean_C - 0.4))
    common = (tau**2 + s**2) / 3  # variance of the common mean
    wanted = tau**2 * (1 - kept) * np.eye(3) + (1 - kept) ** 2 * common
    assert spread_CC == pytest.approx(wanted)


def test_the_likelihood_prefers_the_spread_that_is_there() -> None:
    near, far = np.array([0.5, 0.501, 0.499]), np.array([0.4, 0.5, 0.6])
    for mean_C, wanted in ((near, 0.001), (far, 0.1)):
        logs = {tau: given_tau(mean_C, 1e-4 * np.eye(3), tau)[2] for tau in (0.001, 0.1)}
        assert max(logs, key=logs.__getitem__) == wanted


def test_a_clear_winner_and_one_close_behind() -> None:
    chances = posterior(made([0.70, 0.695, 0.60])).within(0.01)
    assert chances["plan0"] > 0.95 and 0.5 < chances["plan1"] < 0.95 and chances["plan2"] < 0.01
    regret = posterior(made([0.70, 0.695, 0.60])).regret()
    assert regret["plan0"] < 0.003 < regret["plan1"] < 0.01 < 0.09 < regret["plan2"] < 0.11


def test_noisy_means_are_shrunk_and_nothing_is_sure() -> None:
    noisy = posterior(made([0.70, 0.69, 0.68, 0.67], stderr=0.02))
    values = list(noisy.shrunken.values())
    assert values == sorted(values, reverse=True) and values[0] - values[-1] < 0.02
    assert max(noisy.within(0.001).values()) < 0.8


def test_fewer_degrees_of_freedom_are_less_sure() -> None:
    sure, unsure = (
        posterior(made([0.70, 0.68], freedom=freedom)).within(0.0)["plan0"] for freedom in (50, 2)
    )
    assert unsure < sure


def test_some_of_the_candidates() -> None:
    chances = posterior(made([0.9, 0.70, 0.60]).among(["plan1", "plan2"])).within(0.01)
    assert list(chances) == ["plan1", "plan2"] and chances["plan1"] > 0.99


def test_more_noise_needs_more_seeds() -> None:
    near = made([0.70, 0.69], stderr=0.008)
    few = seeds_to_settle(near, near.names, 0.001)
    noisy = made([0.70, 0.69], stderr=0.016)
    many = seeds_to_settle(noisy, noisy.names, 0.001)
    assert few is not None and 1 <= few < (many or 99)
    settled = made([0.70, 0.50])
    assert seeds_to_settle(settled, settled.names, 0.01) == 1
