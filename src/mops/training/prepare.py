"""Before the first step: data read and tokenised, encoder found, plan laid out, losses chosen."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.config.recipe import Recipe
from mops.config.training import TaskEntry, Training, check_solver_installed
from mops.data.batches import (
    AugmentedRows,
    Batch,
    TaskData,
    Texts,
    TokenTable,
    take_rows,
    tokenise_cached,
)
from mops.data.dataset import Dataset, encode_targets, read_dataset
from mops.data.schedule import Place, Schedule, generator, plan_steps
from mops.data.splits import HALVES, Row, cut_halves
from mops.errors import RecipeError
from mops.evaluate.evaluate import overall_of
from mops.evaluate.metrics import score
from mops.files import file_digest
from mops.model.blocks import Dense
from mops.model.network import THRESHOLD, Network
from mops.model.packing import Packer
from mops.model.pretrained import check_encoder, load_pretrained
from mops.model.sources import EncoderSource, Source, find_encoder
from mops.plans.joining import starting_owners
from mops.plans.layout import Layout
from mops.predict.bundle import Bundle
from mops.predict.inference import compute_outputs, decide
from mops.record import MetaInfo, machine_info
from mops.tasks import Task
from mops.training.checkpoint import ALL, STATE, TrainerState, load, saved_step
from mops.training.distributed import ALONE, ProcessGroup
from mops.training.feature_cache import fill_rows, open_cache, reused_rows
from mops.training.machine import has_bfloat16, prepare_machine
from mops.training.step import build_learner, compute_losses
from mops.training.targets import ask_teachers, soften
from mops.training.tracking import Curve, Tell, refuse_missing_trackers
from mops.training.trainer import Evaluation, Objective, Trainer

SELECTION_ROWS = 2000  # of a task, for evaluations during training; the whole set at the end


@dataclass(frozen=True)
class Prepared:
    """All that a run is made of."""

    recipe: Recipe  # complete
    dataset: Dataset
    source: Source
    layout: Layout
    device: str
    base: Bundle | None = None  # whose tasks the network keeps

    @property
    def digests(self) -> dict[str, Any]:
        """Name the data, the encoder and the model that the network grows from."""
        source = self.source
        base = {"base_sha256": self.base.digest} if self.base else {}
        encoder = {"encoder_sha256": source.digest, "encoder_files_sha256": source.files_digest}
        return {"data_sha256": dict(self.dataset.digests), **encoder, **base}

    @property
    def entries(self) -> dict[str, TaskEntry]:
        """The tasks of the network: those that it had, and those of the recipe."""
        return {**(self.base.entries if self.base else {}), **self.recipe.tasks}

    def load_weights(self, network: Network) -> None:
        """The first weights: the pretrained encoder's, or those of the base."""
        if self.base is None:
            load_pretrained(network, self.source)
        else:
            owners = starting_owners(self.base.layout, network.layout)
            self.base.copy_owners(network, owners)

    def is_other_data(self, meta_info: Mapping[str, Any]) -> bool:
        """Whether a record was made of other data or another encoder, as far as it says so."""
        return any(meta_info.get(key) not in ("", digest) for key, digest in self.digests.items())

    @cached_property
    def key(self) -> str:
        """Names the recipe, the data and the encoder, which a resumed run must find unchanged."""
        parts = [self.recipe.identity("report_to"), *self.digests.values()]
        teachers = self.recipe.training.teachers
        parts += [file_digest(Path(folder, "model.safetensors")) for folder in teachers]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(
    recipe: Recipe,
    tell: Tell,
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
    check_encoder(source)
    return Prepared(recipe, dataset, source, recipe.layout(dataset.tasks, source.shape), device)


def meta_info(ready: Prepared) -> MetaInfo:
    """Where a run was made, and of what."""
    return MetaInfo(
        **machine_info(),
        device=ready.device,
        threads=torch.get_num_threads(),
        encoder=ready.source.name,
        encoder_shape=asdict(ready.source.shape),
        data_notes=ready.dataset.notes,
        **ready.digests,
    )


def task_data(
    ready: Prepared, name: str, rows: tuple[Row, ...], tokens: TokenTable | None = None
) -> TaskData:
    """The rows of a task; `tokens` are those of another task on the same rows."""
    dataset, reading = ready.dataset, ready.layout.reading.of(name)
    if tokens is None:
        leader = dataset.leaders.get(name)
        group = {name, *(task for task, other in dataset.leaders.items() if other == leader)}
        has_words = any(dataset.tasks[other].answer.reads_words for other in group)
        texts = [row.texts for row in rows]
        tokens = tokenise_cached(ready.source.tokenizer, texts, reading, has_words)
    task = dataset.tasks[name]
    return TaskData(task, tokens, encode_targets(task, rows))


@dataclass(frozen=True)
class SelectionData(TaskData):
    """The validation rows of a task that choose the best state; a fixed sample of a large split."""

    texts: Sequence[Texts]
    halves: NDArray[np.str_]  # of the rows


def selection_data(ready: Prepared) -> dict[str, SelectionData]:
    selection = {}
    for name, splits in ready.dataset.splits.items():
        rows = splits["validation"].rows
        halved = [
            (r, half)
            for r, half in zip(rows, cut_halves(rows), strict=True)
            if not r.problem and r.label is not None
        ]
        draw = generator(ready.recipe.training.seed, "selection", name)
        chosen = np.sort(draw.permutation(len(halved))[:SELECTION_ROWS])
        half_of = dict(halved[number] for number in chosen)
        if set(half_of.values()) != set(HALVES):
            raise RecipeError(
                f"task {name!r}: the validation rows cannot be halved: they are too few, or all of "
                "them share sentences; add some"
            )
        texts, halves = [row.texts for row in half_of], np.array(list(half_of.values()))
        data = task_data(ready, name, tuple(half_of))
        selection[name] = SelectionData(**vars(data), texts=texts, halves=halves)
    return selection


Outputs = NDArray[Any]
TakeRows = Callable[[Mapping[str, Sequence[Place]]], Batch]


@dataclass(kw_only=True)
class TaskObjective:
    """Rows of the tasks as the schedule orders them, and three best states: by the scores on all
    validation rows, and on each half of them.
    """

    training: Training
    schedule: Schedule
    data: Mapping[str, TaskData]
    selection: Mapping[str, SelectionData]
    take: TakeRows
    group: ProcessGroup = ALONE
    # How packs are made in the present stage; None: from token ids, without the cache.
    pack_training: Packer | None = None
    pack_selection: Packer | None = None
    logged: Sequence[str] = ("loss", "losses", "gradient_norm", "loss_weights", "learning_rate")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """This process's rows of a step, with the weights of their losses."""
        chosen = self.schedule.rows_at(step, tasks)
        batch = self.take(self.group.own(chosen))
        parts = self.group.parts(chosen, self.data)
        usual = self.schedule.scale(step)
        scale = {task: factor * batch.scale.get(task, 1.0) for task, factor in usual.items()}
        return replace(batch, scale=scale, parts=parts)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        return compute_losses(network, batch, self.pack_training, self.training.r_drop)

    def enter_stage(self, network: Network, state: TrainerState, tell: Tell) -> None:
        """Compute the frozen layers of the stage once, for rows that are used again."""
        if not self.group.is_first:
            self.group.wait()  # for what the first process leaves on disk
        self.fill_cache(network, state, tell)
        if self.group.is_first:
            self.group.wait()

    def fill_cache(self, network: Network, state: TrainerState, tell: Tell) -> None:
        """Fill the cache for the steps and evaluations that are left in the current stage."""
        started, stage = time.perf_counter(), self.schedule.stage_at(state.step)
        self.pack_training = self.pack_selection = None
        cache = open_cache(network)
        if cache is None:
            return
        reused = reused_rows(cache, self.schedule, stage, state.step)
        fill_rows(cache, self.data, reused, tell)
        if any(map(len, reused.values())):
            self.pack_training = cache.pack
        rows = {task: np.arange(len(data)) for task, data in self.selection.items()}
        fill_rows(cache, self.selection, rows, tell)
        self.pack_selection = cache.pack
        state.frozen_seconds += time.perf_counter() - started
        state.frozen_computed += cache.computed
        state.frozen_found += cache.found
        tell("training")

    def evaluate(self, network: Network) -> Evaluation:
        outputs = self.selection_outputs(network)
        scores: dict[str, dict[str, Mapping[str, float]]] = {c: {} for c in (ALL, *HALVES)}
        thresholds: dict[str, dict[str, Tensor]] = {c: {} for c in scores}
        for chooser, (name, data) in product(scores, self.selection.items()):
            chosen, head = (
                (data.halves == chooser) | (chooser == ALL),
                network.layout.routes[name].head,
            )
            targets, own = data.targets[chosen], outputs[name][chosen]
            if data.task.answer.has_thresholds and network.layout.rates[head]:
                cut = data.task.answer.thresholds(targets, own).astype(np.float32)
                thresholds[chooser][f"{head}.{THRESHOLD}"] = torch.from_numpy(cut)
                own = own - cut
            scores[chooser][name] = score(data.task, targets, decide(data.task, own).values)
        overall = {chooser: overall_of(self.judged, own) for chooser, own in scores.items()}
        choosing = {chooser: own[self.training.best_by] for chooser, own in overall.items()}
        facts = {"selection": scores[ALL], **overall[ALL]}
        return Evaluation(choosing, facts, thresholds)

    def selection_outputs(self, network: Network) -> Mapping[str, Outputs]:
        """The outputs of each task for its selection rows, from one pass over all of them."""
        device = next(network.parameters()).device
        tables = {name: data.tokens for name, data in self.selection.items()}
        return compute_outputs(network, tables, self.pack_selection, device)

    @cached_property
    def judged(self) -> dict[str, Task]:
        """The tasks that pick the best state: those that are trained."""
        tasks = {name: data.task for name, data in self.selection.items()}
        planned = self.schedule.batches_before(len(self.schedule))
        trained = {n: t for n, t in tasks.items() if planned[n] and self.training.weight(n)}
        return trained or tasks


def build_objective(ready: Prepared, group: ProcessGroup = ALONE) -> TaskObjective:
    """The losses of all tasks; training rows are augmented where the recipe says so."""
    training, splits = ready.recipe.training, ready.dataset.splits
    rows = {name: task_splits["train"].good for name, task_splits in splits.items()}
    texts = {name: [row.texts for row in own] for name, own in rows.items()}
    taught = ask_teachers(training, ready.dataset.tasks, texts, ready.device)
    data: dict[str, TaskData] = {}
    reading = ready.layout.reading
    for name, own in rows.items():
        leader = ready.dataset.leaders.get(name, name)
        is_same = leader in data and texts[name] == texts[leader]
        is_same = is_same and reading.of(name).pair == reading.of(leader).pair
        hard = task_data(ready, name, own, data[leader].tokens if is_same else None)
        soft = soften(hard.task, hard.targets, training, taught.get(name))
        data[name] = replace(hard, targets=soft)
    take: TakeRows = partial(take_rows, data)
    if training.augment is not None:
        take = AugmentedRows(
            data=data,
            texts=texts,
            tokenizer=ready.source.tokenizer,
            reading=ready.layout.reading,
            augment=training.augment,
            seed=training.seed,
        ).take
    batch_sizes = {name: group.world * training.batch_size(name) for name in data}
    joined = training.model_copy(update={"per_task_batch_size": batch_sizes})  # of all processes
    return TaskObjective(
        training=training,
        schedule=plan_steps(ready.dataset.train_files, joined),
        data=data,
        selection=selection_data(ready),
        take=take,
        group=group,
    )


def build_trainer(folder: Path, ready: Prepared, group: ProcessGroup = ALONE) -> Trainer:
    """The network with pretrained weights, or with those of an interrupted run."""
    training = ready.recipe.training
    dropout, head_dropout = training.dropout, training.head_dropout
    network = Network(ready.layout, dropout=dropout, head_dropout=head_dropout, seed=training.seed)
    ready.load_weights(network)
    network.to(ready.device)
    choose_precision(network, training)
    if training.torch_compile:  # blocks whose only varying size is the number of tokens
        for owner, module in network.bank.items():
            if owner.startswith("feedforward"):
                module.compile(dynamic=True)
    return start_trainer(folder, ready, network, build_objective(ready, group), group)


def choose_precision(network: Network, training: Training) -> None:
    """Which matrix products of the encoder a training step computes in bfloat16: all or none."""
    device = str(next(network.parameters()).device)
    is_fast = training.bf16 is True or (training.bf16 == "auto" and has_bfloat16(device))
    for owner, part in network.bank.items():
        for module in part.modules() if owner.startswith(("attention", "feedforward")) else ():
            if isinstance(module, Dense):
                module.has_bfloat16 = is_fast


def start_trainer(
    folder: Path,
    ready: Prepared,
    network: Network,
    objective: Objective,
    group: ProcessGroup = ALONE,
    curve: str = "curve.jsonl",
) -> Trainer:
    """A run at its first step, or where it was interrupted."""
    training, path = ready.recipe.training, folder / STATE
    learner = build_learner(network, objective.schedule, training, group)
    state = TrainerState(processes=group.world)
    if path.is_file():
        learner.enter_stage(objective.schedule.stage_at(saved_step(path)))
        state = load(path, learner, ready.key)
    if state.processes != group.world:  # the rows of a step depend on their number
        raise RecipeError(
            f"{folder} was trained by {state.processes} process(es) up to step {state.step}, now "
            f"there are {group.world}; start as many (torchrun --nproc-per-node), or name another "
            "folder as `out`"
        )
    return Trainer(
        folder=folder,
        learner=learner,
        objective=objective,
        training=training,
        curve=Curve(folder / curve),
        key=ready.key,
        state=state,
    )
