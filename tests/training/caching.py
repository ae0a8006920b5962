"""Networks that are frozen from the bottom up, and their caches, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from building import (
    DEPTH,
    NAMES,
    build_network,
    mixed_batch,
    mixed_segments,
    shake,
)
from mops.config.training import Training
from mops.model.network import Network
from mops.plans.shapes import Reading
from mops.store import Store
from mops.training.feature_cache import FeatureCache, open_cache
from mops.training.optim import build_optimizer
from stepping import take_step

FROZEN_FIRST: dict[str, Any] = {
    "name": "separate, its first layers frozen",
    "copies": [{"part": "*", "per": ["layer", "task"]}],
    "rates": [
        {"owner": "embeddings*", "factor": 0},
        {"owner": "*/layer00*", "factor": 0},
        {"owner": "*/layer01*", "factor": 0},
        {"owner": "*", "factor": 1},
    ],
}
FROZEN_WITH_ADDITION: dict[str, Any] = {
    "name": "a frozen addition of each task in the first layer",
    "additions": [
        {
            "name": "narrow",
            "kind": "bottleneck",
            "sites": ["after_attention"],
            "per": {"down": ["layer"], "up": ["task"]},
            "layers": [0, 0],
            "size": 4,
        }
    ],
    "rates": [
        {"owner": "embeddings*", "factor": 0},
        {"owner": "*/layer00*", "factor": 0},
        {"owner": "narrow_up*", "factor": 0},
        {"owner": "*", "factor": 1},
    ],
}
FROZEN_TOP: dict[str, Any] = {
    "name": "all frozen but an attention on top",
    "additions": [
        {
            "name": "top",
            "kind": "pal",
            "sites": ["on_top"],
            "per": {"down": ["task"], "attend": ["task"], "up": ["task"]},
            "size": 12,
        }
    ],
    "rates": [{"owner": "top_*", "factor": 1}, {"owner": "head*", "factor": 1},
              {"owner": "*", "factor": 0}],
}  # fmt: skip
POOLED = DEPTH + 1
# plan, reading -> how many stages are frozen: the embeddings, then the layers, then the tops
PLANS: dict[str, tuple[Any, Reading, int]] = {
    "late": ("frozen+late:SIS", Reading(), POOLED),
    "late, bi": ("frozen+late:SIS", Reading(pair="bi", pool="sum"), POOLED),
    "pooler": ("frozen+shared", Reading(pool="pooler"), POOLED),
    "cls": ("frozen+progressive", Reading(pool="cls"), POOLED),
    "layers": ("layers:FFSI", Reading(), 3),
    "layers, pooler": ("layers:FSIF", Reading(pool="pooler", pair="bi"), 2),
    "separate": (FROZEN_FIRST, Reading(), 3),
    "addition": (FROZEN_WITH_ADDITION, Reading(), 2),
    "top": (FROZEN_TOP, Reading(), POOLED),
    "separate, all": ("frozen+separate", Reading(), POOLED),
}
# What learns inside, or is there nothing to gain: no cache.
WITHOUT = {"frozen+pals:parallel": 1, "frozen+adapters:8": 1, "shared": 0, "layers:SFFF": 0}


def build(plan: Any, reading: Reading, folder: Path, dropout: float = 0.3) -> Network:
    network = build_network(plan, folder, reading=reading, dropout=dropout)
    for n, (owner, module) in enumerate(network.bank.items()):
        if owner.startswith(("narrow", "top")):
            shake(module, seed=n)  # additions begin as nothing
    return network


def opened(network: Network, store: Store) -> FeatureCache:
    cache = open_cache(network, store)
    assert cache is not None
    return cache


def filled(network: Network, store: Store, every: int = 1) -> FeatureCache:
    """A cache with every n-th sequence of a batch; the others are computed when needed."""
    cache = opened(network, store)
    for task in NAMES:
        cache.fill(task, [s for s in mixed_segments(network) if s.tasks == (task,)][::every])
    return cache


def train(network: Network, cache: FeatureCache | None, steps: int = 3) -> list[Any]:
    training = Training(learning_rate=1e-2, head_learning_rate=1e-2, max_steps=steps, seed=5)
    optimizer = build_optimizer(network, training)
    pack = cache.pack if cache else None
    return [
        take_step(
            network, optimizer, mixed_batch(network), training, step=n, total=steps, pack=pack
        )
        for n in range(steps)
    ]
