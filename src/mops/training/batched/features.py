"""Feature tables: the frozen vectors of all rows of a task, shared by the runs of a batch, and the
objective of a run that reads them.

Shapes: R rows, K sequences of a row, P training rows in the order in which a run takes them,
U distinct sequences that are needed, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Batch, Segment, TaskData
from mops.data.schedule import Schedule, shuffled
from mops.data.tokens import tokenise_cached
from mops.evaluate.metrics import score
from mops.model.network import Network
from mops.predict.bundle import Bundle
from mops.predict.inference import Predictions, decide, find_distinct
from mops.tasks import Task
from mops.training.checkpoint import TrainerState
from mops.training.feature_cache import FeatureCache
from mops.training.losses import loss_of
from mops.training.prepare import Prepared, TaskObjective, TaskScores, task_data

Ints = NDArray[np.int64]
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
    pooled_UD: Tensor = field(init=False)
    vectors_UD: Tensor = field(init=False)  # after the pooler

    def find_rows(self, texts: Iterable[tuple[str, ...]]) -> Ints:
        return np.array([self.row_numbers[row] for row in texts], dtype=np.int64)

    def fill(self, rows_R: Ints, cache: FeatureCache) -> None:
        """Look up or compute the vectors of these rows, each distinct sequence once."""
        name, network = self.task.name, cache.network
        needed = np.unique(self.sequences_RK[rows_R])
        self.places[needed] = np.arange(len(needed))
        vectors = cache.pooled(name, [self.segments[n] for n in needed.tolist()])
        self.pooled_UD = self.vectors_UD = torch.from_numpy(vectors)
        with torch.no_grad():
            for owner in network.layout.routes[name].pooler:
                parts = torch.split(self.vectors_UD, CHUNK)
                self.vectors_UD = torch.cat([network.bank[owner](part) for part in parts])

    def find_vectors(self, rows_R: Ints) -> Tensor:
        """The places of the vectors of these rows, R K."""
        return torch.from_numpy(self.places[self.sequences_RK[rows_R]])

    def predict(self, network: Network, rows_R: Ints) -> Predictions:
        """The predictions of a network for these rows, without running its encoder."""
        network.eval()
        outputs = []
        with torch.inference_mode():
            for part in np.array_split(rows_R, max(1, len(rows_R) // CHUNK)):
                pooled_ND = self.pooled_UD[self.find_vectors(part).flatten()]
                outputs_RO = network.task_outputs(self.task.name, pooled_ND)
                outputs.append(outputs_RO.float().numpy())
        return decide(self.task, np.concatenate(outputs))


FeatureTables = Mapping[str, FeatureTable]


def build_table(ready: Prepared, name: str) -> FeatureTable:
    """Tokenise every row of a task, of all splits; the table has no vectors yet."""
    splits = dict(ready.dataset.splits[name])
    training = task_data(ready, name, splits["train"].good)
    texts = {"train": [row.texts for row in splits.pop("train").good]}
    tokens = {"train": training.tokens}
    for split, data in splits.items():
        texts[split] = [row.texts for row in data.rows]
        tokens[split] = tokenise_cached(ready.source.tokenizer, texts[split], ready.layout.reading)
    segments, numbers = find_distinct(tokens, slice(None))
    sequences = np.concatenate([numbers[split] for split in texts if texts[split]])
    rows = (row for split in texts.values() for row in split)
    return FeatureTable(
        task=training.task,
        training=training,
        row_numbers={row: number for number, row in enumerate(rows)},
        segments=[Segment(s.ids, s.types, (name,)) for s in segments],
        sequences_RK=sequences.reshape(-1, training.tokens.per_row),
        places=np.full(len(segments), -1, dtype=np.int64),
    )


@dataclass(frozen=True)
class TablePredictor:
    """The predictions of a `Predictor`, for rows that are in feature tables."""

    tables: FeatureTables
    bundle: Bundle
    device: str

    def predict_tasks(
        self, rows: Mapping[str, Sequence[tuple[str, ...]]], /
    ) -> dict[str, Predictions]:
        network, tables = self.bundle.network, self.tables
        return {
            name: tables[name].predict(network, tables[name].find_rows(texts))
            for name, texts in rows.items()
        }


# ------------------------------------------------------------------ the rows of one run


def training_rows(schedule: Schedule, task: str) -> Ints:
    """The rows of all steps of a task, in the order of `Schedule.places`."""
    wanted, size = schedule.rows_before(len(schedule))[task], schedule.sizes[task]
    passes = [shuffled(size, schedule.seed, task, n) for n in range(-(-wanted // size))]
    rows: Ints = np.concatenate([np.zeros(0, np.int64), *passes])[:wanted]
    return rows


@dataclass(frozen=True)
class RowOrder:
    """The training rows that one run takes from one task, in order."""

    vectors_PK: Tensor  # the places of their vectors in the feature table
    targets_P: Tensor
    tokens: Ints  # in all rows before each one


@dataclass(frozen=True)
class OrderedRows(Batch):
    """The rows of a step as slices of each task's `RowOrder`."""

    slices: Mapping[str, slice] = field(default_factory=dict)


@dataclass(kw_only=True)
class FeatureObjective(TaskObjective):
    """The tasks of one run, read from feature tables instead of texts."""

    tables: FeatureTables
    selection_rows: Mapping[str, Ints]  # in the feature tables

    @cached_property
    def orders(self) -> dict[str, RowOrder]:
        orders = {}
        for name, table in self.tables.items():
            rows = training_rows(self.schedule, name)
            lengths = table.training.tokens.row_lengths[rows]
            orders[name] = RowOrder(
                vectors_PK=table.find_vectors(rows),
                targets_P=torch.as_tensor(table.training.targets[rows], dtype=torch.float32),
                tokens=np.concatenate([[0], np.cumsum(lengths)]),
            )
        return orders

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> OrderedRows:
        before, rows = self.schedule.rows_before(step), self.schedule.steps[step]
        chosen = rows if tasks is None else tasks
        slices = {task: slice(before[task], before[task] + rows[task]) for task in chosen}
        return OrderedRows((), {}, self.schedule.scale(step), slices=slices)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """The losses of one network by itself."""
        assert isinstance(batch, OrderedRows)
        losses = {}
        for task, rows in batch.slices.items():
            order, table = self.orders[task], self.tables[task]
            pooled_ND = table.pooled_UD[order.vectors_PK[rows].flatten()]
            outputs_RO = network.task_outputs(task, pooled_ND)
            losses[task] = loss_of(table.task, outputs_RO, order.targets_P[rows])
        return losses

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Nothing to do: the frozen layers are computed already."""

    def selection_scores(self, network: Network) -> TaskScores:
        scores = {}
        for name, data in self.selection.items():
            predictions = self.tables[name].predict(network, self.selection_rows[name])
            scores[name] = score(data.task, data.targets, predictions.values)
        return scores
