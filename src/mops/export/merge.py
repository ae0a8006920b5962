"""One task's weights under the names of transformers' BERT, with its additions merged into them.

Most families compute what a BERT computes with other position numbers or without token types, so
they become a BERT.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from mops.model.adapters import equation_of
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
AFFINE = ("lora", "task_embedding")  # kinds that change weights and biases of a dense layer
NO_BUCKETS = Buckets(torch.empty(0), torch.empty(0), ())  # these kinds have no attention
MERGED_INTO = {  # site -> part and dense layer whose output gets the addition
    "in_attention": ("attention", "query_key_value"),
    "after_attention": ("attention", "output"),
    "in_feedforward": ("feedforward", "inner"),
    "after_feedforward": ("feedforward", "output"),
}


def unmergeable(layout: Layout, task: str) -> Iterator[str]:
    """What the route of a task has and a BERT with a head of its own cannot have."""
    route, shape = layout.routes[task], layout.encoder
    if shape.rotary:
        yield f"the rotary positions of {shape.family}"
    if shape.embedding:
        yield f"the projected embeddings of {shape.family}"
    others = {
        f"the addition {site.addition.name!r} ({site.addition.kind}, {site.site})": None
        for sites in route.adapters
        for site in sites
        if site.addition.kind not in AFFINE
    }
    yield from others
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
    """A part of a layer with additions in its weights: f(x) = Mx + c, measured at 0 and at I."""
    if not sites:
        return bank[owner]
    module: nn.Module = deepcopy(bank[owner])
    for site in sites:
        dense = module.get_submodule(MERGED_INTO[site.site][1])
        assert isinstance(dense, nn.Linear)
        parts = {part: bank[own] for part, own in site.parts.items()}
        points = torch.cat([torch.zeros(1, dense.in_features), torch.eye(dense.in_features)])
        added = equation_of(site)(parts, points, NO_BUCKETS)
        dense.weight.add_((added[1:] - added[0]).T)
        dense.bias.add_(added[0])
    return module
