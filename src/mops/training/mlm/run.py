"""pretrain.json: what a pretraining wrote down about itself.

A pretraining: from a recipe to an encoder folder with its record.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, differing_key
from mops.errors import RecipeError, UsageError
from mops.files import holds, remove_drafts, write_text
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource
from mops.training.checkpoint import load_best, load_state
from mops.training.mlm.loop import BEST, STATE, Loop
from mops.training.mlm.model import (
    begin_head,
    build_network,
    head_owner,
    held_out_losses,
    load_head,
    perplexity,
    write_encoder,
)
from mops.training.mlm.settings import (
    BATCH_SIZE,
    CONTROL,
    START,
    Prepared,
    Settings,
    plan_budget,
    prepare,
)
from mops.training.optim import build_optimiser
from mops.training.prepare import meta_info
from mops.training.tracking import label_of
from mops.training.trainer import Silent, Watcher

RECORD = "pretrain.json"


def build_record(
    ready: Prepared, loop: Loop, losses: Mapping[str, float], *, is_new_head: bool
) -> dict[str, Any]:
    """`losses` are those of the written files on the held-out halves."""
    now, budget, curve = loop.progress, loop.budget, loop.read_curve()
    judged = {line["phase"]: line for line in curve if "held_out" in line}
    baseline = judged.get(CONTROL, judged[START])
    held_out = {
        "start": point(0, judged[START]["held_out"]),
        "baseline": point(baseline["step"], baseline["held_out"]),
        "end": point(now.best_step, losses),
    }
    steps = now.step - budget.control
    return {
        "settings": ready.settings.to_data(),
        "head": "new" if is_new_head else "of the encoder's file",
        "texts": dict(ready.corpus.counts),
        "held_out": held_out,
        "train_info": {
            "steps": steps,
            "planned_steps": budget.steps,
            "control_steps": budget.control,
            "best_step": now.best_step,
            "stopped_early": now.is_stopped,
            "passes": steps * ready.settings.batch_size / len(ready.corpus.train),
            "tokens": now.tokens,
            "control_seconds": baseline["seconds"],
            "train_seconds": now.seconds - baseline["seconds"],
        },
        "warnings": warnings_of(held_out, loop),
        "curve": curve,
        "meta_info": asdict(meta_info(ready.device, ready.source, ready.dataset)),
    }


def point(step: int, losses: Mapping[str, float]) -> dict[str, float]:
    return {
        "step": step,
        "loss": losses["report"],
        "perplexity": perplexity(losses["report"]),
        "selection_loss": losses["selection"],
    }


def warnings_of(held_out: Mapping[str, Mapping[str, float]], loop: Loop) -> list[str]:
    """Results that are none, and a budget that was too small."""
    before, after = held_out["baseline"]["perplexity"], held_out["end"]["perplexity"]
    now, budget = loop.progress, loop.budget
    if now.best_step == 0:
        return [
            "no state was better than the start: the written encoder is the one that it began "
            "with; raise the budget, or change training.learning_rate"
        ]
    found = []
    if after >= before:
        found.append(
            f"held-out perplexity is not below the control: {before:.2f} when only the head "
            f"learns, {after:.2f} with the encoder; the encoder itself has not gained; raise the "
            "budget, or change training.learning_rate"
        )
    if now.best_step == budget.steps:
        found.append("the best evaluation is the last one: a larger budget may lower it further")
    return found


SETTINGS = "settings.json"  # in the state folder, before there is a record


@dataclass(frozen=True)
class Pretrained:
    """A pretrained encoder: its folder and what was written down about it."""

    folder: Path
    record: Mapping[str, Any]
    was_finished: bool = False


def pretrain(
    recipe: Recipe,
    out: str | Path,
    *,
    batch_size: int = BATCH_SIZE,
    control_steps: int | None = None,
    watcher: Watcher | None = None,
) -> Pretrained:
    """Train the recipe's encoder on masked words of its tasks' texts; `out` becomes an encoder.

    Labels and the plan play no part. An interrupted run goes on when it is called again.
    """
    folder, watcher = Path(out), watcher or Silent()
    ready = prepare(Settings(recipe, batch_size, control_steps), watcher.phase)
    state = folder / "state"
    if is_finished(folder, ready):
        shutil.rmtree(state, ignore_errors=True)  # killed just before it was removed
        return Pretrained(folder, read_json(folder / RECORD), was_finished=True)
    watcher.phase("tokenising")
    network, is_new_head = begin_network(ready, ready.source)
    loop = build_loop(state, ready, network, is_new_head=is_new_head)
    remove_drafts(folder)
    write_text(state / SETTINGS, json.dumps(ready.settings.to_data(), indent=2))
    kept = loop.progress.curve_bytes
    with loop.curve.heard(recipe, label_of(folder), kept_bytes=kept, state=state):
        loop.run(watcher)
        record = conclude(folder, ready, loop, watcher, is_new_head=is_new_head)
        loop.curve.audience.end({"final/perplexity": record["held_out"]["end"]["perplexity"]})
    shutil.rmtree(state, ignore_errors=True)
    return Pretrained(folder, record)


def conclude(
    folder: Path, ready: Prepared, loop: Loop, watcher: Watcher, *, is_new_head: bool
) -> dict[str, Any]:
    """Write the best state as an encoder, judge it as a user will load it, write that down."""
    loop.release()
    load_best(loop.state / BEST, loop.network)
    watcher.phase("writing")
    write_encoder(folder, loop.network, ready.source)
    written, _ = begin_network(ready, EncoderSource(str(folder), folder))
    losses = held_out_losses(written, ready.corpus.held_out)
    record = build_record(ready, loop, losses, is_new_head=is_new_head)
    write_text(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return record


def begin_network(ready: Prepared, source: EncoderSource) -> tuple[Network, bool]:
    """The encoder of a folder with its head, or with a new one where it has none."""
    training = ready.settings.recipe.training
    network = build_network(source.shape, ready.reading, training.dropout, training.seed)
    load_pretrained(network, source)
    head = network.bank[head_owner(network)]
    is_new = not load_head(head, source)
    if is_new:
        begin_head(head, ready.corpus.word_counts(), training.seed)
    return network.to(ready.device), is_new


def build_loop(state: Path, ready: Prepared, network: Network, *, is_new_head: bool) -> Loop:
    """At its first step, or at the next one of an interrupted run."""
    training = ready.settings.recipe.training
    if not is_new_head:  # the rate of new weights would undo what it has learnt
        training = training.model_copy(update={"head_learning_rate": training.learning_rate})
    loop = Loop(
        state=state,
        network=network,
        optimiser=build_optimiser(network, training),
        corpus=ready.corpus,
        settings=ready.settings,
        budget=plan_budget(ready.settings, len(ready.corpus.train)),
        key=ready.key,
        first_head={
            n: t.clone() for n, t in network.bank[head_owner(network)].state_dict().items()
        },
    )
    if (state / STATE).is_file():
        loop.progress = load_state(state / STATE, network, loop.optimiser, ready.key, {})
    return loop


# ------------------------------------------------------------------ the folder


def is_finished(folder: Path, ready: Prepared) -> bool:
    """Whether this very encoder is already there; refuses a folder that holds another one."""
    if not holds(folder, RECORD, f"state/{SETTINGS}", kind="pretraining"):
        return False
    record, begun = folder / RECORD, folder / "state" / SETTINGS
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
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as cause:
        raise UsageError(
            f"{path} cannot be read: {cause}; delete the folder and start again"
        ) from cause
    return found
