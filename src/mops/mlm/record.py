"""pretrain.json: what a pretraining wrote down about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mops.fit.prepare import meta_info
from mops.mlm.loop import Loop
from mops.mlm.model import perplexity
from mops.mlm.prepare import Prepared
from mops.mlm.settings import CONTROL, START

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
        "meta_info": meta_info(ready.device, ready.source, ready.material),
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
