"""One task's weights under the names of transformers' BERT, with its additions merged into them.

Most families compute what a BERT computes with other position numbers or without token types, so
they become a BERT.
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from mops.model.adapters import Equation, Parts, equation_of
from mops.model.attention import Buckets
from mops.model.network import Network
from mops.model.pretrained import named_tensors
from mops.model.sources import FAMILIES
from mops.plans.layout import Layout
from mops.plans.rows import LAYER_PARTS, AdapterSite
from mops.plans.shapes import EncoderShape

FAMILY = "bert"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
NO_BUCKETS = Buckets(torch.empty(0), torch.empty(0), ())  # these kinds have no attention
MERGED_INTO = {  # site -> part and its dense layer or norm, whose output gets the addition
    "in_attention": ("attention", "query_key_value"),
    "after_attention": ("attention", "output"),
    "in_feedforward": ("feedforward", "inner"),
    "after_feedforward": ("feedforward", "output"),
    "after_layer": ("norms", "feedforward"),
}


def unmergeable(layout: Layout, task: str) -> Iterator[str]:
    """What the route of a task has and a BERT with a head of its own cannot have."""
    route, shape = layout.routes[task], layout.encoder
    if shape.rotary:
        yield f"the rotary positions of {shape.family}"
    if shape.embedding:
        yield f"the projected embeddings of {shape.family}"
    yield from dict.fromkeys(
        f"the addition {site.addition.name!r} ({site.addition.kind}, {site.site})"
        for site in chain(*route.adapters)
        if site.addition.kind not in MERGERS
        or site.site not in MERGED_INTO
        or site.addition.activation
    )
    has_norm = layout.reading.head(task).norm
    if any(row.norm for row in (layout.plan.late if has_norm else layout.plan.late[:-1])):
        yield "a norm below a late layer or another norm"
    for feed in route.feeds:
        yield f"the {feed.what} of {feed.source!r} that are fed into the head"


def trunk_config(shape: EncoderShape) -> dict[str, Any]:
    """config.json of a BERT of this shape."""
    sizes = {theirs: getattr(shape, ours) for ours, theirs in FAMILIES[FAMILY]["config"].items()}
    return {
        "model_type": FAMILY,
        **sizes,
        "vocab_size": shape.words,
        "max_position_embeddings": shape.longest,
        "type_vocab_size": max(1, shape.types),
        "layer_norm_eps": shape.epsilon,
        "dtype": "float32",
    }


def trunk_tensors(network: Network, task: str) -> dict[str, Tensor]:
    """The weights of the encoder on a task's route."""
    route, shape = network.layout.routes[task], network.layout.encoder
    tensors: dict[str, Tensor] = {}
    for owner, part, layer in route.trunk:
        sites = route.adapters[layer] if part in LAYER_PARTS else ()
        module = merge(network.bank, owner, [s for s in sites if MERGED_INTO[s.site][0] == part])
        named = named_tensors(module, part, layer, shape, FAMILY)
        tensors |= {name: tensor.clone() for name, tensor in named}  # layers may share an owner
    tensors[POSITIONS] = tensors[POSITIONS][shape.first_position :]
    tensors.setdefault(TYPES, torch.zeros(1, shape.width))
    return tensors


def merge(bank: nn.ModuleDict, owner: str, sites: list[AdapterSite]) -> nn.Module:
    """A part of a layer with additions in its weights."""
    if not sites:
        return bank[owner]
    module: nn.Module = deepcopy(bank[owner])
    for site in sites:
        name = MERGED_INTO[site.site][1]
        parts = {part: bank[own] for part, own in site.parts.items()}
        layer, plain = (each.get_submodule(name) for each in (module, bank[owner]))
        MERGERS[site.addition.kind](layer, plain, equation_of(site), parts)
    return module


def add_map(layer: Any, plain: Any, equation: Equation, parts: Parts) -> None:
    """Into a dense layer: what is added is Mx + c in its input x, measured at 0 and at I."""
    points = torch.cat([torch.zeros(1, plain.in_features), torch.eye(plain.in_features)])
    added = equation(parts, points, NO_BUCKETS)
    layer.weight.add_((added[1:] - added[0]).T)
    layer.bias.add_(added[0])


def scale_output(layer: Any, plain: Any, equation: Equation, parts: Parts) -> None:
    """Into a dense layer or a norm: what is added is d y in its output y."""
    factor = equation(parts, torch.ones(1, len(plain.bias)), NO_BUCKETS)[0]
    layer.weight.add_(torch.einsum("o,o...->o...", factor, plain.weight))
    layer.bias.add_(factor * plain.bias)


MERGERS = {"lora": add_map, "task_embedding": add_map, "amplitude": scale_output}  # by kind
