"""A pretraining on masked words: from a recipe to an encoder folder with its record, pretrain.json.

It is an objective of the trainer. A new head learns much in its first steps, whatever the encoder,
so a lower perplexity is not yet a better encoder: what counts are the scores of the tasks.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.data.batches import Batch, TaskData
from mops.data.compose import given_recipe
from mops.data.dataset import FileRows
from mops.data.schedule import PlannedStage, Schedule, generator
from mops.data.tokenizer import load_tokenizer
from mops.errors import RunError, UsageError
from mops.files import atomic_write, holds, remove_drafts, to_path, write_text
from mops.model import pretrained
from mops.model.network import Network
from mops.model.sources import CONFIG, WEIGHTS, EncoderSource, Source, read_config, weights_file
from mops.plans.catalog import DEFAULT
from mops.record import read_curve
from mops.training import masked_words
from mops.training.checkpoint import ALL, START_AGAIN, TrainerState
from mops.training.machine import hold_folder, restored_threads
from mops.training.masked_words import HEADS, TEXT, held_out_losses, word_head
from mops.training.prepare import Prepared, choose_precision, meta_info, prepare, start_trainer
from mops.training.run import refuse_other_work
from mops.training.tracking import Tell, Watcher
from mops.training.trainer import Evaluation, Trainer
from mops.yaml_io import read_json

RECORD, SETTINGS, CURVE = "pretrain.json", "state/settings.json", "state/curve.jsonl"
BATCH_SIZE = 32  # texts per step
USED = {  # keys of `training` that count here
    "max_length", "num_train_epochs", "steps_per_epoch", "max_steps", "learning_rate",
    "head_learning_rate", "layer_decay", "lr_scheduler_type", "warmup_steps", "weight_decay",
    "adam_epsilon", "max_grad_norm", "dropout", "eval_steps", "save_steps", "early_stopping",
    "seed", "threads", "device", "bf16",
}  # fmt: skip


@dataclass(frozen=True)
class Pretrained:
    folder: Path
    record: Mapping[str, Any]
    was_finished: bool = False


@restored_threads()
def pretrain(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    batch_size: int = BATCH_SIZE,
    watcher: Watcher | None = None,
) -> Pretrained:
    """Train the recipe's encoder on masked words of its tasks' texts; `out` becomes an encoder.

    Labels and the plan play no part. An interrupted run resumes when it is called again.
    """
    recipe = given_recipe(recipe)
    folder, watcher = to_path(out, "out"), watcher or Watcher()
    settings = pretraining_settings(recipe, batch_size)
    ready = prepare_pretraining(recipe, watcher.phase)
    if record := finished_record(folder, ready, settings):
        shutil.rmtree(folder / "state", ignore_errors=True)  # a kill may have left it
        return Pretrained(folder, record, was_finished=True)
    watcher.phase("tokenising")
    with ExitStack() as held:
        held.enter_context(hold_folder(folder))
        objective, trainer = build_trainer(folder, ready, batch_size)
        remove_drafts(folder)
        write_text(folder / SETTINGS, json.dumps(settings, indent=2))
        held.enter_context(trainer.curve.tracked(recipe, folder, trainer.state.curve_bytes))
        if not trainer.state.evaluations:
            trainer.evaluate(watcher)
        if not any("held_out" in line for line in read_curve(trainer.curve.path)):
            raise RunError(f"{trainer.curve.path} is gone; {START_AGAIN}")
        trainer.run(watcher)
        trainer.restore_best()
        watcher.phase("writing")
        write_encoder(folder, trainer.network, ready.source)
        record = {"settings": settings, **build_record(ready, trainer, objective)}
        text = json.dumps(record, indent=2, ensure_ascii=False)
        write_text(folder / RECORD, f"{text}\n")
        trainer.curve.end({"final/perplexity": record["held_out"]["end"]["perplexity"]})
    shutil.rmtree(folder / "state", ignore_errors=True)
    return Pretrained(folder, json.loads(text))


def pretraining_settings(recipe: Recipe, batch_size: int) -> dict[str, Any]:
    """Everything that changes the result."""
    if batch_size < 1:
        raise UsageError(f"the batch size is {batch_size}; it must be at least 1")
    used: Any = {"encoder": True, "tasks": True, "training": USED}
    settings = recipe.model_dump(mode="json", exclude_none=True, include=used)
    return {**settings, "batch_size": batch_size}


def prepare_pretraining(recipe: Recipe, tell: Tell) -> Prepared:
    """The plan and settings that only concern tasks are set to their defaults."""
    used = recipe.training.model_dump(include={*USED, "report_to"})
    defaults = {"plan": DEFAULT, "training": Training.model_validate(used)}
    recipe = recipe.model_copy(update=defaults)
    ready = prepare(recipe, tell)
    layout = masked_words.lay_out_words(ready.source.shape, ready.layout.reading)
    return replace(ready, recipe=recipe, layout=layout)


def finished_record(folder: Path, ready: Prepared, settings: dict[str, Any]) -> dict[str, Any]:
    """The record of this very encoder, empty if unfinished; refuses another one's folder."""
    if not holds(folder, RECORD, SETTINGS, kind="pretraining"):
        return {}
    is_there = (folder / RECORD).is_file()
    path = folder / (RECORD if is_there else SETTINGS)
    try:
        facts: dict[str, Any] = read_json(path)
        there = dict(facts["settings"] if is_there else facts)
    except (UsageError, ValueError, KeyError, TypeError) as cause:
        raise UsageError(
            f"{path} cannot be read: {cause}; delete {folder} and start again, or name another "
            "folder as `out`"
        ) from cause
    is_other_data = is_there and ready.is_other_data(facts["meta_info"])
    refuse_other_work(folder, "pretraining", (there, settings), is_other_data)
    return facts if is_there else {}


