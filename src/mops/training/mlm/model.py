"""An encoder with a head that predicts masked words: its loss, and its files for transformers.

Shapes: S segments of the pack, C chosen tokens, D width, V words.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mops.data.tokens import load_tokenizer
from mops.files import atomic_write, write_text
from mops.model.blocks import ACTIVATIONS, Dense
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import (
    TRUNK,
    foreign_tensors,
    plain_name,
    read_tensors,
    read_weights,
    write_tensors,
)
from mops.model.sources import CONFIG, WEIGHTS, EncoderSource, weights_file
from mops.plans.layout import lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task
from mops.training.mlm.corpus import TEXT, Masked

SPREAD = 0.02  # standard deviation of new weights, as in BERT


class WordHead(nn.Module):
    """E LayerNorm(GELU(W h)) + b, with E the encoder's word vectors (Devlin et al. 2019)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = Dense(shape.width, shape.width)
        # RoBERTa's head always uses GELU.
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
    """Fill the head from the encoder's file; False, and unchanged, when it has no tied head."""
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
    """New weights; the bias starts at the log frequency of each word in the training texts.

    So the first predictions already know how frequent words are. Add-one smoothing for words that
    never occur.
    """
    shares = (counts + 1) / (counts + 1).sum()
    state = head.state_dict()
    state["dense.weight"].normal_(0, SPREAD, generator=torch.Generator().manual_seed(seed))
    state["dense.bias"].zero_()
    state["bias"].copy_(torch.from_numpy(np.log(shares)))


TOKENS = 4096  # of one pack of held-out texts; bounds memory
# Not a task of a recipe: a network needs one to lay out its single route.
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
    """Logits and targets of the chosen tokens; the head computes no others."""
    device = next(network.parameters()).device
    pack = pack_segments([masked.segment for masked in batch], network.layout, device)
    starts_S = pack.first_S.index_select(0, pack.task_segments[TEXT])  # in the order of the batch
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
    """Half -> the mean loss over all its chosen tokens (not a mean over batches)."""
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
    """exp of the mean loss."""
    return math.exp(min(loss, 700.0))  # larger overflows


ARCHITECTURES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
}
BASE = (*TRUNK, "pooler.")  # transformers puts the family before these names
TOKENIZER = "tokenizer.json"
TOKENIZER_FILES = (
    TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip


def write_encoder(folder: Path, network: Network, source: EncoderSource) -> None:
    """config.json, the tokenizer's files and the weights; each appears complete or not at all."""
    write_text(folder / CONFIG, config_text(source))
    for name in TOKENIZER_FILES:
        if (source.folder / name).is_file():
            with atomic_write(folder / name) as draft:
                shutil.copyfile(source.folder / name, draft)
    if not (folder / TOKENIZER).is_file():
        with atomic_write(folder / TOKENIZER) as draft:
            load_tokenizer(source.folder).save(str(draft))
    with atomic_write(folder / WEIGHTS) as draft:
        write_tensors(draft, foreign_weights(network, source))


def config_text(source: EncoderSource) -> str:
    """The source's configuration with another head, tied, in float32."""
    config = json.loads((source.folder / CONFIG).read_text("utf-8"))
    config["architectures"] = [ARCHITECTURES[source.shape.family]]
    config |= {key: "float32" for key in ("dtype", "torch_dtype") if key in config}
    config |= {key: True for key in ("tie_word_embeddings",) if key in config}
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def foreign_weights(network: Network, source: EncoderSource) -> dict[str, Tensor]:
    """Our tensors under their names, and the source's tensors that mops does not use."""
    family = source.shape.family
    ours = dict(trained_weights(network, family))
    theirs, _ = read_tensors(weights_file(source.folder))
    kept = {}
    for name, tensor in theirs.items():
        plain = plain_name(name, family)
        if plain not in ours and plain not in TIED[family]:
            kept[plain if plain.startswith(BASE) else name] = tensor
    return {
        f"{family}.{name}" if name.startswith(BASE) else name: tensor
        for name, tensor in (kept | ours).items()
    }


def trained_weights(network: Network, family: str) -> Iterator[tuple[str, Tensor]]:
    """(their name without the family, tensor); query, key and value are parted again."""
    for name, tensor in foreign_tensors(network):
        yield name, tensor.cpu().clone()
    head = network.bank[head_owner(network)].state_dict()
    for ours, name in HEADS[family].items():
        yield name, head[ours].cpu()
