"""Before the first step: data read and tokenised, encoder found, plan laid out, losses chosen."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.config.recipe import Recipe
from mops.config.training import Training, check_solver_installed
from mops.data.batches import AugmentedRows, Batch, TaskData, take_rows, tokenise_cached
from mops.data.dataset import HALVES, Dataset, Row, cut_halves, encode_targets, read_dataset
from mops.data.schedule import Place, Schedule, generator, plan_steps
from mops.errors import RecipeError
from mops.evaluate.evaluate import overall_of
from mops.evaluate.metrics import score
from mops.model.network import Network
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.layout import Layout
from mops.predict.inference import compute_outputs, decide
from mops.record import MetaInfo, machine_info
from mops.tasks import Task
from mops.training.checkpoint import ALL, TrainerState
from mops.training.distributed import ALONE, ProcessGroup
from mops.training.feature_cache import StagePackers, fill_cache
from mops.training.machine import prepare_machine
from mops.training.step import compute_losses
from mops.training.tracking import refuse_missing_trackers
from mops.training.trainer import Evaluation

SELECTION_ROWS = 2000  # of a task, for evaluations during training; the whole set at the end


@dataclass(frozen=True)
class Prepared:
    """All that a run is made of."""

    recipe: Recipe  # complete
    dataset: Dataset
    source: EncoderSource
    layout: Layout
    device: str

    @property
    def digests(self) -> dict[str, Any]:
        """Name the data and the encoder."""
        data, encoder = dict(self.dataset.digests), self.source.digest
        return {"data_sha256": data, "encoder_sha256": encoder}

    @cached_property
    def key(self) -> str:
        """Names the recipe, the data and the encoder, which a resumed run must find unchanged."""
        parts = [self.recipe.without("report_to").to_data(), *self.digests.values()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(
    recipe: Recipe,
    tell: Callable[[str], None],
    read: Callable[[Recipe], Dataset] = read_dataset,
    find: Callable[[str], EncoderSource] = find_encoder,
) -> Prepared:
    """Check a recipe and read what it names; several runs share what `read` and `find` keep."""
    device = prepare_machine(recipe.training)
    check_solver_installed(recipe.training.gradients)
    refuse_missing_trackers(recipe.training)
    tell("reading data")
    dataset = read(recipe)
    recipe = recipe.with_labels(dataset.tasks)
    source = find(recipe.encoder)
    return Prepared(recipe, dataset, source, recipe.layout(dataset.tasks, source.shape), device)


def meta_info(ready: Prepared) -> MetaInfo:
    """Where a run was made, and of what."""
    return MetaInfo(
        **machine_info(),
        device=ready.device,
        threads=torch.get_num_threads(),
        encoder=ready.source.name,
        encoder_shape=asdict(ready.source.shape),
        data_notes=tuple(ready.dataset.notes()),
        **ready.digests,
    )


def selection_rows(ready: Prepared) -> dict[str, dict[Row, str]]:
    """The validation rows of each task that choose the best state, each with its half.

    Of a large split they are a fixed sample.
    """
    selection = {}
    for name, splits in ready.dataset.splits.items():
        rows = splits["validation"].rows
        halved = [
            (r, half) for r, half in zip(rows, cut_halves(rows), strict=True) if not r.problem
        ]
        draw = generator(ready.recipe.training.seed, "selection", name)
        chosen = np.sort(draw.permutation(len(halved))[:SELECTION_ROWS])
        selection[name] = dict(halved[number] for number in chosen)
        if set(selection[name].values()) != set(HALVES):
            raise RecipeError(
                f"task {name!r}: the validation rows cannot be halved: they are too few, or all of "
                "them share sentences; add some"
            )
    return selection


def task_data(ready: Prepared, name: str, rows: tuple[Row, ...]) -> TaskData:
    task = ready.dataset.tasks[name]
    table = tokenise_cached(
        ready.source.tokenizer, [row.texts for row in rows], ready.layout.reading
    )
    return TaskData(task, table, encode_targets(task, rows))


# ------------------------------------------------------------------ the objective

TaskScores = dict[str, Mapping[str, float]]
Values = NDArray[np.float64]
TakeRows = Callable[[Mapping[str, Sequence[Place]]], Batch]


@dataclass(kw_only=True)
class TaskObjective:
    """Rows of the tasks as the schedule orders them, and three best states: by the scores on all
    validation rows, and on each half of them.
    """

    training: Training
    schedule: Schedule
    data: Mapping[str, TaskData]
    selection: Mapping[str, TaskData]  # validation rows
    halves: Mapping[str, NDArray[np.str_]]  # of each of them
    take: TakeRows
    group: ProcessGroup = ALONE
    packers: StagePackers = field(default_factory=StagePackers)
    logged: Sequence[str] = ("loss", "losses", "gradient_norm", "loss_weights", "learning_rate")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """This process's rows of a step, with the weights of their losses."""
        chosen = self.schedule.rows_at(step, tasks)
        batch = self.take(self.group.own(chosen))
        parts = self.group.parts(chosen, self.data)
        return replace(batch, scale=self.schedule.scale(step), parts=parts)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        return compute_losses(network, batch, self.packers.train)

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Compute the frozen layers of the stage once, for rows that are used again."""

        def fill() -> None:
            self.packers = fill_cache(self, network, state, tell)

        self.group.first_then_others(fill)

    def evaluate(self, network: Network, step: int) -> Evaluation:
        predictions = self.predict_selection(network)
        scores: dict[str, TaskScores] = {}
        for chooser in (ALL, *HALVES):
            scores[chooser] = {}
            for name, data in self.selection.items():
                chosen = (self.halves[name] == chooser) | (chooser == ALL)
                pair = data.targets[chosen], predictions[name][chosen]
                scores[chooser][name] = score(data.task, *pair)
        overall = {chooser: overall_of(self.judged, own) for chooser, own in scores.items()}
        return Evaluation(
            scores={chooser: own[self.training.best_by] for chooser, own in overall.items()},
            facts={"selection": scores[ALL], **overall[ALL]},
        )

    def predict_selection(self, network: Network) -> Mapping[str, Values]:
        """The predictions of each task for its selection rows, from one pass over all of them."""
        device = next(network.parameters()).device
        tables = {name: data.tokens for name, data in self.selection.items()}
        outputs = compute_outputs(network, tables, self.packers.evaluate, device)
        return {n: decide(data.task, outputs[n]).values for n, data in self.selection.items()}

    @cached_property
    def judged(self) -> dict[str, Task]:
        """The tasks that pick the best state: those that are trained."""
        tasks = {name: data.task for name, data in self.selection.items()}
        planned = self.schedule.batches_before(len(self.schedule))
        trained = {n: t for n, t in tasks.items() if planned[n] and self.training.weight(n)}
        return trained or tasks

    def position(self, step: int) -> Mapping[str, Any]:
        return {"step": step, "epoch": round(step / self.schedule.steps_per_epoch, 4)}


def build_objective(ready: Prepared, group: ProcessGroup = ALONE) -> TaskObjective:
    """The losses of all tasks; training rows are augmented where the recipe says so."""
    training, splits = ready.recipe.training, ready.dataset.splits
    rows = {name: task_splits["train"].good for name, task_splits in splits.items()}
    data = {name: task_data(ready, name, own) for name, own in rows.items()}
    take: TakeRows = partial(take_rows, data)
    if training.augment is not None:
        take = AugmentedRows(
            data=data,
            texts={name: [row.texts for row in own] for name, own in rows.items()},
            tokenizer=ready.source.tokenizer,
            reading=ready.layout.reading,
            augment=training.augment,
            seed=training.seed,
        ).take
    sizes = {name: len(own) for name, own in data.items()}
    selection = selection_rows(ready)
    return TaskObjective(
        training=training,
        schedule=plan_steps(sizes, group.joined(training)),
        data=data,
        selection={name: task_data(ready, name, tuple(own)) for name, own in selection.items()},
        halves={name: np.array(list(own.values())) for name, own in selection.items()},
        take=take,
        group=group,
    )
