"""Outputs: each distinct sequence is computed once, bit-identical to each row alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from building import DEPTH, NAMES, THREE_TASKS, build_network, outputs_of, shake, words_of
from mops.data.batches import Segment, TokenTable
from mops.model.network import Network
from mops.model.packing import Pack, pack_segments
from mops.plans.catalog import every_plan
from mops.plans.rows import Addition, SharingPlan
from mops.plans.shapes import HeadShape, Reading
from mops.predict import inference
from mops.predict.inference import compute_outputs

SENTIMENT, PARAPHRASE, SIMILARITY = NAMES
ROWS = {SENTIMENT: 11, PARAPHRASE: 7, SIMILARITY: 4}
TASKS_PART_ON_TOP = SharingPlan(
    name="part-on-top",
    additions=(
        Addition(
            name="top",
            kind="pal",
            sites=("on_top",),
            depth=2,
            per={"down": (), "attend": ("layer", "task"), "up": (), "gate": ("task",)},
            groups=(("sentiment", "paraphrase"),),
        ),
    ),
)
PLANS = (*every_plan(DEPTH, NAMES), TASKS_PART_ON_TOP)
over_pairs = pytest.mark.parametrize("pair", ["bi", "cross"])


def table_of(sequences: Sequence[tuple[int, int]], per_row: int) -> TokenTable:
    """Sequences as (length, seed)."""
    ids = [words_of(length, seed) for length, seed in sequences]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in ids])])
    flat = np.concatenate([*ids, np.zeros(0, np.int32)])
    return TokenTable(flat, np.zeros_like(flat), starts, per_row)


def some_tables(network: Network) -> dict[str, TokenTable]:
    """Rows of every task; a third of the sequences are the same ones over and over."""
    draw = np.random.default_rng(0)
    tables = {}
    for name, rows in ROWS.items():
        per_row = 1 + network.layout.reading.texts_apart(network.layout.tasks[name].is_pair)
        drawn = [
            (5, 1) if n % 3 == 0 else (int(draw.integers(1, 30)), int(draw.integers(4)))
            for n in range(rows * per_row)
        ]
        tables[name] = table_of(drawn, per_row)
    return tables


def assert_as_alone(network: Network, tables: dict[str, TokenTable], **options: Any) -> None:
    found = compute_outputs(network, tables, **options)
    for task, table in tables.items():
        for row in range(len(table)):
            alone = [Segment(ids, types, (task,)) for ids, types in table.row(row)]
            expected = outputs_of(network, alone)[task]
            assert torch.equal(torch.from_numpy(found[task][row : row + 1]), expected)
        assert len(np.unique(found[task])) > 2  # not the same for all


def shaken(plan: Any, folder: Any, **options: Any) -> Network:
    """Adapters and heads start near zero; here every weight has an effect."""
    network = build_network(plan, folder("bert"), **options)
    shake(network, seed=3, size=0.05)
    return network


class Packs:
    """A packer that records its inputs and outputs."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.given: list[Sequence[Segment]] = []
        self.made: list[Pack] = []

    def __call__(self, segments: Sequence[Segment]) -> Pack:
        self.given.append(segments)
        self.made.append(pack_segments(segments, self.network.layout))
        return self.made[-1]


@over_pairs
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_all_tasks_at_once_get_the_bits_of_each_row_alone(
    plan: Any, pair: str, encoder_folder: Any
) -> None:
    heads = {"similarity": HeadShape(kind="cosine")} if pair == "bi" and not plan.feeds else {}
    network = shaken(plan, encoder_folder, reading=Reading(pair=pair, heads=heads))
    assert_as_alone(network, some_tables(network))


