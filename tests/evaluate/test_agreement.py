"""Cosines of gradients, their errors and tests, against numpy on the gradients and scipy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import stats

from mops.evaluate.conflicts import (
    CosineCell,
    advise_late,
    correlate,
    judge,
    pearson_interval,
    place_and_part,
)
from mops.evaluate.statistics import below_zero, holm

TASKS = ("a", "b", "c")
OWNERS = ("attention/layer01", "embeddings", "norms/layer01", "late1/a+c", "attention/layer00")
USERS = dict.fromkeys(OWNERS, TASKS) | {"late1/a+c": ("a", "c")}
STEPS, SIZE = 12, 40
Gradients = Mapping[str, np.ndarray]  # owner -> N T h D


def random_gradients(seed: int = 0) -> Gradients:
    draw = np.random.default_rng(seed)
    scale = np.array([1.0, 3.0, 0.2])[None, :, None, None]
    return {o: scale * draw.normal(size=(STEPS, len(TASKS), 2, SIZE)) for o in OWNERS}


def cells_of(gradients: Gradients, by: str = "owners") -> Sequence[CosineCell]:
    grams = {o: np.einsum("nthd,nsgd->nthsg", g, g) for o, g in gradients.items()}
    cells: Sequence[CosineCell] = judge(grams, USERS, TASKS)[by]
    return cells


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def pair_cosines(gradient: np.ndarray, a: int, b: int) -> list[float]:
    """At each step the mean over the four pairs of batches."""
    return [
        float(np.mean([cosine(step[a, i], step[b, j]) for i in (0, 1) for j in (0, 1)]))
        for step in gradient
    ]


def cell(cells: Sequence[CosineCell], **names: object) -> CosineCell:
    (found,) = [c for c in cells if all(getattr(c, n) == v for n, v in names.items())]
    return found


@pytest.mark.parametrize("pair", [("a", "b"), ("a", "c"), ("b", "c")])
def test_a_cell_is_what_the_gradients_say(pair: tuple[str, str]) -> None:
    gradients = random_gradients()
    found = cell(cells_of(gradients), owner="norms/layer01", tasks=pair)
    a, b = (TASKS.index(name) for name in pair)
    gradient = gradients["norms/layer01"]
    wanted = pair_cosines(gradient, a, b)
    assert found.mean == pytest.approx(np.mean(wanted))
    assert found.stderr == pytest.approx(stats.sem(wanted))
    assert found.negative == pytest.approx(np.mean(np.array(wanted) < 0))
    assert found.p == pytest.approx(stats.ttest_1samp(wanted, 0, alternative="less").pvalue)
    norms = np.linalg.norm(gradient, axis=-1)
    assert found.norm_ratio == pytest.approx(
        stats.gmean(norms[:, a].ravel()) / stats.gmean(norms[:, b].ravel())
    )
    own = [np.mean([cosine(step[t, 0], step[t, 1]) for step in gradient]) for t in (a, b)]
    assert found.own == pytest.approx(own)
    assert (found.steps, found.place, found.part) == (STEPS, "layer 1", "norms")


def test_a_place_is_the_gradients_of_its_parts_in_one_vector() -> None:
    gradients = random_gradients(1)
    found = cell(cells_of(gradients, "places"), place="layer 1", tasks=("a", "b"))
    joined = np.concatenate([gradients["attention/layer01"], 1 * gradients["norms/layer01"]], -1)
    assert found.mean == pytest.approx(np.mean(pair_cosines(joined, 0, 1)))
    assert found.part == "all"


def test_places_come_from_the_bottom_to_the_top() -> None:
    found = cells_of(random_gradients(), "places")
    assert list(dict.fromkeys(c.place for c in found)) == [
        "embeddings", "layer 0", "layer 1", "late1",
    ]  # fmt: skip
    assert [c.layer for c in found if c.tasks == ("a", "c")] == [None, 0, 1, None]


def test_only_tasks_that_pass_an_owner_are_paired_on_it() -> None:
    found = cells_of(random_gradients())
    assert [c.tasks for c in found if c.owner == "late1/a+c"] == [("a", "c")]
    assert len(found) == 4 * 3 + 1


@pytest.mark.parametrize(
    ("owner", "wanted"),
    [
        ("embeddings", ("embeddings", "embeddings")),
        ("attention/layer03", ("layer 3", "attention")),
        ("attention/layer11/a+b", ("layer 11", "attention")),
        ("lora_a/layer00/a", ("layer 0", "lora_a")),
        ("pal_down/a+b", ("pal_down", "pal_down")),
        ("late2", ("late2", "late2")),
        ("norms", ("norms", "norms")),
    ],
)
def test_place_and_part_come_from_the_name(owner: str, wanted: tuple[str, str]) -> None:
    assert place_and_part(owner) == wanted


def test_steps_with_a_zero_gradient_do_not_count() -> None:
    """Some additions begin at zero and have no gradient at first."""
    gradients = {"embeddings": random_gradients()["embeddings"]}
    gradients["embeddings"][:3, 0] = 0
    found = cell(cells_of(gradients), tasks=("a", "b"))
    assert found.steps == STEPS - 3
    assert found.mean == pytest.approx(np.mean(pair_cosines(gradients["embeddings"][3:], 0, 1)))
    gradients["embeddings"][1:, 0] = 0
    left = cells_of(gradients)
    assert [c.tasks for c in left] == [("b", "c")]


# ------------------------------------------------------------------ what the numbers mean


def noisy(signal: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """N h D: two batches at each step, the task's direction plus the noise of a batch."""
    draw = np.random.default_rng(seed)
    return signal + noise * draw.normal(size=(STEPS * 20, 2, len(signal)))


