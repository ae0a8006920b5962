"""Token sequences against transformers' tokenizer on the bundled encoder; cutting and batches."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

from building import THREE_TASKS, VOCABULARY, tiny_tokenizer
from mops.data.batches import (
    TaskData,
    TokenTable,
    full_lengths,
    make_batch,
    tokenise,
)
from mops.model.sources import find_encoder
from mops.plans.shapes import Reading

TEXTS = (
    "A lovely film, isn't it?",
    "x",
    "",
    "Größe und Maß – 漢字 \u200b emoji 🙂 naïve",
    "antidisestablishmentarianism " * 40,
    "tab\tand\nnew line  and   spaces",
    "[SEP] is written in the text [MASK]",
    "w" * 300,
)
PAIRS = tuple((one, two) for one in TEXTS[:6] for two in TEXTS[2:])


@pytest.fixture(scope="module")
def minilm() -> Any:
    return find_encoder("minilm").tokenizer


@pytest.fixture(scope="module")
def reference() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(find_encoder("minilm").folder)


def rows_of(table: TokenTable) -> list[list[tuple[list[int], list[int]]]]:
    return [
        [(ids.tolist(), types.tolist()) for ids, types in table.row(n)] for n in range(len(table))
    ]


def expected(reference: Any, most: int, *texts: str) -> tuple[list[int], list[int]]:
    one = texts if len(texts) == 2 else texts[0]  # as a list: an empty second text is a text
    found = reference([one], truncation=True, max_length=most)
    return found["input_ids"][0], found["token_type_ids"][0]


@pytest.mark.parametrize("most", [8, 64, 256])
def test_single_texts(minilm: Any, reference: Any, most: int) -> None:
    table = tokenise(minilm, [(text,) for text in TEXTS], Reading(max_length=most))
    assert rows_of(table) == [[expected(reference, most, text)] for text in TEXTS]


@pytest.mark.parametrize("most", [9, 64, 256])
def test_cross_pairs(minilm: Any, reference: Any, most: int) -> None:
    """One sequence with a separator; the longer text is cut first."""
    table = tokenise(minilm, PAIRS, Reading(pair="cross", max_length=most))
    assert rows_of(table) == [[expected(reference, most, *pair)] for pair in PAIRS]


@pytest.mark.parametrize("most", [8, 256])
def test_bi_pairs(minilm: Any, reference: Any, most: int) -> None:
    """Two sequences, each with its own limit, token types all zero."""
    table = tokenise(minilm, PAIRS, Reading(pair="bi", max_length=most))
    assert rows_of(table) == [[expected(reference, most, text) for text in pair] for pair in PAIRS]
    assert not table.types.any()
    assert table.row_lengths.tolist() == [sum(len(ids) for ids, _ in row) for row in rows_of(table)]


def test_bi_single_text_is_one_sequence(minilm: Any) -> None:
    table = tokenise(minilm, [("a",), ("b c",)], Reading(pair="bi"))
    assert (len(table), table.per_row, table.lengths.tolist()) == (2, 1, [3, 4])


def test_cut_counts_sequences() -> None:
    tokenizer = tiny_tokenizer()
    four, five = "do re mi do", "do re mi do re"
    assert tokenise(tokenizer, [(four,), (five,), (five,)], Reading(max_length=6)).cut == 2
    assert tokenise(tokenizer, [(four, five)], Reading(max_length=12)).cut == 0
    assert tokenise(tokenizer, [(four, five)], Reading(max_length=11)).cut == 1
    assert tokenise(tokenizer, [(four, five)], Reading(max_length=6, pair="bi")).cut == 1
    assert tokenise(tokenizer, [(five, five)], Reading(max_length=6, pair="bi")).cut == 2


@pytest.mark.parametrize("pair", ["cross", "bi"])
def test_full_lengths_do_not_depend_on_the_limit(pair: Any) -> None:
    tokenizer, four, five = tiny_tokenizer(), "do re mi do", "do re mi do re"
    for rows in ([(four,), (five,), (five * 60,)], [(four, five), (five * 60, four)]):
        whole = tokenise(tokenizer, rows, Reading(max_length=512, pair=pair))
        reading = Reading(max_length=6, pair=pair)
        table = tokenise(tokenizer, rows, reading)
        assert max(table.lengths) == 6
        found = full_lengths(tokenizer, rows, reading, table)
        assert found.tolist() == whole.lengths.tolist()
        assert sum(found > 6) == table.cut


def test_a_later_limit_does_not_inherit_an_earlier_one(minilm: Any) -> None:
    text = "word " * 200
    short = tokenise(minilm, [(text,)], Reading(max_length=8))
    full = tokenise(minilm, [(text,)], Reading(max_length=512))
    assert (short.lengths.tolist(), full.lengths.tolist()) == ([8], [202])


def test_no_rows(minilm: Any) -> None:
    table = tokenise(minilm, [], Reading())
    assert (len(table), len(table.ids), table.cut) == (0, 0, 0)


def test_a_text_of_100_000_characters_is_cut(minilm: Any) -> None:
    table = tokenise(minilm, [("word " * 20_000,), ("w" * 100_000,)], Reading(max_length=256))
    assert (table.lengths.tolist(), table.cut) == ([256, 3], 2)  # of the word, characters


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_a_pair_of_long_texts_costs_what_two_long_texts_cost(minilm: Any) -> None:
    """What is cut away must not be kept: n x m combinations of left-over parts need gigabytes."""
    text = "word " * 3_500
    tokenise(minilm, [(text,)] * 2, Reading(max_length=64))
    before = peak_megabytes()
    table = tokenise(minilm, [(text, text)], Reading(pair="cross", max_length=64))
    assert (table.lengths.tolist(), table.cut) == ([64], 1)
    assert peak_megabytes() - before < 100


def test_a_batch_holds_the_rows_in_order_with_their_targets() -> None:
    reading = Reading(pair="bi")
    tokenizer = tiny_tokenizer()
    texts = {
        "sentiment": [(word,) for word in VOCABULARY[5:15]],
        "similarity": [(one, f"{one} do") for one in VOCABULARY[5:15]],
    }
    data = {
        task.name: TaskData(task, tokenise(tokenizer, texts[task.name], reading), np.arange(10.0))
        for task in THREE_TASKS
        if task.name in texts
    }
    batch = make_batch(data, {"similarity": [7, 2], "sentiment": [4, 4]})
    do = VOCABULARY.index("do")
    assert [segment.ids.tolist() for segment in batch.segments] == [
        *([0, 12, 2], [0, 12, do, 2], [0, 7, 2], [0, 7, do, 2]),
        *([0, 9, 2], [0, 9, 2]),
    ]
    assert [s.tasks[0] for s in batch.segments] == ["similarity"] * 4 + ["sentiment"] * 2
    assert {task: list(values) for task, values in batch.targets.items()} == {
        "similarity": [7.0, 2.0],
        "sentiment": [4.0, 4.0],
    }
    assert len(data["similarity"]) == 10