@over_pairs
def test_a_sequence_is_packed_once_with_all_tasks_that_read_it(
    pair: str, encoder_folder: Any
) -> None:
    network = shaken("hybrid:2", encoder_folder, reading=Reading(pair=pair))
    tables, packs = some_tables(network), Packs(network)
    compute_outputs(network, tables, packs)
    readers: dict[tuple[int, ...], set[str]] = {}
    for task, table in tables.items():
        for row in range(len(table)):
            for ids, _ in table.row(row):
                readers.setdefault(tuple(ids.tolist()), set()).add(task)
    given = [segment for segments in packs.given for segment in segments]
    assert {tuple(segment.ids.tolist()): set(segment.tasks) for segment in given} == readers
    assert len(given) == len(readers) < sum(len(table.lengths) for table in tables.values())
    assert all(len(set(segment.tasks)) == len(segment.tasks) for segment in given)


def test_the_same_words_with_other_types_are_another_sequence(encoder_folder: Any) -> None:
    network = shaken("shared", encoder_folder)
    one = table_of([(6, 1)], 1)
    other = TokenTable(one.ids, np.ones_like(one.types), one.starts, 1)
    found = compute_outputs(network, {PARAPHRASE: one, SIMILARITY: other})
    alone = compute_outputs(network, {SIMILARITY: other})
    assert np.array_equal(found[SIMILARITY], alone[SIMILARITY])
    plain = compute_outputs(network, {SIMILARITY: one})
    assert not np.array_equal(found[SIMILARITY], plain[SIMILARITY])
    packs = Packs(network)
    compute_outputs(network, {PARAPHRASE: one, SIMILARITY: other}, packs)
    assert [segment.tasks for segment in packs.given[0]] == [(PARAPHRASE,), (SIMILARITY,)]


def test_shared_layers_see_each_distinct_token_once(encoder_folder: Any) -> None:
    """`hybrid:2` splits into three branches above the second layer."""
    network = shaken("hybrid:2", encoder_folder)
    packs = Packs(network)
    table = table_of([(9, 1), (4, 2), (9, 1)], 1)
    compute_outputs(network, dict.fromkeys(NAMES, table), packs)
    (pack,) = packs.made
    widths = [sum(s.tokens.stop - s.tokens.start for s in stage.spans["attention"])
              for stage in pack.layers]  # fmt: skip
    assert widths == [13, 13, 39, 39]


def test_packs_hold_about_as_many_tokens_and_lengths_that_are_alike(
    encoder_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "PACK_TOKENS", 40)
    network = shaken("shared", encoder_folder)
    packs = Packs(network)
    assert_as_alone(network, some_tables(network), pack=packs)
    lengths = [[len(segment.ids) for segment in segments] for segments in packs.given]
    assert len(lengths) > 2
    flat = list(chain(*lengths))
    assert flat == sorted(flat, reverse=True)
    assert all(sum(pack) < 40 + max(pack) for pack in lengths)
    assert all(sum(pack) + max(after) > 40 - max(pack) for pack, after in pairwise(lengths))


@pytest.mark.parametrize("window", [1, 3, 8])
def test_windows_change_nothing(
    window: int, encoder_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = shaken("hybrid:2", encoder_folder, reading=Reading(pair="bi"))
    tables = some_tables(network)
    whole = compute_outputs(network, tables)
    monkeypatch.setattr(inference, "WINDOW", window)
    for task, found in compute_outputs(network, tables).items():
        np.testing.assert_array_equal(found, whole[task])


def test_a_network_in_training_mode_predicts_without_dropout(encoder_folder: Any) -> None:
    network = shaken("shared", encoder_folder, dropout=0.5)
    tables = some_tables(network)
    expected = compute_outputs(network, tables)
    for task, found in compute_outputs(network.train(), tables).items():
        np.testing.assert_array_equal(found, expected[task])


def test_a_task_without_rows_gets_no_outputs(encoder_folder: Any) -> None:
    network = shaken("separate", encoder_folder)
    tables = some_tables(network) | {SENTIMENT: table_of([], 1)}
    found = compute_outputs(network, tables)
    assert found[SENTIMENT].shape == (0, THREE_TASKS[0].outputs)
    assert len(found[SIMILARITY]) == ROWS[SIMILARITY]
    assert compute_outputs(network, {}) == {}
