"""The guard of the gradients: does every task teach every weight that it should?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mops.data.batches import Batch
from mops.encoder.network import Network
from mops.encoder.packing import Packer
from mops.errors import GuardError
from mops.fit.step import compute_losses

GUARDED_STEP = 3  # some parts start at zero and pass no gradient before they have moved


def check_gradients(network: Network, batch: Batch, pack: Packer | None = None) -> None:
    """Stop when a task's loss gives no gradient to an owner on its route that should learn."""
    network.train()
    check_reach(network, compute_losses(network, batch, pack))


def check_reach(network: Network, losses: Mapping[str, Tensor]) -> None:
    """The same for losses that are there already."""
    untaught: list[str] = []
    for task, loss in losses.items():
        layout = network.layout
        owners = [o for o in layout.routes[task].learning if network.rates[o] and layout.sizes[o]]
        if not loss.requires_grad:
            untaught += [f"{task} -> {owner}" for owner in owners]
            continue
        parameters = {owner: list(network.bank[owner].parameters()) for owner in owners}
        flat = [p for members in parameters.values() for p in members]
        gradients = torch.autograd.grad(loss, flat, retain_graph=True, allow_unused=True)
        is_moved = {
            id(p): g is not None and bool(g.to_dense().any())
            for p, g in zip(flat, gradients, strict=True)
        }
        untaught += [
            f"{task} -> {owner}"
            for owner, members in parameters.items()
            if members and not any(is_moved[id(p)] for p in members)
        ]
    if untaught:
        raise GuardError(
            f"no gradient reaches {len(untaught)} owners that should learn "
            f"(task -> owner): {', '.join(untaught[:6])}; the loss is cut off from them, "
            "or their gradient is zero everywhere"
        )
