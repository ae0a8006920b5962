"""Feature tables: the frozen vectors of all rows of a task, shared by the runs of a batch, and the
objective of a run that reads them.

Shapes: R rows, K sequences of a row, U distinct sequences that are needed, D width, O outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Batch, TaskData, Texts, tokenise_cached
from mops.data.schedule import Place, Schedule
from mops.evaluate.evaluate import sample
from mops.model.network import Network
from mops.predict.bundle import Bundle
from mops.predict.inference import Predictions, decide, find_distinct
from mops.training.checkpoint import TrainerState
from mops.training.feature_cache import FeatureCache
from mops.training.losses import loss_of
from mops.training.prepare import Outputs, Prepared, TakeRows, TaskObjective, task_data
from mops.training.tracking import Tell

Ints = NDArray[np.int64]
CHUNK = 8192  # vectors that pass late layers and heads at a time; bounds memory


@dataclass(frozen=True)
class FeatureTable(TaskData):
    """The training rows of one task, and the vectors of its rows in all splits.

    Training rows have the lowest numbers; those that no run reads have no vectors.
    """

    numbers: Mapping[Texts, int]  # texts of a row -> its number
    places_RK: Ints  # row -> the vectors of its sequences
    lengths_R: Ints  # tokens of each training row
    pooled_UD: Tensor
    vectors_UD: Tensor  # after the pooler

    def compute_outputs(self, network: Network, rows_R: Ints) -> Tensor:
        """The outputs of a network for these rows, without running its encoder."""
        return network.task_outputs(self.task.name, self.pooled_rows(rows_R))

    def pooled_rows(self, rows_R: Ints) -> Tensor:
        return self.pooled_UD[torch.from_numpy(self.places_RK[rows_R].flatten())]

    def predict(self, network: Network, texts: Sequence[Texts]) -> Predictions:
        return decide(self.task, self.outputs_of(network, texts))

    def outputs_of(self, network: Network, texts: Sequence[Texts]) -> Outputs:
        """The outputs that predictions are made of."""
        network.eval()
        rows_R = np.array([self.numbers[row] for row in texts], dtype=np.int64)
        chunks = np.array_split(rows_R, max(1, len(rows_R) // CHUNK))
        with torch.inference_mode():
            pooled = (self.pooled_rows(chunk) for chunk in chunks)
            outputs = [network.decisive_outputs(self.task.name, vectors) for vectors in pooled]
        return torch.cat(outputs).float().numpy()


FeatureTables = Mapping[str, FeatureTable]


def build_table(
    ready: Prepared,
    name: str,
    schedules: Sequence[Schedule],
    cache: FeatureCache,
    tell: Tell,
) -> FeatureTable:
    """Tokenise all rows of a task; look up or compute the vectors that runs with these schedules
    need, for each distinct sequence once.
    """
    tell("tokenising")
    splits = dict(ready.dataset.splits[name])
    train = splits.pop("train")
    training = task_data(ready, name, train.good)
    others = [row.texts for split in splits.values() for row in split.rows]
    tokens = tokenise_cached(ready.source.tokenizer, others, ready.layout.reading.of(name))
    segments, own = find_distinct({"train": training.tokens, "others": tokens}, slice(None))
    segments_RK = np.concatenate(list(own.values())).reshape(-1, tokens.per_row)
    numbers = {row: n for n, row in enumerate([*(row.texts for row in train.good), *others])}
    needed = set(range(len(training), len(segments_RK)))
    for schedule in schedules:
        needed.update(training_rows(schedule, name).tolist())
        needed.update(numbers[row.texts] for row in sample(train, name, schedule.seed))
    tell("encoding")
    distinct = np.unique(segments_RK[sorted(needed)])
    places = np.full(len(segments), -1)
    places[distinct] = np.arange(len(distinct))
    pooled_UD = torch.from_numpy(cache.pooled(name, [segments[n] for n in distinct.tolist()]))
    return FeatureTable(
        **vars(training),
        numbers=numbers,
        places_RK=places[segments_RK],
        lengths_R=training.tokens.row_lengths,
        pooled_UD=pooled_UD,
        vectors_UD=apply_pooler(cache.network, name, pooled_UD),
    )


@torch.no_grad()
def apply_pooler(network: Network, task: str, vectors_UD: Tensor) -> Tensor:
    for owner in network.layout.routes[task].pooler:
        vectors_UD = torch.cat(
            [network.bank[owner](part) for part in torch.split(vectors_UD, CHUNK)]
        )
    return vectors_UD


def training_rows(schedule: Schedule, task: str) -> Ints:
    """The rows of all steps of a task, in the order of `Schedule.places`."""
    wanted, size = schedule.rows_before(len(schedule))[task], schedule.sizes[task]
    passes = [schedule.pass_rows(task, n) for n in range(-(-wanted // size))]
    return np.concatenate([np.zeros(0, np.int64), *passes])[:wanted]


@dataclass(frozen=True)
class TablePredictor:
    """The predictions of a `Predictor`, for rows that are in feature tables."""

    tables: FeatureTables
    bundle: Bundle
    device: str

    def predict_tasks(self, texts: Mapping[str, Sequence[Texts]], /) -> dict[str, Predictions]:
        network = self.bundle.network
        return {name: self.tables[name].predict(network, own) for name, own in texts.items()}


@dataclass(frozen=True)
class NumberedRows(Batch):
    """The training rows of a step by their numbers in the feature tables."""

    rows: Mapping[str, Ints] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return False


def number_rows(chosen: Mapping[str, Sequence[Place]]) -> NumberedRows:
    rows = {name: np.array([place.row for place in own]) for name, own in chosen.items()}
    return NumberedRows((), {}, rows=rows)


@dataclass(kw_only=True)
class FeatureObjective(TaskObjective):
    """The tasks of one run, read from feature tables instead of texts."""

    data: FeatureTables
    take: TakeRows = number_rows

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """The losses of one network by itself."""
        assert isinstance(batch, NumberedRows)
        losses = {}
        for name, rows_R in batch.rows.items():
            table = self.data[name]
            targets_R = torch.from_numpy(table.targets[rows_R])
            losses[name] = loss_of(table.task, table.compute_outputs(network, rows_R), targets_R)
        return losses

    def enter_stage(self, network: Network, state: TrainerState, tell: Tell) -> None:
        """Nothing to do: the frozen layers are computed already."""

    def selection_outputs(self, network: Network) -> Mapping[str, Outputs]:
        selection = self.selection.items()
        return {name: self.data[name].outputs_of(network, own.texts) for name, own in selection}
