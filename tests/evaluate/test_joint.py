"""The joint estimate: sums by hand, classical tests as special cases, and the edges."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from building import THREE_TASKS
from mops.evaluate.joint import Joint, estimate_joint
from mops.evaluate.statistics import mean_covariance, row_covariance, row_noise, run_noise, two_way

PARAPHRASE = THREE_TASKS[1]


def runs(values_CS: object, seeds: tuple[int, ...] | None = None) -> dict[str, dict[int, float]]:
    """plan0, plan1, ...: each with one score for each seed."""
    rows = [list(map(float, row)) for row in values_CS]  # type: ignore[attr-defined]
    return {
        f"plan{n}": dict(zip(seeds or range(len(row)), row, strict=True))
        for n, row in enumerate(rows)
    }


def joint(values: dict[str, dict[int, float]], shared: float = 0.0, within: float = 0.0) -> Joint:
    """Rows that suit a plan have the variance `shared`, those that suit a run `within`."""
    count = len(values)
    return estimate_joint(values, shared * np.eye(count), np.full(count, within))


# ------------------------------------------------------------------ the estimate


def test_without_noise_of_rows_two_plans_are_the_paired_test() -> None:
    values_CS = np.array([[0.50, 0.53, 0.49, 0.52], [0.55, 0.56, 0.53, 0.57]])
    estimate = joint(runs(values_CS))
    wanted = stats.ttest_rel(values_CS[1], values_CS[0])
    mean, stderr = estimate.mean_C[1] - estimate.mean_C[0], estimate.pooled_CC[1, 0]
    assert estimate.freedom == pytest.approx(wanted.df)
    assert mean / stderr == pytest.approx(wanted.statistic)
    difference = estimate.against("plan0")["plan1"]
    assert difference.p == pytest.approx(wanted.pvalue, abs=0.005)
    interval = wanted.confidence_interval(0.95)
    assert difference.low == pytest.approx(interval.low, abs=0.002)
    assert difference.is_significant == (wanted.pvalue < 0.05)


def test_noise_of_rows_that_contradicts_itself_gives_a_covariance() -> None:
    """Estimated pair by pair, it may have negative eigenvalues."""
    shared_CC = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    values = runs([[0.5, 0.5], [0.6, 0.6], [0.7, 0.7]])
    assert np.linalg.eigvalsh(shared_CC)[0] < -0.5
    assert (
        np.linalg.eigvalsh(estimate_joint(values, shared_CC, np.zeros(3)).covariance_CC)[0] > -1e-9
    )


def test_pooled_over_many_plans_it_is_the_two_way_analysis_of_variance() -> None:
    draw = np.random.default_rng(1)
    values_CS = draw.normal(size=(5, 4)) + 3 * draw.normal(size=4)
    residual, block, freedom, own = two_way(runs(values_CS))
    left = values_CS - values_CS.mean(1, keepdims=True) - values_CS.mean(0) + values_CS.mean()
    assert freedom == 12 and residual == pytest.approx((left**2).sum() / 12)
    between = 5 * ((values_CS.mean(0) - values_CS.mean()) ** 2).sum() / 3
    assert block == pytest.approx((between - residual) / 5)
    assert own["plan0"] == pytest.approx((left[0] ** 2).sum() / 12 * 5)


def test_the_sum_by_hand() -> None:
    """Rows that suit a plan 0.25; runs: two seeds whose residuals are +-1 and -+1, so 4 / 1."""
    estimate = joint(runs([[0.0, 4.0], [7.0, 7.0]]), shared=0.25)
    residual = 4 * 1.0**2 / 1
    assert np.diag(estimate.covariance_CC) == pytest.approx(
        [0.25 + residual / 2 + estimate_block(estimate)] * 2
    )
    assert estimate.errors_CC[0, 1] ** 2 == pytest.approx(2 * (0.25 + residual / 2))
    known = (0.25 + residual / 2) / (residual / 2)
    assert estimate.freedom == pytest.approx(known**2)


def estimate_block(estimate: Joint) -> float:
    return float(estimate.covariance_CC[0, 1])


def test_a_seed_that_moves_all_plans_alike_does_not_count() -> None:
    draw = np.random.default_rng(4)
    values_CS = 0.01 * draw.normal(size=(6, 3))
    moved = values_CS + 0.5 * np.array([1, -2, 0.3])
    plain, shifted = joint(runs(values_CS)), joint(runs(moved))
    assert shifted.errors_CC == pytest.approx(plain.errors_CC)
    assert shifted.covariance_CC[0, 1] > 0.01  # but the scores themselves are less certain


def test_rows_are_a_floor() -> None:
    """Two seeds may agree by chance; the rows say how little is known."""
    estimate = joint(runs([[3.0, 3.0], [4.0, 4.0]]), within=1.0)
    assert estimate.errors_CC[0, 1] == pytest.approx(1)  # (1 + 1) / 2 seeds


def test_more_seeds_of_some_plans() -> None:
    """The variance of runs is pooled; a plan with one seed has it too."""
    draw = np.random.default_rng(3)
    values = runs(draw.normal(size=(6, 4)))
    values["late"] = {0: 0.3}
    estimate = joint(values)
    assert estimate.seeds_C.tolist() == [4] * 6 + [1]
    assert estimate.freedom == pytest.approx(15)  # (6 - 1) (4 - 1): one run adds none
    assert estimate.run_C[-1] == pytest.approx(two_way(values)[0])
    assert estimate.errors_CC[0, -1] > estimate.errors_CC[0, 1]


def test_a_plan_that_scatters_far_more_is_not_pooled_and_does_not_hide_the_others() -> None:
    draw = np.random.default_rng(3)
    values_CS = draw.normal(size=(9, 4))
    values_CS[7:] *= [[40], [90]]
    values_CS[0] += 8
    estimate = joint(runs(values_CS))
    assert (estimate.run_C[7:] > 200).all() and (estimate.run_C[:7] < 6).all()
    best = estimate.best_set()
    assert "plan0" in best and not {"plan1", "plan2", "plan3"} & set(best)
    assert {"plan7", "plan8"} <= set(best)  # too uncertain to be dropped


def test_no_difference_is_tested_with_less_than_its_own_noise_of_runs() -> None:
    """Plan 1 scatters more than the others, yet not so much that it is left out of the pool."""
    values_CS = np.array([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.2, 0.3, 0.1]] * 2)
    values_CS[1] = [0.4, 0.0, 0.2]
    noise = run_noise(runs(values_CS), np.zeros(6))
    assert (noise.variance_C == noise.variance_C[0]).all()
    assert noise.own_C[1] == noise.own_C.max() > noise.variance_C[0]
    estimate = joint(runs(values_CS))
    assert estimate.errors_CC[0, 1] ** 2 == pytest.approx((noise.own_C[0] + noise.own_C[1]) / 3)
    assert estimate.errors_CC[0, 2] ** 2 == pytest.approx(2 * noise.variance_C[0] / 3)


def test_a_wild_seed_and_one_plan_alone() -> None:
    alone = joint(runs([[0.1, 0.3, 0.2]]))
    assert alone.estimate("plan0").stderr == pytest.approx(0.1 / math.sqrt(3))
    assert alone.best_set() == ("plan0",) and alone.against("plan0") == {}


# ------------------------------------------------------------------ rows


def test_noise_of_rows_from_predictions() -> None:
    """Two plans with two seeds; accuracies, whose covariance has a closed form."""
    draw = np.random.default_rng(7)
    targets = draw.integers(0, 2, 500).astype(float)
    hard = draw.random(500) < 0.3  # for everybody
    answers: dict[str, dict[int, np.ndarray]] = {}
    for name in "ab":
        taste = draw.random(500) < 0.1  # for this plan
        answers[name] = {}
        for seed in (1, 2):
            is_wrong = hard | taste | (draw.random(500) < 0.1)
            answers[name][seed] = np.where(is_wrong, 1 - targets, targets)
    noise = row_noise(partial(row_covariance, PARAPHRASE, targets), answers)
    right = {
        (n, s): (y == targets).astype(float) for n, own in answers.items() for s, y in own.items()
    }
    covariance = np.cov(np.stack(list(right.values()))) / 500
    assert noise.shared[0][0] == pytest.approx(covariance[0, 1], rel=0.15)
    apart = (covariance[0, 3] + covariance[1, 2]) / 2
    assert noise.shared[0][1] == noise.shared[1][0] == pytest.approx(apart, rel=0.2)
    own = (covariance[0, 0] + covariance[1, 1]) / 2 - covariance[0, 1]
    assert noise.within[0] == pytest.approx(own, rel=0.2)


def test_noise_of_a_mean_over_rows_is_exact() -> None:
    """The same parts as by resampling, from the covariance of the rows' values."""
    draw = np.random.default_rng(9)
    taste = {name: draw.random(300) for name in "ab"}
    values = {n: {s: (taste[n] + draw.random(300)) / 2 for s in (1, 2)} for n in "ab"}
    noise = row_noise(mean_covariance, values)
    covariance = np.cov(np.stack([v for own in values.values() for v in own.values()])) / 300
    assert noise.shared[0][0] == pytest.approx(covariance[0, 1])
    own = (covariance[0, 0] + covariance[1, 1]) / 2 - covariance[0, 1]
    assert noise.within[0] == pytest.approx(own)


