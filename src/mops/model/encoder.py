"""The encoder: a bank that owns every weight once, and one loop over the layers.

The loop does not know the plan. A pack says which tokens each owner serves: a shared plan has one
span in each layer, separate encoders have one for each task, and every plan in between runs through
the same lines.

Shapes: T tokens of the pack, D width, X any width.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from mops.model.attention import join
from mops.model.blocks import PARTS
from mops.model.packing import Adapters, Pack, PackStage, Spans
from mops.plans.layout import Layout


def build_trunk(layout: Layout, dropout: float) -> dict[str, nn.Module]:
    """Owner -> module, once for each owner of the pretrained encoder's parts."""
    trunk = layout.trunk.items()
    return {owner: PARTS[part](layout.encoder, layers, dropout) for owner, (part, layers) in trunk}


def encode(bank: nn.ModuleDict, pack: Pack) -> Tensor:
    """The layers over packed tokens: the hidden state of every token at the top of its route."""
    embedded = (bank[owner](*tokens) for owner, tokens in pack.embeddings)
    hidden_TD = join([*pack.cached, *embedded])
    for stage in pack.layers:
        hidden_TD = stage.fan_out(hidden_TD)
        input_TD = normalise(bank, stage, "before_attention", hidden_TD)
        attended_TD = attend(bank, stage, input_TD)
        middle_TD = normalise(bank, stage, "after_attention", hidden_TD + attended_TD)
        output_TD = feed_forward(bank, stage, input_TD, middle_TD)
        hidden_TD = normalise(bank, stage, "after_feedforward", middle_TD + output_TD)
        hidden_TD = add(bank, stage.adapters["after_layer"], hidden_TD, hidden_TD)
    for stage in pack.tops:
        hidden_TD = stage.fan_out(hidden_TD)
        hidden_TD = add(bank, stage.adapters["on_top"], hidden_TD, hidden_TD)
    return hidden_TD


def attend(bank: nn.ModuleDict, stage: PackStage, input_TD: Tensor) -> Tensor:
    """The first half of a layer; what is large in it is free again at its end."""
    spans, adapters = stage.spans, stage.adapters
    qkv = apply_inner(bank, spans["attention"], "query_key_value", input_TD)
    qkv = add_to_pieces(bank, adapters["in_attention"], input_TD, spans["attention"], qkv)
    attended_TD = apply_outer(bank, spans["attention"], qkv)
    return add(bank, adapters["after_attention"], attended_TD, attended_TD)


def feed_forward(
    bank: nn.ModuleDict, stage: PackStage, input_TD: Tensor, middle_TD: Tensor
) -> Tensor:
    """The second half."""
    spans, adapters = stage.spans, stage.adapters
    seen_TD = normalise(bank, stage, "before_feedforward", middle_TD)
    inner = apply_inner(bank, spans["feedforward"], "inner", seen_TD)
    inner = add_to_pieces(bank, adapters["in_feedforward"], seen_TD, spans["feedforward"], inner)
    output_TD = apply_outer(bank, spans["feedforward"], inner)
    output_TD = add(bank, adapters["after_feedforward"], output_TD, output_TD)
    return add(bank, adapters["beside_layer"], input_TD, output_TD)


def normalise(bank: nn.ModuleDict, stage: PackStage, place: str, input_TD: Tensor) -> Tensor:
    """Through the norm at a place of a layer, if there is one."""
    for name in stage.norms[place]:
        input_TD = join(apply_inner(bank, stage.spans["norms"], name, input_TD))
    return input_TD


def apply_inner(bank: nn.ModuleDict, spans: Spans, inner: str, input_TX: Tensor) -> list[Tensor]:
    """A submodule of each owner on its own span; the pieces are joined only where they must be."""
    return [bank[s.owner].get_submodule(inner)(input_TX[s.tokens]) for s in spans]


def apply_outer(bank: nn.ModuleDict, spans: Spans, pieces: list[Tensor]) -> Tensor:
    """The module of each owner on the piece that its submodule gave."""
    pairs = zip(spans, pieces, strict=True)
    return join([bank[s.owner](piece, *s.buckets) for s, piece in pairs])


def add(bank: nn.ModuleDict, adapters: Adapters, input_TX: Tensor, onto_TX: Tensor) -> Tensor:
    """Add the outputs of the adapters at one site."""
    return sum(apply_adapters(bank, adapters, input_TX), start=onto_TX)


def add_to_pieces(
    bank: nn.ModuleDict, adapters: Adapters, input_TX: Tensor, spans: Spans, pieces: list[Tensor]
) -> list[Tensor]:
    """The same for pieces, which are joined only where there is an adapter."""
    for added_TX in apply_adapters(bank, adapters, input_TX):
        whole_TX = join(pieces) + added_TX
        pieces = [whole_TX[s.tokens] for s in spans]
    return pieces


def apply_adapters(bank: nn.ModuleDict, adapters: Adapters, input_TX: Tensor) -> Iterator[Tensor]:
    """The output of each adapter at one site; -0.0 (x + -0.0 is x, bit by bit) where it is not."""
    for equation, spans in adapters:
        pieces = {}
        for span in (span for span in spans if span.owner):
            parts = {part: bank[owner] for part, owner in span.owner.items()}
            pieces[span.tokens.start] = equation(parts, input_TX[span.tokens], *span.buckets)
        some_TX = next(iter(pieces.values()))
        for span in (span for span in spans if not span.owner):
            tokens = span.tokens.stop - span.tokens.start
            pieces[span.tokens.start] = some_TX.new_full((tokens, some_TX.shape[1]), -0.0)
        yield join([pieces[span.tokens.start] for span in spans])
