"""The encoder: a bank that owns every weight once, and one loop over the layers.

The loop does not know the plan. A pack says which tokens each owner serves; a shared plan has one
span per layer, separate encoders have one per task, anything between follows the same lines.

Shapes: T tokens of the pack, D width.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from mops.encoder.blocks import PARTS, join
from mops.encoder.pack import Pack, Span
from mops.layout import Layout, Route


def trunk_bank(layout: Layout, dropout: float) -> dict[str, nn.Module]:
    """Owner -> module, for all that the routes pass in the trunk; each owner once."""
    owners = dict(pair for route in layout.routes.values() for pair in trunk_owners(route))
    return {owner: PARTS[part](layout.encoder, dropout) for owner, part in owners.items()}


def trunk_owners(route: Route) -> Iterator[tuple[str, str]]:
    """(owner, part) of the pretrained weights on a route."""
    yield route.embeddings, "embeddings"
    for layer in route.layers:
        yield from ((owner, part) for part, owner in layer.items())
    yield from ((owner, "pooler") for owner in route.pooler)


def encode(bank: nn.ModuleDict, pack: Pack) -> Tensor:
    """BERT over packed tokens: the hidden state of every token at the top of its route."""
    hidden_TD = join([bank[s.owner](pack.tokens[s.tokens]) for s in pack.embeddings])
    for stage in pack.stages:
        hidden_TD = stage.fan_out(hidden_TD)
        attended_TD = serve(bank, stage.spans["attention"], hidden_TD)
        hidden_TD = norm(bank, stage.spans["norms"], "attention", hidden_TD + attended_TD)
        output_TD = serve(bank, stage.spans["feedforward"], hidden_TD)
        hidden_TD = norm(bank, stage.spans["norms"], "feedforward", hidden_TD + output_TD)
    return hidden_TD


def serve(bank: nn.ModuleDict, spans: tuple[Span, ...], hidden_TD: Tensor) -> Tensor:
    return join([bank[s.owner](hidden_TD[s.tokens], *s.buckets) for s in spans])


def norm(bank: nn.ModuleDict, spans: tuple[Span, ...], after: str, sum_TD: Tensor) -> Tensor:
    return join([bank[s.owner].get_submodule(after)(sum_TD[s.tokens]) for s in spans])