def test_one_seed_each_has_the_error_of_rows_alone() -> None:
    draw = np.random.default_rng(8)
    targets = draw.integers(0, 2, 400).astype(float)
    answers = {
        n: {1: np.where(draw.random(400) < skill, targets, 1 - targets)}
        for n, skill in (("a", 0.6), ("b", 0.9))
    }
    noise = row_noise(partial(row_covariance, PARAPHRASE, targets), answers)
    values = {n: {1: float(np.mean(own[1] == targets))} for n, own in answers.items()}
    estimate = estimate_joint(values, *noise.scaled(1.0))
    assert noise.within == (0.0, 0.0) and math.isinf(estimate.freedom)
    difference = estimate.against("a")["b"]
    assert difference.p < 0.001 and not difference.is_significant and difference.seeds == 1
    assert estimate.best_set() == ("a", "b")  # one seed compares models, not plans


# ------------------------------------------------------------------ families


@pytest.mark.parametrize(("lead", "is_kept"), [(2.50, True), (2.64, False)])
def test_the_critical_value_of_the_best_set_is_hsus(lead: float, is_kept: bool) -> None:
    """Eight plans, equal errors, 16 degrees: that of Dunnett's one-sided test, 2.57."""
    estimate = replace(
        joint(runs(np.zeros((8, 3)))), covariance_CC=np.eye(8), freedom=16.0, mean_C=np.zeros(8)
    )
    assert estimate.best_set() == estimate.names
    ahead = replace(estimate, mean_C=np.array([lead * math.sqrt(2), *[0.0] * 7]))
    assert ("plan5" in ahead.best_set()) == is_kept


