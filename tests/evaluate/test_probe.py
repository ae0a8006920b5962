"""Bias probes: gaps by hand, intervals that widen with few words, models beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from building import THREE_TASKS
from mops.evaluate import probe as module
from mops.evaluate.probe import answer_values, gap_of, probe, probes, questions, templates
from mops.predict.inference import Predictions
from mops.tasks import Task

TASKS = {task.name: task for task in THREE_TASKS}
FEMALE = {word for words in probes()["contrasts"].values() for word in words.get("female", ())}


class Biased:
    """Answers that rise by `gap` where a text names a female person, and differ by template."""

    def __init__(self, gap: float) -> None:
        self.gap = gap

    def predict_tasks(
        self, asked: Mapping[str, Sequence[tuple[str, ...]]], /
    ) -> Mapping[str, Predictions]:
        return {name: self.answer(TASKS[name], texts) for name, texts in asked.items()}

    def answer(self, task: Task, texts: Sequence[tuple[str, ...]]) -> Predictions:
        shifts = [self.gap * any(w.lower() in t[0].lower() for w in FEMALE) for t in texts]
        level = np.array([0.2 + 0.001 * (len(t[0]) % 7) for t in texts]) + shifts
        if task.range:
            low, high = task.range
            return Predictions(task, low + level * (high - low), np.zeros((len(texts), 0)))
        shares = np.zeros((len(texts), len(task.labels)))
        shares[:, 0], shares[:, -1] = 1 - level, level
        return Predictions(task, shares.argmax(1).astype(float), shares)


@pytest.mark.parametrize("task", THREE_TASKS, ids=lambda task: task.name)
def test_every_question_differs_from_its_partner_in_the_words_alone(task: Task) -> None:
    asked = questions(task)
    words = sum(len(w) for c in probes()["contrasts"].values() for w in c.values())
    assert len(asked) == words * len(templates(task)) == len(set(asked)) + repeated(task)
    assert all("{" not in text and text[0].isupper() for texts in asked for text in texts)
    assert {len(texts) for texts in asked} == {2 if task.is_pair else 1}


def repeated(task: Task) -> int:
    """Questions of names that two contrasts have."""
    names = [w for c in probes()["contrasts"].values() for words in c.values() for w in words]
    return (len(names) - len(set(names))) * len(templates(task))


def test_a_gap_is_found_where_it_is() -> None:
    (gaps,) = probe([Biased(0.05)], {"similarity": TASKS["similarity"]})
    by_contrast = {gap.contrast: gap for gap in gaps}
    assert set(by_contrast) == set(probes()["contrasts"])
    for name, gap in by_contrast.items():
        if name.startswith("gender"):
            assert gap.groups == ("female", "male")
            assert gap.gap.low < gap.gap.mean < gap.gap.high
            assert gap.gap.mean == pytest.approx(0.05, abs=0.01) and gap.gap.low > 0.03
        elif name == "nationality":
            assert abs(gap.gap.mean) < 0.01
        assert gap.change is None


def test_two_models_are_compared_on_the_same_resamples() -> None:
    first, second = probe([Biased(0.05), Biased(0.08)], TASKS)
    change = next(g.change for g in second if g.contrast == "gender, words")
    assert change is not None
    # templates and words move both models alike, so the change is surer than either gap
    assert change.mean == pytest.approx(0.03, abs=1e-6)
    assert change.high - change.low < 1e-6 < first[0].gap.high - first[0].gap.low


def test_answers_are_fractions_of_their_range() -> None:
    for task in THREE_TASKS:
        values = answer_values(task, Biased(0.0).answer(task, questions(task)))
        assert all(((v >= 0) & (v <= 1)).all() for v in values.values()), task.name


def test_the_interval_is_that_of_templates_and_words() -> None:
    """Its variance is that of the means of independent rows and columns, added up."""
    draw = np.random.default_rng(0)
    words, sentences = draw.normal(size=40), draw.normal(size=30)
    one = np.add.outer(words, sentences)
    two = np.add.outer(draw.normal(size=50), sentences)
    mean, drawn = gap_of("x", one, two)
    assert mean == pytest.approx(one.mean() - two.mean())
    expected = words.var() / 40 + two.mean(1).var() / 50  # the sentences cancel
    assert drawn.var() == pytest.approx(expected, rel=0.15)
    assert len(drawn) == module.RESAMPLES
