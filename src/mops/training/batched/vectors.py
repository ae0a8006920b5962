"""The shelf: rows of many runs read and tokenised once, with the frozen vectors of their texts.

Shapes: U distinct sequences that are needed, K sequences of a row, R rows, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mops.data.batches import TaskData
from mops.data.dataset import encode_targets
from mops.data.examples import Row
from mops.data.tokens import TokenTable, tokenise_cached
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.predict.inference import Predictions, decide, find_distinct, pool_segments
from mops.tasks import Task
from mops.training.feature_cache import open_cache
from mops.training.prepare import Prepared

Ints = NDArray[np.int64]
# (task, sequences) -> a pooled vector for each, before the pooler; all in one piece
Features = Callable[[str, TokenTable], NDArray[np.float32]]
ASKED = 8192  # vectors that pass late layers and heads at a time; bounds memory


@dataclass
class TaskShelf:
    """All rows of one task."""

    task: Task
    splits: Mapping[str, tuple[Row, ...]]
    tables: Mapping[str, TokenTable]
    number: Mapping[tuple[str, ...], int]  # texts of a row -> its number over all splits
    distinct: TokenTable
    sequences_RK: Ints  # into the distinct ones
    places: Ints  # distinct sequence -> its vector, -1 where none was needed
    pooled_UD: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    vectors_UD: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # after the pooler

    @cached_property
    def training(self) -> TaskData:
        return TaskData(
            self.task, self.tables["train"], encode_targets(self.task, self.splits["train"])
        )

    def some(self, rows: Sequence[Row]) -> TaskData:
        """Some of the rows, tokenised already."""
        sequences_RK = self.sequences_RK[self.numbers([row.texts for row in rows])]
        table = replace(
            choose(self.distinct, sequences_RK.flatten()), per_row=sequences_RK.shape[1]
        )
        return TaskData(self.task, table, encode_targets(self.task, rows))

    def numbers(self, texts: Sequence[tuple[str, ...]]) -> Ints:
        return np.array([self.number[row] for row in texts], dtype=np.int64)

    def fill(self, rows: Ints, features: Features, poolers: Sequence[nn.Module]) -> None:
        """Compute the vectors of these rows, each distinct sequence once."""
        needed = np.unique(self.sequences_RK[rows])
        self.places[needed] = np.arange(len(needed))
        given = features(self.task.name, choose(self.distinct, needed))
        self.pooled_UD = torch.from_numpy(np.require(given, np.float32, ("C", "W")))
        self.vectors_UD = self.pooled_UD
        with torch.no_grad():
            for pooler in poolers:
                parts = torch.split(self.vectors_UD, ASKED)
                self.vectors_UD = torch.cat([pooler(part) for part in parts])

    def where(self, rows: Ints) -> Tensor:
        """The places of these rows' vectors, R K."""
        return torch.from_numpy(self.places[self.sequences_RK[rows]])

    def outputs(self, network: Network, rows: Ints) -> NDArray[np.float32]:
        """What the network says of these rows; the trunk is not asked again."""
        network.eval()
        found = []
        with torch.inference_mode():
            for part in np.array_split(rows, max(1, len(rows) // ASKED)):
                pooled_ND = self.pooled_UD[self.where(part).flatten()]
                answer = network.task_outputs(self.task.name, pooled_ND)
                found.append(answer.float().cpu().numpy())
        return np.concatenate(found)


@dataclass(frozen=True)
class Known:
    """A network's answers for rows on the shelf; asked as a predictor is."""

    network: Network
    shelf: Mapping[str, TaskShelf]

    def predict_tasks(
        self, asked: Mapping[str, Sequence[tuple[str, ...]]]
    ) -> dict[str, Predictions]:
        return {name: self.answer(self.shelf[name], texts) for name, texts in asked.items()}

    def answer(self, shelf: TaskShelf, texts: Sequence[tuple[str, ...]]) -> Predictions:
        return decide(shelf.task, shelf.outputs(self.network, shelf.numbers(texts)))


def build_shelf(ready: Prepared) -> dict[str, TaskShelf]:
    """Tokenise every row that a run of this dataset may ask for."""
    return {name: task_shelf(ready, name) for name in ready.dataset.tasks}


def task_shelf(ready: Prepared, name: str) -> TaskShelf:
    read = ready.dataset.splits[name]
    splits = {split: of.good if split == "train" else of.rows for split, of in read.items()}
    tables = {
        split: tokenise_cached(
            ready.source.tokenizer, [row.texts for row in rows], ready.layout.reading
        )
        for split, rows in splits.items()
    }
    texts = [row.texts for rows in splits.values() for row in rows]
    distinct, sequences = unite(list(tables.values()))
    per_row = tables["train"].per_row
    return TaskShelf(
        task=ready.dataset.tasks[name],
        splits=splits,
        tables=tables,
        number={row: n for n, row in enumerate(texts)},
        distinct=distinct,
        sequences_RK=sequences.reshape(-1, per_row),
        places=np.full(len(distinct), -1, dtype=np.int64),
    )


def unite(tables: Collection[TokenTable]) -> tuple[TokenTable, Ints]:
    """All different sequences of some tables, and for each sequence which of them it is."""
    found: dict[tuple[bytes, bytes], int] = {}
    kept: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    numbers = []
    for ids, types in (pair for t in tables for row in range(len(t)) for pair in t.row(row)):
        key = ids.tobytes(), types.tobytes()
        if key not in found:
            found[key] = len(kept)
            kept.append((ids, types))
        numbers.append(found[key])
    return table_of(kept), np.array(numbers, dtype=np.int64)


def choose(table: TokenTable, numbers: Ints) -> TokenTable:
    """Some sequences of a table that has one a row."""
    return table_of([pair for number in numbers for pair in table.row(int(number))])


def table_of(pairs: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]]) -> TokenTable:
    lengths = [len(ids) for ids, _ in pairs]
    return TokenTable(
        ids=np.concatenate([ids for ids, _ in pairs]),
        types=np.concatenate([types for _, types in pairs]),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        per_row=1,
    )


def pooled_vectors(network: Network) -> Features:
    """From the cache of frozen layers; where it is off, straight from the trunk."""
    cache = open_cache(network)
    return cache.pooled if cache else partial(computed_vectors, network)


def computed_vectors(network: Network, task: str, table: TokenTable) -> NDArray[np.float32]:
    """Every distinct sequence once through the trunk, which must be frozen."""
    network.eval()
    asked = find_distinct({task: table}, slice(None))
    with torch.inference_mode():
        pooled = pool_segments(network, asked, partial(pack_segments, layout=network.layout))
    places = pooled.places[task][asked.numbers[task]]
    return pooled.vectors_SD.numpy()[places]
