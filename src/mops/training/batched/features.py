"""Feature tables: the frozen vectors of all rows of a task, shared by the runs of a batch.

Shapes: R rows, K sequences of a row, U distinct sequences that are needed, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mops.data.batches import Segment, TaskData
from mops.data.tokens import tokenise_cached
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.predict.inference import (
    Predictions,
    decide,
    find_distinct,
    pool_segments,
)
from mops.tasks import Task
from mops.training.feature_cache import open_cache
from mops.training.prepare import Prepared, task_data

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
# (task, distinct sequences) -> the pooled vector of each, before the pooler
Features = Callable[[str, Sequence[Segment]], Floats]
CHUNK = 8192  # vectors that pass late layers and heads at a time; bounds memory


@dataclass
class FeatureTable:
    """The rows of one task, training rows first, and the vectors of those that are needed."""

    task: Task
    training: TaskData
    row_numbers: Mapping[tuple[str, ...], int]  # texts of a row -> its number
    segments: Sequence[Segment]  # the distinct sequences
    sequences_RK: Ints  # row -> its sequences
    places: Ints  # sequence -> its vector
    pooled_UD: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    vectors_UD: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # after the pooler

    def find_rows(self, texts: Sequence[tuple[str, ...]]) -> Ints:
        return np.array([self.row_numbers[row] for row in texts], dtype=np.int64)

    def fill(self, rows_R: Ints, features: Features, poolers: Sequence[nn.Module]) -> None:
        """Compute the vectors of these rows, each distinct sequence once."""
        needed = np.unique(self.sequences_RK[rows_R])
        self.places[needed] = np.arange(len(needed))
        vectors = features(self.task.name, [self.segments[n] for n in needed.tolist()])
        self.pooled_UD = torch.from_numpy(np.require(vectors, np.float32, ("C", "W")))
        self.vectors_UD = self.pooled_UD
        with torch.no_grad():
            for pooler in poolers:
                parts = torch.split(self.vectors_UD, CHUNK)
                self.vectors_UD = torch.cat([pooler(part) for part in parts])

    def find_vectors(self, rows_R: Ints) -> Tensor:
        """The places of the vectors of these rows, R K."""
        return torch.from_numpy(self.places[self.sequences_RK[rows_R]])

    def outputs(self, network: Network, rows_R: Ints) -> Floats:
        """The outputs of a network for these rows, without running its encoder."""
        network.eval()
        outputs = []
        with torch.inference_mode():
            for part in np.array_split(rows_R, max(1, len(rows_R) // CHUNK)):
                pooled_ND = self.pooled_UD[self.find_vectors(part).flatten()]
                outputs_RO = network.task_outputs(self.task.name, pooled_ND)
                outputs.append(outputs_RO.float().numpy())
        return np.concatenate(outputs)


FeatureTables = Mapping[str, FeatureTable]


@dataclass(frozen=True)
class TablePredictor:
    """The predictions of a `Predictor`, for rows that are in feature tables."""

    network: Network
    tables: FeatureTables

    def predict_tasks(
        self, rows: Mapping[str, Sequence[tuple[str, ...]]], /
    ) -> dict[str, Predictions]:
        predictions = {}
        for name, texts in rows.items():
            table = self.tables[name]
            outputs = table.outputs(self.network, table.find_rows(texts))
            predictions[name] = decide(table.task, outputs)
        return predictions


def build_table(ready: Prepared, name: str) -> FeatureTable:
    """Tokenise every row of a task, of all splits; the table has no vectors yet."""
    splits = dict(ready.dataset.splits[name])
    rows = {"train": splits.pop("train").good} | {split: s.rows for split, s in splits.items()}
    training = task_data(ready, name, rows["train"])
    texts = {split: [row.texts for row in of] for split, of in rows.items()}
    tokens = {
        split: tokenise_cached(ready.source.tokenizer, of, ready.layout.reading)
        for split, of in texts.items()
        if split != "train"
    }
    segments, numbers = find_distinct({"train": training.tokens, **tokens}, slice(None))
    sequences = np.concatenate([numbers[split] for split in rows if rows[split]])
    return FeatureTable(
        task=training.task,
        training=training,
        row_numbers={row: n for n, row in enumerate(t for of in texts.values() for t in of)},
        segments=[Segment(s.ids, s.types, (name,)) for s in segments],
        sequences_RK=sequences.reshape(-1, training.tokens.per_row),
        places=np.full(len(segments), -1, dtype=np.int64),
    )


def pooled_features(network: Network) -> Features:
    """From the feature cache; where it is off, from the frozen encoder."""
    cache = open_cache(network)
    return cache.pooled if cache else partial(compute_pooled, network)


def compute_pooled(network: Network, task: str, segments: Sequence[Segment]) -> Floats:
    """The pooled vector of each segment, before any pooler."""
    network.eval()
    pack = partial(pack_segments, layout=network.layout)
    with torch.inference_mode():
        vectors_SD, places = pool_segments(network, segments, (task,), pack)
    vectors: Floats = vectors_SD.numpy()[places[task]]
    return vectors
