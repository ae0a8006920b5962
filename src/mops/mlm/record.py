"""pretrain.json: what a pretraining wrote down about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mops.mlm.loop import Loop
from mops.mlm.model import perplexity
from mops.mlm.prepare import Prepared
from mops.records import machine_info

RECORD = "pretrain.json"


def build_record(
    ready: Prepared, loop: Loop, losses: Mapping[str, float], *, is_new_head: bool
) -> dict[str, Any]:
    """`losses` are those of the written files on the held-out halves."""
    now, budget, curve = loop.progress, loop.budget, loop.read_curve()
    judged = {line["step"]: line["held_out"] for line in curve if "held_out" in line}
    held_out = {
        "start": point(0, judged[0]),
        "baseline": point(budget.head_steps, judged[budget.head_steps]),
        "end": point(now.best_step, losses),
    }
    return {
        "settings": ready.settings.to_data(),
        "head": "new" if is_new_head else "of the encoder's file",
        "texts": dict(ready.corpus.counts),
        "held_out": held_out,
        "train_info": {
            "steps": now.step,
            "planned_steps": budget.steps,
            "head_steps": budget.head_steps,
            "best_step": now.best_step,
            "stopped_early": now.is_stopped,
            "passes": now.step * ready.settings.batch_size / len(ready.corpus.train),
            "tokens": now.tokens,
            "train_seconds": now.seconds,
        },
        "warnings": warnings_of(held_out, loop),
        "curve": curve,
        "meta_info": {
            **machine_info(),
            "device": ready.device,
            "threads": torch.get_num_threads(),
            "encoder": ready.source.name,
            "encoder_sha256": ready.source.digest,
            "data_sha256": dict(ready.material.digests),
            "data_notes": ready.material.notes(),
        },
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
    found = []
    if now.best_step <= budget.head_steps:
        found.append(
            "no state was better than the baseline: the written encoder is the one that it began "
            "with; raise the budget, or change training.learning_rate"
        )
    elif after >= before:
        found.append(
            f"held-out perplexity did not fall: {before:.2f} with the encoder as it was, "
            f"{after:.2f} at the end; raise the budget, or change training.learning_rate"
        )
    elif now.best_step == budget.steps:
        found.append("the best evaluation is the last one: a larger budget may lower it further")
    return found
