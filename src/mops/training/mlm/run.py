"""Masked-word pretraining: an objective of the trainer, and what it writes about itself."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from mops.config.recipe import Recipe, differing_key
from mops.data.batches import Batch, TaskData
from mops.data.dataset import Dataset, read_dataset
from mops.data.schedule import PlannedStage, Schedule
from mops.errors import RecipeError, UsageError
from mops.files import holds, remove_drafts, write_text
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.shapes import Reading, check_length
from mops.training.checkpoint import TrainerState
from mops.training.curve import Curve
from mops.training.loss_weights import Fixed
from mops.training.machine import prepare_machine, restored_threads
from mops.training.mlm.corpus import (
    Corpus,
    MaskedBatch,
    Texts,
    Vocabulary,
    build_corpus,
    gather_texts,
    read_vocabulary,
)
from mops.training.mlm.model import (
    begin_head,
    build_network,
    head_owner,
    held_out_losses,
    load_head,
    masked_loss,
    perplexity,
    write_encoder,
)
from mops.training.objective import Evaluation
from mops.training.optim import build_optimizer
from mops.training.prepare import content_key, meta_info
from mops.training.step import Learner
from mops.training.tracking import label_of, refuse_missing_trackers
from mops.training.trainer import Silent, Trainer, Watcher

BATCH_SIZE = 32
RECORD, SETTINGS, CURVE = "pretrain.json", "state/settings.json", "state/curve.jsonl"
START, CONTROL, TRAINING = "start", "control", "training"  # phases
WORDS = "words"  # the name of the loss
USED = (  # keys of `training` that count here
    "max_length", "num_train_epochs", "steps_per_epoch", "max_steps", "learning_rate",
    "head_learning_rate", "layer_decay", "lr_scheduler_type", "warmup_steps", "weight_decay",
    "adam_epsilon", "max_grad_norm", "dropout", "eval_steps", "save_steps", "early_stopping",
    "seed", "threads", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A recipe, whose plan and labels do not count, and two numbers."""

    recipe: Recipe
    batch_size: int = BATCH_SIZE  # texts per step
    control_steps: int | None = None  # None: as many as training steps

    def __post_init__(self) -> None:
        for name, value, least in (
            ("batch size", self.batch_size, 1),
            ("number of control steps", self.control_steps or 0, 0),
        ):
            if value < least:
                raise UsageError(f"the {name} is {value}; it must be at least {least}")

    def to_data(self) -> dict[str, Any]:
        recipe = self.recipe.to_data()
        own = {"batch_size": self.batch_size, "control_steps": self.control_steps}
        return {
            "encoder": recipe["encoder"],
            "tasks": recipe["tasks"],
            "training": {key: recipe["training"][key] for key in USED if key in recipe["training"]},
            **{key: value for key, value in own.items() if value is not None},
        }


@dataclass(frozen=True)
class Pretraining:
    """All that a pretraining is made of."""

    settings: Settings
    dataset: Dataset
    texts: Texts
    source: EncoderSource
    vocabulary: Vocabulary
    reading: Reading
    device: str

    @cached_property
    def key(self) -> str:
        return content_key(self.settings.to_data(), self.dataset, self.source)

    @cached_property
    def corpus(self) -> Corpus:
        return build_corpus(self.texts, self.source.tokenizer, self.vocabulary, self.reading)


def prepare_pretraining(settings: Settings, tell: Callable[[str], None]) -> Pretraining:
    recipe = settings.recipe
    device = prepare_machine(recipe.training)
    refuse_missing_trackers(recipe.training)
    source = find_encoder(recipe.encoder)
    reading = Reading(max_length=recipe.training.max_length)
    check_length(reading, source.shape)
    vocabulary = read_vocabulary(source.tokenizer, source.shape.words)
    tell("reading data")
    dataset = read_dataset(recipe)
    texts = gather_texts(dataset)
    return Pretraining(settings, dataset, texts, source, vocabulary, reading, device)


def plan_phases(settings: Settings, texts: int, *, is_new_head: bool) -> Schedule:
    """The control, then the training itself, as stages that count their own steps.

    A new head learns much in its first steps, whatever the encoder. So in the control the head
    learns alone, on the same texts, masks and rates, while the encoder is frozen; then the head is
    put back. What training reaches below the control is what the encoder has learned.
    """
    training = settings.recipe.training
    epoch = training.steps_per_epoch or math.ceil(texts / settings.batch_size)
    steps = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    control = steps if settings.control_steps is None else settings.control_steps
    if not is_new_head:  # the rate of new weights would undo what the head has learned
        training = training.model_copy(update={"head_learning_rate": training.learning_rate})
    at_end = training.model_copy(update={"eval_steps": control})
    phases = (
        PlannedStage(0, control, at_end, is_frozen=True),
        PlannedStage(control, control + steps, training, counted_from=control),
    )
    return Schedule(
        steps=({},) * (control + steps),
        steps_per_epoch=epoch,
        sizes={},
        batch_sizes={},
        seed=training.seed,
        stages=tuple(phase for phase in phases if len(phase)),
    )


