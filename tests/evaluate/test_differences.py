"""Comparisons of candidates: what is in them, by hand and at the edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from building import THREE_TASKS
from mops.evaluate import metrics as scores
from mops.evaluate.joint import Difference, Estimate, joint_scores
from mops.evaluate.metrics import metrics_of
from mops.evaluate.statistics import mcnemar_by_task, row_covariance, row_noise

TASKS = {task.name: task for task in THREE_TASKS}
ROWS = {"sentiment": 200, "paraphrase": 300, "similarity": 150}
KEYS = {*TASKS, "overall", "overall_normalised"}


class Answered(NamedTuple):
    name: str
    by_seed: dict[int, dict[str, np.ndarray]]


def make_targets() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "sentiment": draw.integers(0, 5, ROWS["sentiment"]).astype(float),
        "paraphrase": draw.integers(0, 2, ROWS["paraphrase"]).astype(float),
        "similarity": draw.uniform(0, 5, ROWS["similarity"]),
    }


TARGETS = make_targets()


def answers(draw: np.random.Generator, skill: float) -> dict[str, np.ndarray]:
    def classes(name: str, count: int) -> np.ndarray:
        knows = draw.random(ROWS[name]) < skill
        return np.where(knows, TARGETS[name], draw.integers(0, count, ROWS[name]))

    noise = draw.normal(size=ROWS["similarity"]) * (1.5 - skill)
    return {
        "sentiment": classes("sentiment", 5),
        "paraphrase": classes("paraphrase", 2),
        "similarity": TARGETS["similarity"] + noise,
    }


def answered(name: str, skill: float, seeds: Sequence[int] = (1, 2, 3)) -> Answered:
    first = sum(name.encode())
    return Answered(name, {s: answers(np.random.default_rng([first, s]), skill) for s in seeds})


class Compared(NamedTuple):
    scores: dict[str, Estimate]
    against: dict[str, Difference]
    gains: dict[str, Difference]
    is_best: bool


def judge(
    *candidates: Answered, baseline: str = "", single: str = "", **weights: Any
) -> dict[str, Compared]:
    """Each candidate, compared with the baseline (default: the first) and with `single`."""
    rows, values = {}, {}
    for name, task in TASKS.items():
        answers = {c.name: {s: own[name] for s, own in c.by_seed.items()} for c in candidates}
        rows[name] = row_noise(partial(row_covariance, task, TARGETS[name]), answers)
        metric = metrics_of(task)[task.score_name]
        values[name] = {
            c: {s: metric(TARGETS[name], y) for s, y in own.items()} for c, own in answers.items()
        }
    metrics = {name: task.score_name for name, task in TASKS.items()}
    joint = joint_scores(metrics, values, rows, **weights)
    minus = {key: one.against(baseline or candidates[0].name) for key, one in joint.items()}
    gained = {task: joint[task].against(single) for task in TASKS} if single else {}
    return {
        name: Compared(
            {key: one.estimate(name) for key, one in joint.items()},
            {key: tested[name] for key, tested in minus.items() if name in tested},
            {task: tested[name] for task, tested in gained.items() if name in tested},
            name in joint["overall"].best_set(),
        )
        for name in joint["overall"].names
    }


def numbers_are_finite(judged: Compared) -> bool:
    found = [*judged.scores.values(), *judged.against.values(), *judged.gains.values()]
    return all(
        math.isfinite(x) for one in found for x in vars(one).values() if isinstance(x, float)
    )


# ------------------------------------------------------------------ what is in it


def test_scores_are_means_and_spreads_over_seeds() -> None:
    one = answered("a", 0.6)
    found = judge(one, answered("b", 0.6))["a"].scores
    assert set(found) == KEYS
    by_seed = [
        {n: scores.metrics_of(t)[t.score_name](TARGETS[n], of[n]) for n, t in TASKS.items()}
        for of in one.by_seed.values()
    ]
    wanted = {n: [of[n] for of in by_seed] for n in TASKS}
    overall = [scores.overall_scores(TASKS, own) for own in by_seed]
    wanted |= {key: [own[key] for own in overall] for key in scores.OVERALL}
    for key, values in wanted.items():
        assert found[key].mean == pytest.approx(np.mean(values)), key
        assert found[key].spread == pytest.approx(np.std(values, ddof=1)), key
        assert found[key].seeds == 3


def test_the_errors_of_tasks_add_up_in_the_overall_score() -> None:
    """With one seed, where all error is of rows: a mean of three, a correlation counts half."""
    one = answered("a", 0.6, [1])
    found = judge(one)["a"].scores
    error = {name: found[name].stderr for name in TASKS}
    plain = math.hypot(*error.values()) / 3
    halved = math.hypot(error["sentiment"], error["paraphrase"], error["similarity"] / 2) / 3
    assert found["overall"].stderr == pytest.approx(plain)
    assert found["overall_normalised"].stderr == pytest.approx(halved)
    of_rows = scores.standard_error(
        TASKS["paraphrase"], TARGETS["paraphrase"], one.by_seed[1]["paraphrase"]
    )
    assert error["paraphrase"] == pytest.approx(of_rows, rel=0.1)


def test_a_clear_difference_and_none() -> None:
    seeds = range(1, 7)
    skills = {"base": 0.5, "same": 0.5, "better": 0.8}
    found = judge(*(answered(name, skill, seeds) for name, skill in skills.items()))
    assert list(found) == ["base", "same", "better"]
    for key in KEYS:
        better, same = found["better"].against[key], found["same"].against[key]
        assert better.is_significant and better.low > 0 and better.p < 0.05
        assert not same.is_significant and same.low < same.mean < same.high
        assert better.mean == pytest.approx(
            found["better"].scores[key].mean - found["base"].scores[key].mean
        )
        assert better.seeds == same.seeds == 6
    assert found["base"].against == {}
    assert [name for name, one in found.items() if one.is_best] == ["better"]


def test_a_worse_one_is_significant_with_a_negative_sign() -> None:
    found = judge(answered("base", 0.8), answered("worse", 0.4))["worse"]
    assert found.against["overall"].high < 0 and found.against["overall"].is_significant
    assert not found.is_best


def test_gains_are_over_the_single_task_candidate() -> None:
    plans = [answered("base", 0.6), answered("separate", 0.5), answered("better", 0.75)]
    found = judge(*plans, single="separate")
    assert found["separate"].gains == {}
    gains = {(n, t): g for n, one in found.items() for t, g in one.gains.items()}
    assert set(gains) == set(itertools.product(["base", "better"], TASKS))
    against = judge(*plans, baseline="separate")
    for (name, task), gain in gains.items():
        assert gain == against[name].against[task]
    assert judge(*plans)["better"].gains == {}


def test_a_task_that_counts_more() -> None:
    plans = [answered("base", 0.5), answered("other", 0.7)]
    found = judge(*plans, weights={"sentiment": 3.0, "paraphrase": 0.0})["other"].scores
    wanted = (3 * found["sentiment"].mean + found["similarity"].mean) / 4
    assert found["overall"].mean == pytest.approx(wanted)


def test_mcnemar_stands_beside_each_accuracy_and_seed() -> None:
    base, other = answered("base", 0.5), answered("other", 0.6)
    found = mcnemar_by_task(TASKS, TARGETS, other.by_seed, base.by_seed)
    assert set(found) == {"sentiment", "paraphrase"}
    for name, p in found.items():
        assert len(p) == 3
        for seed, one in zip((1, 2, 3), p, strict=True):
            a, b = (x.by_seed[seed][name] == TARGETS[name] for x in (other, base))
            only = int((a & ~b).sum()), int((b & ~a).sum())
            assert one == pytest.approx(stats.binomtest(only[0], sum(only), 0.5).pvalue)
    assert mcnemar_by_task(TASKS, TARGETS, base.by_seed, base.by_seed) == {}


def test_the_same_bits_every_time() -> None:
    plans = [answered("a", 0.5), answered("b", 0.6)]
    assert judge(*plans) == judge(*plans)


# ------------------------------------------------------------------ edges


def test_with_one_seed_nothing_is_significant() -> None:
    found = judge(answered("base", 0.3, [1]), answered("better", 0.9, [1]))
    difference = found["better"].against["overall"]
    assert difference.p < 1e-3 and not difference.is_significant and difference.seeds == 1
    assert found["base"].scores["overall"].spread is None
    assert found["base"].scores["overall"].stderr > 0
    assert all(one.is_best for one in found.values())


def test_candidates_with_other_seeds() -> None:
    base, other = answered("base", 0.3, [1, 2, 3]), answered("other", 0.9, [4, 5])
    found = judge(base, other)["other"]
    assert found.scores["overall"].seeds == 2 and found.against["overall"].seeds == 2
    assert found.against["overall"].is_significant and found.is_best


def test_a_candidate_alone() -> None:
    found = judge(answered("only", 0.5), single="only")["only"]
    assert found.is_best and set(found.scores) == KEYS
    assert found.against == found.gains == {}


def test_constant_predictions_have_a_score_and_no_error() -> None:
    flat = {
        "sentiment": np.full(ROWS["sentiment"], 2.0),
        "paraphrase": np.zeros(ROWS["paraphrase"]),
        "similarity": np.full(ROWS["similarity"], 0.1),
    }
    plans = [Answered(name, dict.fromkeys(range(6), flat)) for name in ("flat", "flat too")]
    found = judge(*plans, answered("other", 0.7, range(6)))
    assert all(numbers_are_finite(one) for one in found.values())
    same = found["flat too"].against
    assert all(one.mean == 0 and one.p == 1 for one in same.values())
    assert not any(one.is_significant for one in same.values())
    assert found["flat"].scores["similarity"].mean == pytest.approx(0, abs=1e-12)
    assert found["flat"].scores["similarity"].stderr < 1e-6
    assert found["other"].against["similarity"].is_significant
    assert not found["flat"].is_best and found["other"].is_best
