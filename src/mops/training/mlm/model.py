"""An encoder with a head that predicts masked words: its loss, and its files for transformers.

Shapes: S segments of the pack, C chosen tokens, D width, V words.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mops.data.batches import split_batches
from mops.data.tokens import load_tokenizer
from mops.files import atomic_write, write_text
from mops.model import pretrained
from mops.model.blocks import ACTIVATIONS, Dense
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.sources import CONFIG, WEIGHTS, EncoderSource, weights_file
from mops.plans.layout import Layout, lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task
from mops.training.mlm.corpus import TEXT, Corpus, Masked
from mops.training.prepare import Prepared

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


class HeadNames(NamedTuple):
    """The masked-word head of a family in transformers."""

    architecture: str
    dense: str
    norm: str
    bias: str
    output: str  # second copies of the word vectors and the bias, in files that keep them apart

    def places(self) -> dict[str, str]:
        """Our tensors -> theirs."""
        pairs = product((("dense", self.dense), ("norm", self.norm)), ("weight", "bias"))
        named = {f"{ours}.{kind}": f"{theirs}.{kind}" for (ours, theirs), kind in pairs}
        return named | {"bias": self.bias}


HEADS = {
    "bert": HeadNames(
        "BertForMaskedLM", "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "cls.predictions.decoder",
    ),
    "roberta": HeadNames(
        "RobertaForMaskedLM", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias",
        "lm_head.decoder",
    ),
    "distilbert": HeadNames(
        "DistilBertForMaskedLM", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias",
        "vocab_projector",
    ),
}  # fmt: skip
WORDS = "embeddings.word_embeddings.weight"


def load_head(head: nn.Module, source: EncoderSource) -> bool:
    """Fill the head from the encoder's file; False, and unchanged, when it has no tied head."""
    names, state = HEADS[source.shape.family], head.state_dict()
    theirs = pretrained.read_weights(weights_file(source.folder), source.shape.family)
    tensors = {ours: theirs.get(name) for ours, name in names.places().items()}
    is_there = all(t is not None and t.shape == state[n].shape for n, t in tensors.items())
    output = theirs.get(f"{names.output}.weight", theirs[WORDS])
    if not is_there or not torch.equal(output, theirs[WORDS]):
        return False
    head.load_state_dict(tensors)
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


def lay_out_words(shape: EncoderShape, reading: Reading) -> Layout:
    """A single route, which needs a task to be laid out; its head is replaced by the word head."""
    task = Task(name=TEXT, type="classification", text=(TEXT,), label="word", labels=("a", "b"))
    return lay_out(SharingPlan(name=TEXT), [task], shape, reading)


def build_network(layout: Layout, dropout: float, seed: int) -> Network:
    network = Network(layout, dropout=dropout, seed=seed)
    network.bank[head_owner(network)] = WordHead(layout.encoder)
    return network


def begin_network(ready: Prepared, source: EncoderSource, corpus: Corpus) -> tuple[Network, bool]:
    """The encoder of a folder with its word head, or with a new one where it has none."""
    training = ready.recipe.training
    network = build_network(ready.layout, training.dropout, training.seed)
    pretrained.load_pretrained(network, source)
    head = network.bank[head_owner(network)]
    is_new = not load_head(head, source)
    if is_new:
        begin_head(head, corpus.word_counts(), training.seed)
    return network.to(ready.device), is_new


def head_owner(network: Network) -> str:
    return network.layout.routes[TEXT].head


def masked_loss(network: Network, batch: Sequence[Masked], reduction: str = "mean") -> Tensor:
    """Cross entropy over all chosen tokens of the batch; the head computes no others."""
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
    return F.cross_entropy(logits_CV, torch.from_numpy(targets).to(device), reduction=reduction)


@torch.inference_mode()
def held_out_losses(network: Network, held_out: Mapping[str, Sequence[Masked]]) -> dict[str, float]:
    """Half -> the mean loss over all its chosen tokens (not a mean over batches)."""
    network.eval()
    losses = {}
    for half, sequences in held_out.items():
        total = sum(float(masked_loss(network, chunk, "sum")) for chunk in chunks(sequences))
        losses[half] = total / sum(len(masked.places) for masked in sequences)
    return losses


def chunks(sequences: Sequence[Masked]) -> Iterator[list[Masked]]:
    """Neighbours by length, as many as fit one pack."""

    def length(masked: Masked) -> int:
        return len(masked.segment.ids)

    return split_batches(sorted(sequences, key=length), length, TOKENS)


BASE = (*pretrained.TRUNK, "pooler.")  # transformers puts the family before these names
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip


def write_encoder(folder: Path, network: Network, source: EncoderSource) -> None:
    """config.json, the tokenizer's files and the weights; each appears complete or not at all.

    The configuration is the source's, with another head, tied, in float32.
    """
    config = json.loads((source.folder / CONFIG).read_text("utf-8"))
    present = {"dtype": "float32", "torch_dtype": "float32", "tie_word_embeddings": True}
    config |= {key: value for key, value in present.items() if key in config}
    config["architectures"] = [HEADS[source.shape.family].architecture]
    write_text(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    for name in TOKENIZER_FILES:
        if (source.folder / name).is_file():
            with atomic_write(folder / name) as draft:
                shutil.copyfile(source.folder / name, draft)
    if not (folder / TOKENIZER_FILES[0]).is_file():
        with atomic_write(folder / TOKENIZER_FILES[0]) as draft:
            load_tokenizer(source.folder).save(str(draft))
    with atomic_write(folder / WEIGHTS) as draft:
        pretrained.write_tensors(draft, foreign_weights(network, source))


def foreign_weights(network: Network, source: EncoderSource) -> dict[str, Tensor]:
    """Our tensors under their names, and the source's tensors that mops does not use."""
    family, head = source.shape.family, network.bank[head_owner(network)].state_dict()
    names = HEADS[family]
    # query, key and value are views of one tensor
    ours = {name: tensor.cpu().clone() for name, tensor in pretrained.foreign_tensors(network)}
    ours |= {theirs: head[name].cpu() for name, theirs in names.places().items()}
    kept = {}
    for name, tensor in pretrained.read_tensors(weights_file(source.folder))[0].items():
        plain = pretrained.plain_name(name, family)
        if plain not in ours and plain not in (f"{names.output}.weight", f"{names.output}.bias"):
            kept[plain if plain.startswith(BASE) else name] = tensor
    return {
        f"{family}.{name}" if name.startswith(BASE) else name: tensor
        for name, tensor in (kept | ours).items()
    }