def build_trainer(folder: Path, ready: Prepared, batch_size: int) -> tuple[MaskedWords, Trainer]:
    """At its first step, or at the next one of an interrupted run."""
    training, source, reading = ready.recipe.training, ready.source, ready.layout.reading
    corpus = masked_words.build_corpus(ready.dataset, source.tokenizer, source.shape.words, reading)
    network = masked_words.build_network(ready.layout, source, training.dropout)
    is_new_head = not masked_words.load_head(word_head(network), source)
    if is_new_head:
        masked_words.begin_head(word_head(network), corpus, training.seed)
    else:  # the rate of new weights would undo what the head has learned
        training = training.model_copy(update={"head_learning_rate": training.learning_rate})
    choose_precision(network.to(ready.device), training)
    objective = MaskedWords(
        corpus=corpus,
        schedule=plan_texts(training, len(corpus.train), batch_size),
        is_new_head=is_new_head,
    )
    return objective, start_trainer(folder, ready, network, objective, curve=CURVE)


def plan_texts(training: Training, texts: int, batch_size: int) -> Schedule:
    """Steps over the texts, as one stage."""
    epoch = training.steps_per_epoch or math.ceil(texts / batch_size)
    steps = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    return Schedule(
        steps=({},) * steps,
        steps_per_epoch=epoch,
        files={TEXT: (FileRows(texts),)},
        batch_sizes={TEXT: batch_size},
        seed=training.seed,
        stages=(PlannedStage(0, steps, training),),
    )


@dataclass(kw_only=True)
class MaskedWords:
    """The objective: guess masked words; the best state is that with the lowest held-out loss."""

    corpus: masked_words.Corpus
    schedule: Schedule
    is_new_head: bool
    data: Mapping[str, TaskData] = field(default_factory=dict)  # labels are not used
    logged: Sequence[str] = ("loss", "gradient_norm")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """The texts of a step, from shuffled passes; seed and step determine their masks.

        Masks differ from pass to pass (dynamic masking, Liu et al. 2019).
        """
        schedule, corpus, size = self.schedule, self.corpus, self.schedule.batch_sizes[TEXT]
        draw = generator(schedule.seed, "masks", str(step))
        texts = [corpus.train[place.row] for place in schedule.places(TEXT, step * size, size)]
        masked = (masked_words.mask_sequence(ids, corpus.vocabulary, draw) for ids in texts)
        return Batch(tuple(masked), {})

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        segments = cast(Sequence[masked_words.Masked], batch.segments)
        return {TEXT: masked_words.masked_loss(network, segments)}

    def enter_stage(self, network: Network, state: TrainerState, tell: Tell) -> None:
        """Nothing to do: there is one stage, and nothing is frozen."""

    def evaluate(self, network: Network) -> Evaluation:
        """The losses of both held-out halves; the best state has the lowest one."""
        losses = held_out_losses(network, self.corpus.held_out)
        facts = {"held_out": losses, "perplexity": perplexity(losses["report"])}
        return Evaluation({ALL: -losses["selection"]}, facts)


