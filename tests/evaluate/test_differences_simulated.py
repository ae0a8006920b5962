"""Differences by simulation: how often chance is called a difference, and a true one is found.

The allowance of a share of n surveys is two of its own standard deviations, sqrt(p (1 - p) / n).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from simulated_surveys import MEAN, World, scored

from building import THREE_TASKS
from mops.evaluate.compare import compare, different_pairs, tie_groups
from mops.evaluate.statistics import LEVEL, ScoredRuns, holm, off_zero

pytestmark = pytest.mark.slow
SURVEYS = 200
NOISE = [0.2, 1.0, 3.0]  # between runs, in units of the noise between rows


def is_significant(right: np.ndarray) -> np.ndarray:
    """For each plan but the first: is it declared different from the first?"""
    of = scored(right)
    means = [of.mean(f"plan{plan}", "plan0") for plan in range(1, len(right))]
    return holm([off_zero(mean.value, mean.stderr, mean.freedom) for mean in means]) < LEVEL


def share(world: World, surveys: int, errors: float = 0.0) -> float:
    """Of surveys that find plan 1, which is better by so many true standard errors."""
    made = world.surveys(surveys, 2, errors * world.true_error())
    return float(np.mean([is_significant(right)[0] for right in made]))


def allowance(surveys: int, of: float = LEVEL) -> float:
    return 2 * float(np.sqrt(of * (1 - of) / surveys))


def test_identical_plans_are_rarely_different() -> None:
    """Any of eight, for few and many seeds, little and much noise between runs: at most 5 %."""
    found = {
        (seeds, noise): np.mean(
            [is_significant(r).any() for r in World(8, seeds, noise).surveys(SURVEYS, 1)]
        )
        for seeds in (2, 3, 5)
        for noise in NOISE
    }
    assert max(found.values()) <= LEVEL + allowance(SURVEYS), found
    assert np.mean(list(found.values())) <= LEVEL


def test_two_noisy_plans_with_other_strengths_and_two_seeds_are_the_liberal_corner() -> None:
    """Satterthwaite's freedom is itself estimated, here from 2 degrees: about 7 % instead of 5."""
    found = [is_significant(r).any() for r in World(2, 2, 3.0, taste=0.25).surveys(500, 1)]
    assert np.mean(found) <= 0.1


@pytest.mark.parametrize("seeds", [3, 5])
def test_two_plans_with_other_strengths_and_equal_skill_are_rarely_different(seeds: int) -> None:
    found = [is_significant(r).any() for r in World(2, seeds, 1.0, taste=0.25).surveys(500, 1)]
    assert np.mean(found) <= LEVEL + allowance(500)


def test_identical_plans_are_one_tie() -> None:
    made = World(8, 3, 1.0).surveys(100, 3)
    several = [ties_of(scored(right)) > 1 for right in made]
    assert np.mean(several) <= LEVEL


def ties_of(found: ScoredRuns) -> int:
    means = {name: found.values(name).mean() for name in found.at}
    return max(tie_groups(means, different_pairs(found)).values())


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_three_errors_are_found_in_a_single_comparison(noise: float) -> None:
    assert share(World(2, 5, noise, taste=0.25), 1500, errors=3) >= 0.8


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_four_errors_are_found_among_eight(noise: float) -> None:
    assert share(World(8, 5, noise, taste=0.25), 300, errors=4) >= 0.8


@pytest.mark.parametrize(("plans", "errors", "least"), [(2, 3, 0.67), (8, 4, 0.75)])
def test_less_is_found_where_plans_suit_the_same_rows(
    plans: int, errors: float, least: float
) -> None:
    """All noise is then of single runs, so that few seeds say less about it: not the 80 % of above.

    Rows show a part of it and are the floor of the error, which makes the test careful."""
    assert least <= share(World(plans, 5, 0.2), 400, errors) < 0.85


