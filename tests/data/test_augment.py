"""Augmentation: what may happen to a row, how often, and that it can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import ENTRIES, tiny_tokenizer
from mops.config.training import Augment
from mops.data.batches import (
    AugmentedRows,
    TaskData,
    change,
    drop_words,
    make_batch,
    take_rows,
    tokenise,
)
from mops.data.schedule import Place
from mops.plans.shapes import Reading

TEXTS = {
    "sentiment": [("ban dat fen got bin",), ("dun fat",), ("gan",)],
    "similarity": [("ban dat", "fen got"), ("bin", "dun dan den")],
}
PLACES = {
    "sentiment": [Place(2, 0), Place(0, 0), Place(0, 1)],
    "similarity": [Place(1, 4), Place(0, 4)],
}


def rows(texts: dict[str, Any] = TEXTS, seed: int = 1, **values: Any) -> AugmentedRows:
    tokenizer, reading = tiny_tokenizer(), Reading()
    data = {
        name: TaskData(
            ENTRIES[name].task(name), tokenise(tokenizer, of, reading), np.arange(len(of)) / 2
        )
        for name, of in texts.items()
    }
    return AugmentedRows(data, texts, tokenizer, reading, Augment(**values), seed)


def ids(batch: Any) -> list[tuple[tuple[str, ...], list[int], list[int]]]:
    return [(s.tasks, s.ids.tolist(), s.types.tolist()) for s in batch.segments]


# ------------------------------------------------------------------ words


def test_each_word_is_left_out_by_its_chance() -> None:
    """Of 40,000 words within four standard deviations; those that stay keep their order."""
    draw, text = np.random.default_rng(0), " ".join(f"w{n:02d}" for n in range(40))
    found = [drop_words(text, 0.1, draw).split() for _ in range(1000)]
    left_out = 40_000 - sum(map(len, found))
    assert abs(left_out - 4000) < 4 * (40_000 * 0.1 * 0.9) ** 0.5
    assert all(words == sorted(words) for words in found)
    gone = {word for words in found for word in set(text.split()) - set(words)}
    assert gone == set(text.split())


def test_at_least_one_word_stays() -> None:
    draw = np.random.default_rng(0)
    found = [drop_words("one two three", 0.999, draw) for _ in range(300)]
    assert set(found) == {"one", "two", "three"}  # any of them
    assert drop_words("alone", 0.999, draw) == "alone"
    assert drop_words("  ", 0.5, draw) == "  "


def test_a_text_that_keeps_all_words_keeps_its_spaces() -> None:
    assert drop_words("a  b\tc", 0.0, np.random.default_rng(0)) == "a  b\tc"


# ------------------------------------------------------------------ swap


def test_named_pairs_change_places_in_half_of_the_rows() -> None:
    how, draw = Augment(swap=("similarity",)), np.random.default_rng(0)
    found = [change(("a", "b"), how, "similarity", draw) for _ in range(2000)]
    assert set(found) == {("a", "b"), ("b", "a")}
    assert abs(found.count(("b", "a")) - 1000) < 4 * (2000 * 0.25) ** 0.5
    assert {change(("a", "b"), how, "paraphrase", draw) for _ in range(50)} == {("a", "b")}


# ------------------------------------------------------------------ batches


def test_without_a_change_a_batch_is_the_plain_one() -> None:
    made = rows()
    plain = take_rows(made.data, PLACES)
    assert ids(made.take(PLACES)) == ids(plain)
    chosen = {"sentiment": [2, 0, 0], "similarity": [1, 0]}
    assert ids(plain) == ids(make_batch(made.data, chosen))
    for task in PLACES:
        expected = np.array(chosen[task]) / 2  # the targets go with their rows
        np.testing.assert_array_equal(made.take(PLACES).targets[task], expected)


def test_a_row_changes_with_seed_task_pass_and_number_and_with_nothing_else() -> None:
    long = ("ban dat fen got bin dun fat gan den ben " * 2,)
    texts = {"sentiment": [long] * 3}

    def words(place: Place, seed: int = 1, before: tuple[Place, ...] = ()) -> list[int]:
        batch = rows(texts, seed, word_dropout=0.4).take({"sentiment": [*before, place]})
        return batch.segments[-1].ids.tolist()

    one = words(Place(1, 0))
    assert words(Place(1, 0)) == one
    assert words(Place(1, 0), before=(Place(0, 0), Place(2, 7))) == one
    others = [words(Place(1, 1)), words(Place(2, 0)), words(Place(1, 0), seed=2)]
    assert all(other != one for other in others) and others[0] != others[1] != others[2]


@pytest.mark.parametrize("values", [{"word_dropout": 0.5}, {"swap": ("similarity",)}])
def test_targets_stay_and_the_data_is_not_touched(values: dict[str, Any]) -> None:
    made = rows(**values)
    before = ids(take_rows(made.data, PLACES))
    places = {"similarity": [Place(row, number) for number in range(20) for row in (0, 1)]}
    batch = made.take(places)
    assert ids(batch) != ids(take_rows(made.data, places))
    np.testing.assert_array_equal(batch.targets["similarity"], [0, 0.5] * 20)
    assert ids(take_rows(made.data, PLACES)) == before