def three_tasks(directions: Sequence[np.ndarray], noise: Sequence[float]) -> Sequence[CosineCell]:
    parts = [noisy(d, n, seed) for seed, (d, n) in enumerate(zip(directions, noise, strict=True))]
    return cells_of({"embeddings": np.stack(parts, axis=1)})


def test_tasks_that_want_the_same_show_the_ceiling() -> None:
    """Noise shortens cosines: sqrt(own of a x own of b) is what equal directions show."""
    one = np.random.default_rng(5).normal(size=300)
    found = cell(three_tasks([one, 2 * one, -one], [1.0, 4.0, 1.0]), tasks=("a", "b"))
    assert found.mean == pytest.approx(found.ceiling, abs=0.02)
    assert 0.2 < found.ceiling < 0.5 and not found.is_conflict


def test_opposite_tasks_conflict_and_indifferent_ones_do_not() -> None:
    draw = np.random.default_rng(6)
    one, other = draw.normal(size=300), draw.normal(size=300)
    other -= one * (one @ other) / (one @ one)  # at right angles
    cells = three_tasks([one, -one, other], [3.0, 3.0, 3.0])
    assert cell(cells, tasks=("a", "b")).is_conflict
    assert not cell(cells, tasks=("a", "c")).is_conflict


def test_chance_is_rarely_called_a_conflict() -> None:
    """Independent gradients: any conflict at all in at most about 5 of 100 measurements."""
    any_found = [
        any(c.is_conflict for c in cells_of(random_gradients(seed))) for seed in range(200)
    ]
    assert sum(any_found) <= 20  # 10 expected at most; 20 is more than three deviations above


# ------------------------------------------------------------------ tests of means


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 25, 40, 201])
def test_a_mean_below_zero_is_students_test(count: int) -> None:
    for t in (-30.0, -3.2, -1.0, 0.0, 0.4, 1.7, 2.5, 6.0):
        wanted = stats.t.cdf(t, count - 1)
        assert below_zero(0.1 * t, 0.1, count) == pytest.approx(wanted, abs=1e-12)


def test_equal_values_are_certain() -> None:
    assert below_zero(-0.5, 0.0, 5) == 0.0
    assert below_zero(0.5, 0.0, 5) == 1.0
    assert below_zero(0.0, 0.0, 5) == 1.0


def test_holm_by_its_definition() -> None:
    """Step down: the smallest against level/m, the next against level/(m-1), until one fails."""
    draw = np.random.default_rng(3)
    for _ in range(50):
        p = draw.uniform(size=9) ** 3
        level, rejected = 0.05, set()
        for rank, i in enumerate(np.argsort(p)):
            if p[i] >= level / (len(p) - rank):
                break
            rejected.add(int(i))
        assert set(np.flatnonzero(holm(p) < level)) == rejected
    assert holm([0.5, 0.6]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


# ------------------------------------------------------------------ outputs


def numbers(seed: int, weight: float, rows: int = 60) -> np.ndarray:
    """Noise around a common number of each row."""
    common = np.random.default_rng(0).normal(size=rows)
    return weight * common + np.random.default_rng(seed).normal(size=rows)


def test_correlations_of_outputs_are_pearson_s_with_fisher_s_interval() -> None:
    """On the rows of each task of a pair that both have answered."""
    answers = {
        "a": {"a": numbers(1, 2.0)},
        "b": {"a": numbers(2, 2.0), "b": numbers(3, 2.0), "c": numbers(4, -2.0)},
        "c": {"b": numbers(5, 1.0), "c": numbers(6, 1.0)},
    }
    targets = {"a": numbers(7, 1.0), "b": numbers(8, 1.0), "c": numbers(9, -1.0)}
    cells = list(correlate(answers, targets, TASKS))
    asked = [(("a", "b"), "b"), (("b", "c"), "b"), (("b", "c"), "c")]
    assert [(found.tasks, found.rows_of) for found in cells] == asked
    for found in cells:
        own = answers[found.rows_of]
        wanted = stats.pearsonr(*(own[task] for task in found.tasks))
        assert found.correlation == pytest.approx(wanted.statistic)
        interval = wanted.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(interval)) and found.rows == 60
        learned = [stats.pearsonr(answers[task][task], targets[task]) for task in found.tasks]
        assert found.own == pytest.approx([one.statistic for one in learned])
        assert found.is_clear == (found.tasks == ("a", "b"))  # c goes against its labels
    (sentence,) = advise_late(cells)
    assert f"outputs of a and b are the most correlated: {cells[0].correlation:.2f}" in sentence


def test_outputs_that_do_not_vary_say_nothing() -> None:
    same = {task: {"a": np.ones(60), "b": numbers(1, 1.0)} for task in "ab"}
    few = {task: {t: numbers(n, 1.0, rows=3) for n, t in enumerate("ab")} for task in "ab"}
    for answers in (same, few):
        targets = {task: own[task] for task, own in answers.items()}
        cells = list(correlate(answers, targets, TASKS))
        assert [(c.correlation, c.low, c.high, c.is_clear) for c in cells] == [
            (0, -1, 1, False)
        ] * 2
        (sentence,) = advise_late(cells)
        assert "nothing speaks for sharing" in sentence
    assert not list(advise_late([]))


def test_a_perfect_correlation_is_one() -> None:
    assert pearson_interval(numbers(1, 1.0), -3 * numbers(1, 1.0)) == pytest.approx((-1, -1, -1))
