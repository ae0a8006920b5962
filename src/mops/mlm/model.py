"""The model: one shared encoder with the head that guesses words; its loss and its perplexity.

Shapes: T tokens of the pack, C chosen tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mops.encoder.encoder import encode
from mops.encoder.network import Network
from mops.encoder.packing import pack_segments
from mops.layout import lay_out
from mops.mlm.head import WordHead
from mops.mlm.masking import TEXT, Masked
from mops.shapes import EncoderShape, Reading
from mops.sharing import SharingPlan
from mops.tasks import Task

TOKENS = 4096  # of one pack when held-out texts are judged; bounds memory
# Guessing words is no task of a recipe; a network wants one to lay out its single route.
STAND_IN = Task(name=TEXT, type="classification", text=(TEXT,), label="word", labels=("a", "b"))


def build_network(shape: EncoderShape, reading: Reading, dropout: float, seed: int) -> Network:
    """An encoder on one route, with the word head in the place of a task's."""
    layout = lay_out(SharingPlan(name=TEXT), [STAND_IN], shape, reading)
    network = Network(layout, dropout=dropout, seed=seed)
    network.bank[head_owner(network)] = WordHead(shape)
    return network


def head_owner(network: Network) -> str:
    return network.layout.routes[TEXT].head


def guess(network: Network, batch: Sequence[Masked]) -> tuple[Tensor, Tensor]:
    """Logits and targets of the chosen tokens; the head sees no other token."""
    device = next(network.parameters()).device
    pack = pack_segments([masked.segment for masked in batch], network.layout, device)
    starts_S = pack.first_S.index_select(0, pack.found[TEXT])  # in the order of the batch
    counts = torch.tensor([len(masked.places) for masked in batch], device=device)
    places_C = torch.from_numpy(np.concatenate([masked.places for masked in batch])).to(device)
    chosen_CD = encode(network.bank, pack).index_select(
        0, starts_S.repeat_interleave(counts) + places_C
    )
    targets = np.concatenate([masked.targets for masked in batch]).astype(np.int64)
    word_VD = network.bank[network.layout.routes[TEXT].embeddings].get_parameter("word.weight")
    logits_CV: Tensor = network.bank[head_owner(network)](chosen_CD, word_VD)
    return logits_CV, torch.from_numpy(targets).to(device)


def masked_loss(network: Network, batch: Sequence[Masked]) -> Tensor:
    """Cross entropy, the mean over all chosen tokens of the batch."""
    return F.cross_entropy(*guess(network, batch))


def held_out_losses(network: Network, held_out: Mapping[str, Sequence[Masked]]) -> dict[str, float]:
    """Half -> the mean loss over all its chosen tokens, never averaged over batches."""
    network.eval()
    found = {}
    for half, sequences in held_out.items():
        total = sum(summed_loss(network, chunk) for chunk in chunks(sequences))
        found[half] = total / sum(len(masked.places) for masked in sequences)
    return found


@torch.inference_mode()
def summed_loss(network: Network, batch: Sequence[Masked]) -> float:
    return float(F.cross_entropy(*guess(network, batch), reduction="sum").double())


def chunks(sequences: Sequence[Masked]) -> Iterator[list[Masked]]:
    """Neighbours by length, as many as fit one pack."""
    chunk: list[Masked] = []
    tokens = 0
    for masked in sorted(sequences, key=lambda masked: len(masked.segment.ids)):
        length = len(masked.segment.ids)
        if chunk and tokens + length > TOKENS:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(masked)
        tokens += length
    if chunk:
        yield chunk


def perplexity(loss: float) -> float:
    """exp of the mean loss: among how many words the model is undecided."""
    return math.exp(min(loss, 700.0))  # more is no number any longer