def test_where_runs_are_all_the_noise_it_is_students_test() -> None:
    """Five seeds of two plans leave 8 degrees of freedom, and 3 errors are found in 75 %. Ten
    seeds find 81 %."""
    for seeds, count in ((5, 600), (10, 600)):
        freedom = 2 * (seeds - 1)
        wanted = stats.nct.sf(stats.t.isf(LEVEL / 2, freedom), freedom, 3)
        found = share(World(2, seeds, 6.0), count, errors=3)
        assert found == pytest.approx(wanted, abs=1.5 * allowance(count, wanted))


def test_rows_alone_call_noise_between_runs_a_difference() -> None:
    """Why seeds matter: the paired bootstrap over rows, on the same identical plans."""
    naive = []
    for right in World(8, 3, 1.0).surveys(SURVEYS, 1):
        difference_CN = (right[1:].astype(float) - right[0]).mean(1)
        z = difference_CN.mean(1) / stats.sem(difference_CN, axis=1)
        naive.append((holm(2 * stats.norm.sf(np.abs(z))) < LEVEL).any())
    assert np.mean(naive) > 3 * LEVEL


def test_seeds_alone_call_the_taste_of_rows_a_difference() -> None:
    """Why rows matter: Student's test over seeds, on two plans of equal skill."""
    made = World(2, 5, 0.2, taste=0.25).surveys(400, 1)
    naive = [stats.ttest_rel(*right.mean(2)).pvalue < LEVEL for right in made]
    assert np.mean(naive) > 2 * LEVEL


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("taste", [0.0, 0.25])
def test_each_noise_counts_once(noise: float, taste: float) -> None:
    """The mean of the variance that is said is the variance that is true, or a little more: the
    part of the rows is a floor."""
    world = World(2, 5, noise, taste)
    said = [scored(r).mean("plan1", "plan0").stderr ** 2 for r in world.surveys(300, 4)]
    assert 0.92 < np.mean(said) / world.true_error() ** 2 < 1.25


def test_a_wild_plan_is_not_called_different_and_does_not_hide_the_others() -> None:
    """Plans 5 to 7 scatter by thirty times as much, like learning rates that are too high."""
    draw = np.random.default_rng(8)
    world, wild, found = World(8, 5, 0.5, taste=0.2), [], []
    for right in world.surveys(300, 5, skill=4 * world.true_error()):
        lucky = draw.uniform(0.1, 1.9, (3, world.seeds, 1))
        right[5:] = draw.random(right[5:].shape) < MEAN * lucky
        real = is_significant(right)
        wild.append(real[4:].any())
        found.append(real[0])
    assert np.mean(wild) <= LEVEL + allowance(300)
    assert np.mean(found) >= 0.75


def test_a_plan_that_scatters_several_times_as_much_is_the_other_liberal_corner() -> None:
    """Two seeds of it may lie close by chance; then nothing shows that it is unlike the rest."""
    draw, found = np.random.default_rng(9), []
    for right in World(8, 2, 0.5).surveys(200, 7):
        run = 0.13 * draw.normal(size=(2, 1))  # the others' scores scatter by 0.025
        right[1] = draw.random(right[1].shape) < MEAN + run
        found.append(is_significant(right).any())
    assert LEVEL < np.mean(found) < 0.25


def test_the_whole_way_through_predictions() -> None:
    """`compare` with its own resampling: identical plans, none different and one tie."""
    task = THREE_TASKS[1]
    wrong = []
    for right in World(8, 3, 1.0).surveys(60, 6):
        targets = np.ones(right.shape[-1])
        plans = {
            f"plan{p}": {s: {task.name: right[p, s].astype(float)} for s in range(3)}
            for p in range(8)
        }
        judged = compare({task.name: task}, {task.name: targets}, plans, baseline="plan0").values()
        apart = any(d.is_significant for one in judged for d in one.against.values())
        wrong.append(apart or max(one.tie for one in judged) > 1)
    assert np.mean(wrong) <= LEVEL + allowance(60)