def build_record(ready: Prepared, trainer: Trainer, objective: MaskedWords) -> dict[str, Any]:
    """All facts; the written encoder is evaluated as a user will load it."""
    now, corpus, planned = trainer.state, objective.corpus, len(trainer.schedule)
    curve = list(read_curve(trainer.curve.path))
    start = next(line for line in curve if "held_out" in line)
    written = EncoderSource(str(trainer.folder), trainer.folder)
    network = masked_words.build_network(ready.layout, written, dropout=0.0).to(ready.device)
    masked_words.load_head(word_head(network), written)
    end = {"step": now.best_step, "held_out": held_out_losses(network, corpus.held_out)}
    held_out = {"start": held_out_point(start), "end": held_out_point(end)}
    return {
        "head": "new" if objective.is_new_head else "of the encoder's file",
        "texts": dict(corpus.counts),
        "held_out": held_out,
        "train_info": {
            "steps": now.step,
            "planned_steps": planned,
            "best_step": now.best_step,
            "stopped_early": now.is_stopped,
            "passes": now.step * trainer.schedule.batch_sizes[TEXT] / len(corpus.train),
            "tokens": now.tokens,
            "train_seconds": now.seconds,
        },
        "warnings": find_warnings(held_out, planned),
        "curve": curve,
        "meta_info": asdict(meta_info(ready)),
    }


def held_out_point(line: Mapping[str, Any]) -> dict[str, float]:
    loss, selection_loss = line["held_out"]["report"], line["held_out"]["selection"]
    facts = {"step": line["step"], "loss": loss, "perplexity": perplexity(loss)}
    return {**facts, "selection_loss": selection_loss}


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # larger overflows


def find_warnings(held_out: Mapping[str, Mapping[str, float]], planned_steps: int) -> list[str]:
    """Results that are worthless, and a budget that was too small."""
    before, after = held_out["start"]["perplexity"], held_out["end"]["perplexity"]
    if held_out["end"]["step"] == 0 or after >= before:
        return [
            f"nothing was gained: held-out perplexity is {before:.2f} at the start, {after:.2f} at "
            "the end; raise the budget, or change training.learning_rate"
        ]
    if held_out["end"]["step"] == planned_steps:
        return ["the best evaluation is the last one: a larger budget may lower it further"]
    return []


BASE = (*pretrained.TRUNK, "pooler.")  # transformers puts a prefix before these names
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip


def write_encoder(folder: Path, network: Network, source: Source) -> None:
    """config.json, the tokenizer's files and the weights; each appears complete or not at all.

    The configuration is the source's, with another head, tied, in float32.
    """
    config, head = read_config(source.folder), HEADS[source.shape.family]
    present = {"dtype": "float32", "torch_dtype": "float32", "tie_word_embeddings": True}
    config |= {key: value for key, value in present.items() if key in config}
    config |= {**head.get("only", {}), "architectures": [head["class"]]}
    write_text(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    for name in TOKENIZER_FILES:
        if (source.folder / name).is_file():
            with atomic_write(folder / name) as draft:
                shutil.copyfile(source.folder / name, draft)
    if not (folder / TOKENIZER_FILES[0]).is_file():
        with atomic_write(folder / TOKENIZER_FILES[0]) as draft:
            load_tokenizer(source.folder, source.shape).save(str(draft))
    with atomic_write(folder / WEIGHTS) as draft:
        pretrained.write_tensors(draft, foreign_weights(network, source))


def foreign_weights(network: Network, source: Source) -> dict[str, Tensor]:
    """Our tensors under their names, and the source's tensors that mops does not use."""
    family = source.shape.family
    # query, key and value are views of one tensor
    ours = {name: tensor.cpu().clone() for name, tensor in pretrained.foreign_tensors(network)}
    ours |= {
        name: t.cpu() for name, t in masked_words.head_tensors(word_head(network), family).items()
    }
    copies = [f"{HEADS[family]['output']}.{kind}" for kind in ("weight", "bias")]
    theirs = pretrained.open_weights(weights_file(source.folder)).items()
    plain = {pretrained.plain_name(name, family): tensor for name, tensor in theirs}
    tensors = {name: tensor for name, tensor in plain.items() if name not in copies} | ours
    prefix = pretrained.prefix_of(family)
    return {f"{prefix}.{n}" if n.startswith(BASE) else n: tensor for n, tensor in tensors.items()}
