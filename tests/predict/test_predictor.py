"""Predictions: in input order and bit-identical for every batch composition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

import mops
from building import THREE_TASKS, WORDS, build_network, tiny_tokenizer
from mops.data import batches
from mops.data.splits import Row
from mops.errors import UsageError
from mops.plans.shapes import Reading
from mops.predict import bundle as bundle_module
from mops.predict import inference
from mops.predict.bundle import Bundle, Predictor
from mops.predict.inference import decide
from running import world

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS
PLANS = ("shared", "separate", "hybrid:2", "late:SIS")


def predictor_of(plan: str, folder: Path, **reading: Any) -> Predictor:
    network = build_network(plan, folder, reading=Reading(max_length=24, **reading))
    return Predictor(Bundle(folder, network, tiny_tokenizer(), {}, {}))


@pytest.fixture(params=PLANS)
def predictor(request: pytest.FixtureRequest, encoder_folder: Any) -> Predictor:
    return predictor_of(request.param, encoder_folder("bert"))


def some_texts(rows: int, width: int, seed: int = 0) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(seed)
    return [
        tuple(" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(width))
        for _ in range(rows)
    ]


def values(predictor: Predictor, task: str, texts: list[tuple[str, ...]]) -> np.ndarray:
    """All numbers of the predictions."""
    found = predictor.predict_tasks({task: texts})[task]
    return np.concatenate([found.values[:, None], found.probabilities], axis=1)


@pytest.mark.parametrize("task", THREE_TASKS, ids=lambda task: task.name)
def test_a_row_gets_the_same_bits_alone_and_among_others(predictor: Predictor, task: Any) -> None:
    texts = some_texts(23, len(task.text))
    together = values(predictor, task.name, texts)
    alone = np.concatenate([values(predictor, task.name, [row]) for row in texts])
    np.testing.assert_array_equal(together, alone)
    assert len(np.unique(together[:, -1])) > 3  # not the same answer for all


@pytest.mark.parametrize("pair", ["cross", "bi"])
@pytest.mark.parametrize("pool", ["cls", "mean", "sum", "pooler"])
def test_so_it_does_with_every_pooling_and_pair_mode(
    encoder_folder: Any, pair: str, pool: str
) -> None:
    predictor = predictor_of("hybrid:2", encoder_folder("bert"), pair=pair, pool=pool)
    texts = some_texts(17, 2)
    alone = np.concatenate([values(predictor, "similarity", [row]) for row in texts])
    np.testing.assert_array_equal(values(predictor, "similarity", texts), alone)


def test_predictions_come_in_input_order(predictor: Predictor) -> None:
    """Rows are computed by length; a shuffled input gives predictions shuffled the same way."""
    texts = some_texts(40, 1)
    order = np.random.default_rng(1).permutation(40)
    first = values(predictor, "sentiment", texts)
    np.testing.assert_array_equal(
        values(predictor, "sentiment", [texts[i] for i in order]), first[order]
    )


def test_pack_size_does_not_matter(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = some_texts(40, 1)
    first = values(predictor, "sentiment", texts)
    monkeypatch.setattr(inference, "PACK_TOKENS", 30)
    np.testing.assert_array_equal(values(predictor, "sentiment", texts), first)


@pytest.mark.parametrize("pair", ["cross", "bi"])
def test_several_tasks_at_once_predict_as_one_by_one(encoder_folder: Any, pair: str) -> None:
    predictor = predictor_of("hybrid:2", encoder_folder("bert"), pair=pair)
    pairs = some_texts(15, 2)
    asked = {
        "paraphrase": pairs,
        "sentiment": [text for pair in pairs for text in pair],
        "similarity": pairs[3:],
    }
    for name, found in predictor.predict_tasks(asked).items():
        alone = predictor.predict_tasks({name: asked[name]})[name]
        np.testing.assert_array_equal(found.values, alone.values)
        np.testing.assert_array_equal(found.probabilities, alone.probabilities)
        assert len(found.values) == len(asked[name])


def test_equal_rows_of_several_tasks_are_tokenised_once(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def tokenise(tokenizer: Any, rows: Any, *more: Any) -> Any:
        taken.append(len(rows))
        return batches.tokenise(tokenizer, rows, *more)

    monkeypatch.setattr(bundle_module, "tokenise", tokenise)
    pairs = some_texts(9, 2)
    predictor.predict_tasks({"paraphrase": pairs, "similarity": list(pairs), "sentiment": ["ban"]})
    assert taken == [9, 1]


def test_the_windows_of_a_stream_do_not_matter(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = some_texts(23, 1)
    monkeypatch.setattr(bundle_module, "WINDOW", 5)
    rows = (Row("", text, None, "") for text in texts)
    streamed = predictor.stream({("sentiment",): rows})
    windows = [(window, found["sentiment"]) for (window,), found in streamed]
    assert [len(window) for window, _ in windows] == [5, 5, 5, 5, 3]
    assert [row.texts for window, _ in windows for row in window] == texts
    probabilities = np.concatenate([found.probabilities for _, found in windows])
    whole = predictor.predict_tasks({"sentiment": texts})["sentiment"]
    np.testing.assert_array_equal(probabilities, whole.probabilities)


def test_a_stream_takes_no_more_rows_than_it_needs(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "WINDOW", 4)
    endless = (Row(str(n), ("ban bat",), None, "") for n in count())
    (window,), _ = next(predictor.stream({("sentiment",): endless}))
    assert [row.id for row in window] == ["0", "1", "2", "3"]
    assert next(endless).id == "4"


def test_groups_of_tasks_stream_their_own_rows_side_by_side(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "WINDOW", 4)
    singles, pairs = some_texts(6, 1), some_texts(6, 2)
    asked = {
        ("sentiment",): (Row("", text, None, "") for text in singles),
        ("paraphrase", "similarity"): (Row("", text, None, "") for text in pairs),
    }
    streamed = list(predictor.stream(asked))
    assert [[len(window) for window in windows] for windows, _ in streamed] == [[4, 4], [2, 2]]
    whole = predictor.predict_tasks(
        {"sentiment": singles, "paraphrase": pairs, "similarity": pairs}
    )
    for name, expected in whole.items():
        found = np.concatenate([answers[name].values for _, answers in streamed])
        np.testing.assert_array_equal(found, expected.values)


@pytest.mark.parametrize("pair", ["cross", "bi"])
def test_an_empty_text_has_a_prediction(encoder_folder: Any, pair: str) -> None:
    predictor = predictor_of("hybrid:2", encoder_folder("bert"), pair=pair)
    assert predictor.predict("sentiment", ["", "ban"])[0] in SENTIMENT.labels
    assert len(predictor.predict("similarity", [("", ""), ("ban", "")])) == 2


@pytest.mark.parametrize("task", ["sentiment", "similarity"])
def test_no_rows_no_predictions(predictor: Predictor, task: str) -> None:
    assert predictor.predict(task, []) == []


def test_a_text_longer_than_the_encoder_is_truncated(predictor: Predictor) -> None:
    long, cut = " ".join(["ban"] * 5000), " ".join(["ban"] * 22)  # 24 with [CLS] and [SEP]
    one, other = values(predictor, "sentiment", [(long,), (cut,)])
    np.testing.assert_array_equal(one, other)


def test_an_unknown_task_is_refused_with_the_nearest(predictor: Predictor) -> None:
    with pytest.raises(UsageError, match=r"no task 'sentimnt'.*Did you mean 'sentiment'"):
        predictor.predict("sentimnt", ["ban"])


@pytest.mark.parametrize("texts", [["ban"], [("ban", "bat"), "ban"], [("ban", "bat", "bet")]])
def test_a_pair_task_refuses_rows_that_are_no_pairs(predictor: Predictor, texts: list) -> None:
    with pytest.raises(UsageError, match=r"takes 2 text\(s\) per row"):
        predictor.predict("similarity", texts)


def test_one_text_instead_of_a_list_is_refused(predictor: Predictor) -> None:
    """Otherwise every letter would be a row."""
    with pytest.raises(UsageError, match="list"):
        predictor.predict("sentiment", "A lovely film.")


def test_predictions_are_labels_and_values_of_the_tasks(predictor: Predictor) -> None:
    assert set(predictor.predict("sentiment", ["ban", "bat bet"])) <= set(SENTIMENT.labels)
    assert set(predictor.predict("paraphrase", [("ban", "bat")])) <= {"0", "1"}
    (value,) = predictor.predict("similarity", [("ban", "bat")])
    assert isinstance(value, float) and 0 <= value <= 5


# ------------------------------------------------------------------ from outputs to predictions


def test_probabilities_are_a_softmax_and_the_prediction_its_largest() -> None:
    outputs = np.array([[0.0, 2.0, -1.0, 0.5, 1000.0], [3.0, 1.0, 0.0, 0.0, 0.0]], np.float32)
    found = decide(SENTIMENT, outputs)
    assert found.as_strings() == ["4", "0"]
    raised = np.exp(outputs[1].astype(float))
    np.testing.assert_allclose(found.probabilities[1], raised / raised.sum())
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)


def test_one_logit_is_a_sigmoid_over_two_classes() -> None:
    found = decide(PARAPHRASE, np.array([[-0.3], [0.4]], np.float32))
    assert found.as_strings() == ["0", "1"]
    np.testing.assert_allclose(found.probabilities[:, 1], 1 / (1 + np.exp([0.3, -0.4])), rtol=1e-6)


def test_a_similarity_stays_within_its_range() -> None:
    found = decide(SIMILARITY, np.array([[-3.0], [2.5], [7.0]], np.float32))
    assert found.values.tolist() == [0, 2.5, 5]


def test_a_written_value_reads_back_as_the_value_that_was_scored() -> None:
    outputs = np.random.default_rng(0).uniform(0, 5, (200, 1)).astype(np.float32)
    found = decide(SIMILARITY, outputs)
    assert [float(word) for word in found.as_strings()] == found.values.tolist()


def test_the_loaded_model_knows_its_tasks() -> None:
    assert mops.load(world().run / "model").tasks == ("sentiment", "paraphrase", "similarity")


def test_the_loss_of_a_class_is_minus_log_of_its_probability() -> None:
    outputs = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    found = decide(SENTIMENT, outputs)
    losses = found.losses(np.array([0.0, 2.0, np.nan]))
    expected = metrics.log_loss([0, 2], found.probabilities[:2], labels=range(5))
    assert losses[:2].mean() == pytest.approx(expected) and np.isnan(losses[2])
    assert found.confidences() == found.probabilities.max(axis=1).tolist()


def test_a_probability_of_zero_has_a_finite_loss() -> None:
    (loss,) = decide(PARAPHRASE, np.array([[-1000.0]], np.float32)).losses(np.array([1.0]))
    assert 700 < loss < 710


def test_the_loss_of_a_similarity_is_its_squared_error() -> None:
    found = decide(SIMILARITY, np.array([[1.5], [9.0]], np.float32))
    assert found.losses(np.array([1.0, 4.0])) == pytest.approx([0.25, 1.0])
    assert found.confidences() == []


def test_many_threads_get_the_answers_of_one(encoder_folder: Any) -> None:
    """Whichever of two predictors on one model they ask."""
    first = predictor_of("hybrid:2", encoder_folder("bert"))
    both = first, Predictor(first.bundle)
    texts = [  # every second one is long enough to be shortened
        (" ".join(row * (60 if number % 2 else 1)),) for number, row in enumerate(some_texts(40, 1))
    ]
    alone = [values(first, SENTIMENT.name, [row]) for row in texts]
    asked = [(both[number // 3 % 2], texts[number % 40]) for number in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: values(one[0], SENTIMENT.name, [one[1]]), asked))
    for one, expected in zip(found, alone * 50, strict=True):
        np.testing.assert_array_equal(one, expected)
