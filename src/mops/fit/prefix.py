"""The frozen prefix: the stages from the bottom up in which nothing learns, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from mops.encoder.network import Network
from mops.layout import Layout
from mops.records import processor_name
from mops.routes import Route

FORMAT = 1  # of what is kept


@dataclass(frozen=True)
class Prefix:
    """What no task teaches: a function of the text alone."""

    stages: int  # the embeddings, then each layer, then each place on top
    layout: Layout  # cut above the prefix
    is_pooled: bool  # nothing in the trunk learns: a sequence is its pooled vector

    @property
    def layers(self) -> int:
        return self.layout.encoder.depth


def find_prefix(network: Network) -> Prefix:
    """As far as no owner on the route of any task learns now."""
    routes = network.layout.routes.values()
    every = list(zip(*(route.stages for route in routes), strict=True))
    is_learning = [
        any(network.rates[owner] > 0 for owners in stage for owner in owners) for stage in every
    ]
    stages = (*is_learning, True).index(True)
    return Prefix(stages, cut(network.layout, stages), stages == len(every))


def cut(layout: Layout, stages: int) -> Layout:
    """The layout without what lies above."""
    above = max(0, stages - 1)  # without the embeddings
    routes = {
        task: replace(route, layers=route.layers[:above], stops=route.stops[:above])
        for task, route in layout.routes.items()
    }
    depth = min(layout.encoder.depth, above)
    return replace(layout, routes=routes, encoder=replace(layout.encoder, depth=depth))


def prefix_digests(network: Network, prefix: Prefix) -> dict[str, str]:
    """Task -> what names the function below: its weights and equations, not the owners' names.

    Copies with the same weights have the same digest. The machine is part of it: other kernels
    may give other last bits.
    """
    weights: dict[str, str] = {}
    for route in prefix.layout.routes.values():
        for owner in (owner for stage in route.stages for owner in stage):
            weights[owner] = weights.get(owner) or weights_digest(network.bank[owner])
    common = [FORMAT, asdict(prefix.layout.encoder), prefix.stages, machine(network)]
    common += [network.pool.__name__] if prefix.is_pooled else []
    return {
        task: digest([common, description(route, weights)])
        for task, route in prefix.layout.routes.items()
    }


def description(route: Route, weights: Mapping[str, str]) -> list[Any]:
    """The stages of a route with the digests of their weights."""
    found: list[Any] = [weights[route.embeddings]]
    found += [{part: weights[owner] for part, owner in layer.items()} for layer in route.layers]
    for stops in route.stops:
        found.append(
            [
                [stop.site, repr(stop.addition), {p: weights[o] for p, o in stop.parts.items()}]
                for stop in stops
            ]
        )
    return found


def digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def weights_digest(module: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def machine(network: Network) -> list[Any]:
    """What decides on the last bits beside the weights."""
    device = next(network.parameters()).device
    is_compiled = any(getattr(m, "_compiled_call_impl", None) for m in network.bank.values())
    kernels = torch.backends.cpu.get_cpu_capability()
    return [
        torch.__version__,
        device.type,
        processor_name(),
        kernels,
        is_compiled,
    ]