@dataclass(kw_only=True)
class MaskedWords:
    """The objective: guess masked words; the best state is that with the lowest held-out loss."""

    corpus: Corpus
    schedule: Schedule
    batch_size: int
    initial_head: Mapping[str, Tensor]
    data: Mapping[str, TaskData] = field(default_factory=dict)  # labels are not used
    logged: Sequence[str] = ("loss", "gradient_norm")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        number = self.schedule.stage_at(step).number(step)
        return self.corpus.batch(number, self.batch_size, self.schedule.seed)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        assert isinstance(batch, MaskedBatch)
        return {WORDS: masked_loss(network, batch.sequences)}

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Put the initial head back: what the control learned leaves no trace."""
        if state.step == self.schedule.stage_at(state.step).first:
            network.bank[head_owner(network)].load_state_dict(self.initial_head)

    def evaluate(self, network: Network, step: int) -> Evaluation:
        """The losses of both held-out halves; a state of the control is never the best."""
        losses = held_out_losses(network, self.corpus.held_out)
        is_control = self.position(step)["phase"] == CONTROL
        facts = {"held_out": losses, "perplexity": perplexity(losses["report"])}
        return Evaluation(None if is_control else -losses["selection"], facts)

    def position(self, step: int) -> Mapping[str, Any]:
        if step == 0:
            return {"phase": START, "step": 0}
        stage = self.schedule.stage_at(step - 1)
        return {"phase": CONTROL if stage.is_frozen else TRAINING, "step": stage.number(step)}


# ------------------------------------------------------------------ a run


@dataclass(frozen=True)
class Pretrained:
    """A pretrained encoder: its folder and its record."""

    folder: Path
    record: Mapping[str, Any]
    was_finished: bool = False


@restored_threads()
def pretrain(
    recipe: Recipe,
    out: str | Path,
    *,
    batch_size: int = BATCH_SIZE,
    control_steps: int | None = None,
    watcher: Watcher | None = None,
) -> Pretrained:
    """Train the recipe's encoder on masked words of its tasks' texts; `out` becomes an encoder.

    Labels and the plan play no part. An interrupted run resumes when it is called again.
    """
    folder, watcher = Path(out), watcher or Silent()
    ready = prepare_pretraining(Settings(recipe, batch_size, control_steps), watcher.phase)
    if is_finished(folder, ready):
        shutil.rmtree(folder / "state", ignore_errors=True)  # a kill may have left it
        return Pretrained(folder, read_json(folder / RECORD), was_finished=True)
    watcher.phase("tokenising")
    network, is_new_head = begin_network(ready, ready.source)
    trainer = build_trainer(folder, ready, network, is_new_head=is_new_head)
    remove_drafts(folder)
    write_text(folder / SETTINGS, json.dumps(ready.settings.to_data(), indent=2))
    size = trainer.state.curve_bytes
    with trainer.curve.tracked(recipe, label_of(folder), folder / "state", size):
        if not trainer.state.evaluations:
            trainer.cut_curve()
            trainer.evaluate(watcher)
        trainer.run(watcher)
        record = conclude(ready, trainer, watcher, is_new_head=is_new_head)
        trainer.curve.end({"final/perplexity": record["held_out"]["end"]["perplexity"]})
    shutil.rmtree(folder / "state", ignore_errors=True)
    return Pretrained(folder, record)


def begin_network(ready: Pretraining, source: EncoderSource) -> tuple[Network, bool]:
    """The encoder of a folder with its word head, or with a new one where it has none."""
    training = ready.settings.recipe.training
    network = build_network(source.shape, ready.reading, training.dropout, training.seed)
    load_pretrained(network, source)
    head = network.bank[head_owner(network)]
    is_new = not load_head(head, source)
    if is_new:
        begin_head(head, ready.corpus.word_counts(), training.seed)
    return network.to(ready.device), is_new


def build_trainer(
    folder: Path, ready: Pretraining, network: Network, *, is_new_head: bool
) -> Trainer:
    """At its first step, or at the next one of an interrupted run."""
    settings, head = ready.settings, network.bank[head_owner(network)]
    objective = MaskedWords(
        corpus=ready.corpus,
        schedule=plan_phases(settings, len(ready.corpus.train), is_new_head=is_new_head),
        batch_size=settings.batch_size,
        initial_head={name: tensor.clone() for name, tensor in head.state_dict().items()},
    )
    first = objective.schedule.stages[0]
    optimizer = build_optimizer(network, first.training)
    trainer = Trainer(
        folder=folder,
        learner=Learner(network, optimizer, Fixed({WORDS: 1.0})),
        objective=objective,
        training=settings.recipe.training,
        curve=Curve(folder / CURVE),
        key=ready.key,
    )
    trainer.resume()
    return trainer


def conclude(
    ready: Pretraining, trainer: Trainer, watcher: Watcher, *, is_new_head: bool
) -> dict[str, Any]:
    """Write the best state as an encoder, evaluate it as a user will load it, write the record."""
    trainer.restore_best()
    watcher.phase("writing")
    write_encoder(trainer.folder, trainer.network, ready.source)
    written, _ = begin_network(ready, EncoderSource(str(trainer.folder), trainer.folder))
    losses = held_out_losses(written, ready.corpus.held_out)
    record = build_record(ready, trainer, losses, is_new_head=is_new_head)
    text = json.dumps(record, indent=2, ensure_ascii=False)
    write_text(trainer.folder / RECORD, text + "\n")
    return read_json(trainer.folder / RECORD)


def is_finished(folder: Path, ready: Pretraining) -> bool:
    """Whether this very encoder is already there; refuses a folder that holds another one."""
    if not holds(folder, RECORD, SETTINGS, kind="pretraining"):
        return False
    record, begun = folder / RECORD, folder / SETTINGS
    facts = read_json(record) if record.is_file() else {"settings": read_json(begun)}
    difference = differing_key(facts["settings"], ready.settings.to_data())
    if difference:
        raise RecipeError(
            f"{folder} holds a pretraining with other settings ({difference}); "
            "name another folder with --out, or delete this one"
        )
    if not record.is_file():
        return False
    made_of = (facts["meta_info"]["data_sha256"], facts["meta_info"]["encoder_sha256"])
    if made_of != (ready.dataset.digests, ready.source.digest):
        raise RecipeError(
            f"{folder} holds this pretraining, finished, but the data or the encoder's weights "
            "have changed since; name another folder with --out"
        )
    return True


def read_json(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as cause:
        raise UsageError(
            f"{path} cannot be read: {cause}; delete the folder and start again"
        ) from cause
    return facts


# ------------------------------------------------------------------ pretrain.json


def build_record(
    ready: Pretraining, trainer: Trainer, losses: Mapping[str, float], *, is_new_head: bool
) -> dict[str, Any]:
    """`losses` are those of the written files on the held-out halves."""
    now, planned = trainer.state, trainer.schedule.stages[-1]
    curve = [json.loads(line) for line in trainer.curve.path.read_text("utf-8").splitlines()]
    evaluated = {line["phase"]: line for line in curve if "held_out" in line}
    baseline = evaluated.get(CONTROL, evaluated[START])
    held_out = {
        "start": held_out_point(0, evaluated[START]["held_out"]),
        "baseline": held_out_point(baseline["step"], baseline["held_out"]),
        "end": held_out_point(now.best_step, losses),
    }
    steps = now.step - planned.first
    return {
        "settings": ready.settings.to_data(),
        "head": "new" if is_new_head else "of the encoder's file",
        "texts": dict(ready.corpus.counts),
        "held_out": held_out,
        "train_info": {
            "steps": steps,
            "planned_steps": len(planned),
            "control_steps": planned.first,
            "best_step": now.best_step,
            "stopped_early": now.is_stopped,
            "passes": steps * ready.settings.batch_size / len(ready.corpus.train),
            "tokens": now.tokens,
            "control_seconds": baseline["seconds"],
            "train_seconds": now.seconds - baseline["seconds"],
        },
        "warnings": find_warnings(held_out, len(planned)),
        "curve": curve,
        "meta_info": asdict(meta_info(ready.device, ready.source, ready.dataset)),
    }


def held_out_point(step: int, losses: Mapping[str, float]) -> dict[str, float]:
    return {
        "step": step,
        "loss": losses["report"],
        "perplexity": perplexity(losses["report"]),
        "selection_loss": losses["selection"],
    }


def find_warnings(held_out: Mapping[str, Mapping[str, float]], planned_steps: int) -> list[str]:
    """Results that are worthless, and a budget that was too small."""
    before, after = held_out["baseline"]["perplexity"], held_out["end"]["perplexity"]
    best_step = held_out["end"]["step"]
    if best_step == 0:
        return [
            "no state was better than the start: the written encoder is the one that it began "
            "with; raise the budget, or change training.learning_rate"
        ]
    warnings = []
    if after >= before:
        warnings.append(
            f"held-out perplexity is not below the control: {before:.2f} when only the head "
            f"learns, {after:.2f} with the encoder; the encoder itself has not gained; raise the "
            "budget, or change training.learning_rate"
        )
    if best_step == planned_steps:
        warnings.append("the best evaluation is the last one: a larger budget may lower it further")
    return warnings
