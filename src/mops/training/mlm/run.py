"""A pretraining: from a recipe to an encoder folder with its record, pretrain.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, differing_key
from mops.data.dataset import Dataset, read_dataset
from mops.errors import RecipeError, UsageError
from mops.files import holds, remove_drafts, write_text
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.shapes import Reading, check_length
from mops.training.curve import Curve
from mops.training.loss_weights import Fixed
from mops.training.machine import prepare_machine, restored_threads
from mops.training.mlm.corpus import (
    Corpus,
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
    perplexity,
    write_encoder,
)
from mops.training.mlm.objective import (
    BATCH_SIZE,
    CONTROL,
    START,
    WORDS,
    MaskedWords,
    Settings,
    plan_phases,
)
from mops.training.optim import build_optimizer
from mops.training.prepare import content_key, meta_info
from mops.training.step import Learner
from mops.training.tracking import label_of, refuse_missing_trackers
from mops.training.trainer import Silent, Trainer, Watcher

RECORD, SETTINGS, CURVE = "pretrain.json", "state/settings.json", "state/curve.jsonl"


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
