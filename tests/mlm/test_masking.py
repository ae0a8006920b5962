"""Masking against the shares that BERT names, and texts against the splits they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from tokenizers import Tokenizer, models

from building import SPECIAL, VOCABULARY, tiny_tokenizer
from mops.config.training import Training
from mops.data.dataset import Dataset, read_dataset
from mops.data.schedule import generator
from mops.data.splits import normalised
from mops.errors import DataError, EncoderError
from mops.plans.shapes import Reading
from mops.training.masked_words import (
    Corpus,
    Masked,
    build_corpus,
    gather_texts,
    mask_sequence,
    read_vocabulary,
)
from mops.training.pretrain import MaskedWords, plan_texts
from running import World, world

Texts = dict[str, list[str]]
Counts = dict[str, int]
TOKENS = read_vocabulary(tiny_tokenizer(), len(VOCABULARY))
LENGTH = 120  # 0.85^120: that no word at all is chosen does not happen


def long_sequence(draw: np.random.Generator) -> np.ndarray:
    ids = draw.integers(len(SPECIAL), len(VOCABULARY), LENGTH).astype(np.int32)
    ids[0], ids[-1], ids[50] = 0, 2, 3  # [CLS], [SEP], [UNK]
    return ids


@pytest.fixture(scope="module")
def many() -> list[tuple[np.ndarray, Masked]]:
    draw = generator(1, "many")
    sequences = [long_sequence(draw) for _ in range(400)]
    return [(ids, mask_sequence(ids, TOKENS, draw)) for ids in sequences]


def is_likely(count: int, of: int, share: float) -> bool:
    return binomtest(count, of, share).pvalue > 1e-4


def test_fifteen_in_a_hundred_words_are_chosen(many: list[tuple[np.ndarray, Masked]]) -> None:
    chosen = sum(len(masked.places) for _, masked in many)
    assert is_likely(chosen, len(many) * (LENGTH - 3), 0.15)


def test_of_the_chosen_80_are_masked_10_random_10_unchanged(
    many: list[tuple[np.ndarray, Masked]],
) -> None:
    seen = np.concatenate([masked.ids[masked.places] for _, masked in many])
    targets = np.concatenate([masked.targets for _, masked in many])
    is_mask, is_same = seen == TOKENS.mask, seen == targets
    words = len(VOCABULARY) - len(SPECIAL)
    assert is_likely(int(is_mask.sum()), len(seen), 0.8)
    assert is_likely(int(is_same.sum()), len(seen), 0.1 + 0.1 / words)  # a random word may be it
    others = seen[~is_mask & ~is_same]
    assert is_likely(len(others), len(seen), 0.1 * (1 - 1 / words))
    assert not TOKENS.is_special[others].any()
    assert len(np.unique(others)) == words  # every word may be drawn


def test_special_tokens_are_never_chosen_and_the_rest_is_untouched(
    many: list[tuple[np.ndarray, Masked]],
) -> None:
    for ids, masked in many:
        assert not TOKENS.is_special[ids[masked.places]].any()
        np.testing.assert_array_equal(masked.targets, ids[masked.places])
        rest = np.delete(np.arange(LENGTH), masked.places)
        np.testing.assert_array_equal(masked.ids[rest], ids[rest])


def test_a_short_sequence_has_one_chosen_word_at_least() -> None:
    """Of n words 0.15 n + 0.85^n are chosen on average."""
    draw, ids = generator(2, "short"), np.array([0, 7, 8, 9, 2], dtype=np.int32)
    counts = [len(mask_sequence(ids, TOKENS, draw).places) for _ in range(20_000)]
    assert min(counts) == 1
    spread = np.std(counts) / np.sqrt(len(counts))
    assert abs(np.mean(counts) - (0.45 + 0.85**3)) < 4 * spread


def test_the_vocabulary_of_a_tokenizer() -> None:
    assert TOKENS.mask == VOCABULARY.index("[MASK]")
    assert np.flatnonzero(TOKENS.is_special).tolist() == list(range(len(SPECIAL)))
    added = tiny_tokenizer()
    added.add_special_tokens(["[USER]"])
    assert read_vocabulary(added, len(VOCABULARY) + 1).is_special[-1]
    roberta = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "<mask>": 2}, unk_token="<unk>"))
    assert read_vocabulary(roberta, 3).words.tolist() == [1]
    assert read_vocabulary(roberta, 3).mask == 2


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    plain = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    with pytest.raises(EncoderError, match=r"no mask token.*name another encoder"):
        read_vocabulary(plain, 2)


# ------------------------------------------------------------------ the corpus


@pytest.fixture(scope="module")
def made() -> World:
    return world()


@pytest.fixture(scope="module")
def gathered(made: World) -> tuple[Texts, Counts]:
    return gather_texts(read_dataset(made.recipe()))


@pytest.fixture(scope="module")
def texts(gathered: tuple[Texts, Counts]) -> Texts:
    return gathered[0]


def build(dataset: Dataset) -> Corpus:
    return build_corpus(dataset, tiny_tokenizer(), len(VOCABULARY), Reading(max_length=32))


@pytest.fixture(scope="module")
def corpus(made: World) -> Corpus:
    return build(read_dataset(made.recipe()))


def test_masks_are_new_in_every_pass_and_the_same_in_every_run(corpus: Corpus) -> None:
    size = len(corpus.train)  # of a batch: a step is a pass
    schedule = plan_texts(Training(seed=5), size, size)
    words = MaskedWords(corpus=corpus, schedule=schedule, is_new_head=True)
    first, again, later = (words.make_batch(step).segments for step in (0, 0, 1))
    text = {id(ids): n for n, ids in enumerate(corpus.train)}
    assert len(text) == size
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.ids, two.ids)
        np.testing.assert_array_equal(one.places, two.places)

    def by_text(batch: Sequence[Masked]) -> dict[bytes, bytes]:
        found = {}
        for masked in batch:
            whole = masked.ids.copy()
            whole[masked.places] = masked.targets
            found[whole.tobytes()] = masked.ids.tobytes()
        return found

    before, after = by_text(first), by_text(later)
    assert set(before) == set(after) == {ids.tobytes() for ids in corpus.train}
    assert sum(before[whole] != after[whole] for whole in before) > size / 2


def test_no_text_is_trained_that_is_held_out_or_judged_elsewhere(
    made: World, gathered: tuple[Texts, Counts]
) -> None:
    texts, counts = gathered
    splits = read_dataset(made.recipe()).splits
    judged = {
        normalised(text)
        for task in splits.values()
        for split in ("validation", "test")
        for row in task[split].rows
        for text in row.texts
    }
    keys = {part: {normalised(text) for text in own} for part, own in texts.items()}
    train, held_out = keys["train"], keys["selection"] | keys["report"]
    rows = [row for task in splits.values() for row in task["train"].good]
    everything = {normalised(text) for row in rows for text in row.texts}
    assert not train & judged and not held_out & judged and not train & held_out
    for row in rows:  # no wording of a held-out text either, where a pair tells
        together = {normalised(text) for text in row.texts}
        assert not together & held_out or not together & train
    assert len(train) == len(texts["train"]) and len(held_out) == counts["held_out"] > 10
    assert counts["distinct"] == len(everything)
    assert counts["left_out_as_in_validation_or_test"] == len(everything & judged)
    assert len(everything) == sum(counts[key] for key in counts if key != "distinct")


def test_the_same_text_in_validation_is_left_out_whatever_its_spelling(
    made: World, gathered: tuple[Texts, Counts], tmp_path: Path
) -> None:
    texts, counts = gathered
    for file in made.data.iterdir():
        (tmp_path / file.name).write_text(file.read_text("utf-8"), "utf-8")
    taken = texts["train"][0]
    dev = tmp_path / "ids-sst-dev.csv"
    dev.write_text(dev.read_text("utf-8") + f"99\tx99\t {taken.upper()} !\t1\n", "utf-8")
    fewer, new_counts = gather_texts(read_dataset(made.recipe(data=tmp_path)))
    assert not any(taken in own for own in fewer.values())
    count = "left_out_as_in_validation_or_test"
    assert new_counts[count] == counts[count] + 1


def test_seed_and_order_do_not_change_what_is_held_out(made: World, texts: Texts) -> None:
    other, _ = gather_texts(read_dataset(made.recipe(training__seed=99)))
    dataset = read_dataset(made.recipe())
    turned = replace(dataset, splits=dict(reversed(dataset.splits.items())))
    assert other["report"] == texts["report"]
    assert gather_texts(turned)[0]["train"] == texts["train"]


def test_too_few_texts(made: World) -> None:
    dataset = read_dataset(made.recipe())
    few = {
        name: {**splits, "train": replace(splits["train"], rows=splits["train"].rows[:4])}
        for name, splits in dataset.splits.items()
        if name == "sentiment"
    }
    with pytest.raises(DataError, match=r"only \d distinct training texts .* at least 10"):
        gather_texts(replace(dataset, splits=few))


def test_texts_without_a_known_word_are_left_out_and_counted(made: World, corpus: Corpus) -> None:
    dataset = read_dataset(made.recipe())
    splits = dataset.splits["sentiment"]
    strange = replace(splits["train"].rows[0], texts=("Ωμέγα",))
    more = replace(splits["train"], rows=(*splits["train"].rows, strange))
    longer = {**dataset.splits, "sentiment": {**splits, "train": more}}
    counts = build(replace(dataset, splits=longer)).counts
    assert counts["without_known_words"] == 1 and corpus.counts["without_known_words"] == 0
    assert counts["distinct"] == corpus.counts["distinct"] + 1
    kept = sum(counts[part] for part in ("train", "selection", "report"))
    assert kept == counts["held_out"] + corpus.counts["train"]
    foreign = Tokenizer(models.WordLevel({"[UNK]": 0, "[MASK]": 1}, unk_token="[UNK]"))
    with pytest.raises(DataError, match="different languages"):
        build_corpus(dataset, foreign, 2, Reading(max_length=32))
