"""The network: one bank for everything, the encoder's loop, pooling, late layers and heads.

Shapes: S segments at the top of the pack, R rows of a task, D width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from mops.encoder.blocks import ACTIVATIONS, Dense
from mops.encoder.encoder import encode, trunk_bank
from mops.encoder.heads import build_head
from mops.encoder.pack import Pack
from mops.layout import Layout, late_widths


def first_tokens(hidden_TD: Tensor, pack: Pack) -> Tensor:
    return hidden_TD.index_select(0, pack.first_S)


def summed_tokens(hidden_TD: Tensor, pack: Pack) -> Tensor:
    zeros_SD = hidden_TD.new_zeros(len(pack.length_S), hidden_TD.shape[1])
    return zeros_SD.index_add(0, pack.segment_T, hidden_TD)


def mean_tokens(hidden_TD: Tensor, pack: Pack) -> Tensor:
    return summed_tokens(hidden_TD, pack) / pack.length_S[:, None]


POOLS: dict[str, Callable[[Tensor, Pack], Tensor]] = {
    "pooler": first_tokens,  # the pooler itself is an owner on the route
    "cls": first_tokens,
    "sum": summed_tokens,
    "mean": mean_tokens,
}


class Network(nn.Module):
    """Packed texts in, the outputs of every task out."""

    def __init__(
        self, layout: Layout, *, dropout: float = 0.0, head_dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.layout = layout
        new = dict(new_parts(layout, head_dropout))
        self.bank = nn.ModuleDict(trunk_bank(layout, dropout))
        self.bank.update({owner: seeded(build, seed, owner) for owner, build in new.items()})
        self.pool = POOLS[layout.reading.pool]
        self.set_rates(layout.rates)

    def forward(self, pack: Pack) -> dict[str, Tensor]:
        pooled_SD = self.pool(encode(self.bank, pack), pack)
        return {task: self.answer(task, pooled_SD, found) for task, found in pack.found.items()}

    def answer(self, task: str, pooled_SD: Tensor, found: Tensor) -> Tensor:
        """One task's outputs: its segments through its pooler, its late layers and its head."""
        route = self.layout.routes[task]
        texts = 1 + self.layout.reading.texts_apart(self.layout.tasks[task].is_pair)
        vectors = pooled_SD.index_select(0, found)
        for owner in (*route.pooler, *route.late):
            vectors = self.bank[owner](vectors)
        outputs_RO: Tensor = self.bank[route.head](
            vectors.view(-1, texts, vectors.shape[1]).unbind(1)
        )
        return outputs_RO

    def train(self, mode: bool = True) -> Network:
        """What is frozen stays in eval mode."""
        super().train(mode)
        for owner, rate in self.rates.items():
            self.bank[owner].train(mode and rate > 0)
        return self

    def owner_parameters(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """(owner, name within it, parameter) of everything in the bank."""
        for owner, module in self.bank.items():
            for name, parameter in module.named_parameters():
                yield owner, name, parameter

    def weights(self) -> Mapping[str, Tensor]:
        """The checkpoint: `owner.name` -> tensor."""
        return {key: value.detach() for key, value in self.bank.state_dict().items()}

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Owner -> factor on the learning rate from now on; 0 freezes."""
        self.rates = dict(rates)
        for owner, rate in rates.items():
            self.bank[owner].requires_grad_(rate > 0)


def new_parts(layout: Layout, dropout: float) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """(owner, how to build it) of what the pretrained encoder does not have."""
    widths = late_widths(layout.plan, layout.encoder)
    for name, task in layout.tasks.items():
        route = layout.routes[name]
        for n, owner in enumerate(route.late):
            activation = layout.plan.late[n].activation
            yield owner, partial(late_layer, widths[n], widths[n + 1], activation)
        yield route.head, partial(build_head, task, layout.reading, widths[-1], dropout)


def late_layer(width: int, wider: int, activation: str) -> nn.Module:
    """Starts orthogonal, at ReLU's gain: the vectors keep their lengths and their distances.

    With torch's own start three such layers on a frozen MiniLM lose what tells sentences apart.
    """
    layer = Dense(width, wider)
    nn.init.orthogonal_(layer.weight, gain=2**0.5)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, ACTIVATIONS[activation])


def seeded(build: Callable[[], nn.Module], seed: int, owner: str) -> nn.Module:
    """A module whose first weights follow from the seed and its name alone, whatever the plan."""
    digest = hashlib.sha256(f"{seed}/{owner}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest[:7], "big"))
        return build()