def test_dunnetts_p_is_scipys() -> None:
    draw = np.random.default_rng(5)
    samples = [draw.normal(size=6) + shift for shift in (0, 0.4, 1.2, 2.0)]
    wanted = stats.dunnett(*samples[1:], control=samples[0], random_state=0)
    values = {
        f"plan{n}": {10 * n + s: float(v) for s, v in enumerate(own)}  # no seed in common
        for n, own in enumerate(samples)
    }
    differences = joint(values).against("plan0").values()
    p = [difference.p for difference in differences]
    assert p[0] > 0.3 and p[2] < 0.05
    assert np.argsort(p).tolist() == np.argsort(wanted.pvalue).tolist()


def test_the_interval_is_the_test() -> None:
    draw = np.random.default_rng(6)
    estimate = joint(runs(draw.normal(size=(8, 3)) + np.arange(8)[:, None]))
    inside = set()
    for difference in estimate.against("plan0").values():
        is_inside = difference.low <= 0 <= difference.high
        assert is_inside == (difference.p >= 0.05) == (not difference.is_significant)
        inside.add(is_inside)
    assert inside == {True, False}


def test_plans_without_any_noise() -> None:
    estimate = joint(runs([[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]]))
    assert estimate.best_set() == ("plan2",)
    differences = estimate.against("plan0")
    assert differences["plan1"].p == 1 and not differences["plan1"].is_significant
    assert differences["plan2"].p == 0 and differences["plan2"].is_significant


def test_the_same_bits_every_time() -> None:
    values = runs(np.random.default_rng(1).normal(size=(5, 3)))
    assert joint(values).against("plan0") == joint(values).against("plan0")
