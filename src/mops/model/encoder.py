"""The encoder: a bank that owns every weight once, and one loop over the layers.

The loop does not know the plan. A pack says which tokens each owner serves; a shared plan has one
span per layer, separate encoders have one per task, anything between follows the same lines.

Shapes: T tokens of the pack, D width, E three widths (queries, keys, values), I the inner width,
X any of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from mops.model.attention import join
from mops.model.blocks import PARTS
from mops.model.pack import Added, Pack, Span
from mops.plans.layout import Layout
from mops.plans.routes import Route


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
    embedded = (bank[s.owner](pack.tokens[s.tokens]) for s in pack.embeddings)
    hidden_TD = join([*pack.known, *embedded])
    for stage in pack.layers:
        hidden_TD = stage.fan_out(hidden_TD)
        spans, added = stage.spans, stage.added
        qkv = pieces(bank, spans["attention"], "query_key_value", hidden_TD)
        qkv = add_within(bank, added["in_attention"], hidden_TD, spans["attention"], qkv)
        attended_TD = serve(bank, spans["attention"], qkv)
        attended_TD = add(bank, added["after_attention"], attended_TD, attended_TD)
        middle_TD = join(pieces(bank, spans["norms"], "attention", hidden_TD + attended_TD))
        inner = pieces(bank, spans["feedforward"], "inner", middle_TD)
        inner = add_within(bank, added["in_feedforward"], middle_TD, spans["feedforward"], inner)
        output_TD = serve(bank, spans["feedforward"], inner)
        output_TD = add(bank, added["after_feedforward"], output_TD, output_TD)
        output_TD = add(bank, added["beside_layer"], hidden_TD, output_TD)
        hidden_TD = join(pieces(bank, spans["norms"], "feedforward", middle_TD + output_TD))
    for stage in pack.tops:
        hidden_TD = stage.fan_out(hidden_TD)
        hidden_TD = add(bank, stage.added["on_top"], hidden_TD, hidden_TD)
    return hidden_TD


def pieces(
    bank: nn.ModuleDict, spans: tuple[Span, ...], inner: str, seen_TX: Tensor
) -> list[Tensor]:
    """What a part of each owner's module makes of its span; joined only where one must be."""
    return [bank[s.owner].get_submodule(inner)(seen_TX[s.tokens]) for s in spans]


def serve(bank: nn.ModuleDict, spans: tuple[Span, ...], seen: list[Tensor]) -> Tensor:
    owners = zip(spans, seen, strict=True)
    return join([bank[s.owner](piece, *s.buckets) for s, piece in owners])


def add(bank: nn.ModuleDict, added: tuple[Added, ...], seen_TX: Tensor, onto_TX: Tensor) -> Tensor:
    """What the additions at one site make of what they see, added onto the stream there."""
    for addition in added:
        onto_TX = onto_TX + made_of(bank, addition, seen_TX)
    return onto_TX


def add_within(
    bank: nn.ModuleDict,
    added: tuple[Added, ...],
    seen_TX: Tensor,
    spans: tuple[Span, ...],
    onto: list[Tensor],
) -> list[Tensor]:
    """The same onto pieces, which stay apart where nothing is added."""
    for addition in added:
        whole_TX = join(onto) + made_of(bank, addition, seen_TX)
        onto = [whole_TX[s.tokens] for s in spans]
    return onto


def made_of(bank: nn.ModuleDict, addition: Added, seen_TX: Tensor) -> Tensor:
    return join(
        [
            addition.equation(
                {part: bank[owner] for part, owner in unit.parts.items()},
                seen_TX[unit.tokens],
                unit.buckets,
            )
            for unit in addition.units
        ]
    )
