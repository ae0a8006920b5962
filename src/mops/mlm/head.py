"""The head that guesses words, tied to the encoder's word vectors; its names in other programs.

Shapes: C chosen tokens, D width, V words.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mops.encoder.blocks import ACTIVATIONS, Dense
from mops.encoder.pretrained import read_weights
from mops.encoder.sources import EncoderSource, weights_file
from mops.shapes import EncoderShape

SPREAD = 0.02  # of new weights, as BERT begins


class WordHead(nn.Module):
    """E LayerNorm(GELU(W h)) + b, with E the encoder's word vectors (Devlin et al. 2019)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = Dense(shape.width, shape.width)
        # RoBERTa's head is GELU whatever its layers are.
        self.activation = ACTIVATIONS["gelu" if shape.family == "roberta" else shape.activation]
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.bias = nn.Parameter(torch.zeros(shape.words))

    def forward(self, hidden_CD: Tensor, word_VD: Tensor) -> Tensor:
        normed_CD = self.norm(self.activation(self.dense(hidden_CD)))
        return F.linear(normed_CD, word_VD, self.bias)


def head_names(dense: str, norm: str, bias: str) -> dict[str, str]:
    """Our names -> theirs."""
    layers = {"dense": dense, "norm": norm}
    kinds = ("weight", "bias")
    named = {f"{ours}.{kind}": f"{name}.{kind}" for ours, name in layers.items() for kind in kinds}
    return {**named, "bias": bias}


HEADS = {
    "bert": head_names(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    "roberta": head_names("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    "distilbert": head_names("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
}
# Second copies of the word vectors and the bias, in files that keep tied tensors apart.
TIED = {
    "bert": ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
    "roberta": ("lm_head.decoder.weight", "lm_head.decoder.bias"),
    "distilbert": ("vocab_projector.weight",),
}
WORDS = "embeddings.word_embeddings.weight"


def load_head(head: nn.Module, source: EncoderSource) -> bool:
    """Fill the head from the encoder's file; false, and unchanged, when there is no tied one."""
    family = source.shape.family
    theirs = read_weights(weights_file(source.folder), family)
    names, state = HEADS[family], head.state_dict()
    is_there = all(
        name in theirs and theirs[name].shape == state[ours].shape for ours, name in names.items()
    )
    output = theirs.get(TIED[family][0], theirs[WORDS])
    if not is_there or not torch.equal(output, theirs[WORDS]):
        return False
    head.load_state_dict({ours: theirs[name] for ours, name in names.items()})
    return True


@torch.no_grad()
def begin_head(head: nn.Module, counts: NDArray[np.int64], seed: int) -> None:
    """New weights; the bias begins at the log share of each word in the training texts.

    So the first guesses are about those of a model that knows only how frequent words are, and the
    first steps need not be spent on that. Add-one smoothing for words that never occur.
    """
    shares = (counts + 1) / (counts + 1).sum()
    state = head.state_dict()
    state["dense.weight"].normal_(0, SPREAD, generator=torch.Generator().manual_seed(seed))
    state["dense.bias"].zero_()
    state["bias"].copy_(torch.from_numpy(np.log(shares)))
