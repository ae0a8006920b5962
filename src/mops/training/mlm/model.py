"""An encoder with a head that predicts masked words: its loss, and its files for transformers.

Shapes: S segments of the pack, C chosen tokens, D width, V words.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.data.batches import Segment, load_tokenizer, split_batches
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


# The masked-word model of a family in transformers: its class and the names of our modules in it.
# "" is the head itself, which has the bias; "output" has second copies of the word vectors and the
# bias, in files that keep them apart.
HEADS = {
    "bert": {
        "class": "BertForMaskedLM", "": "cls.predictions", "output": "cls.predictions.decoder",
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
    },
    "roberta": {
        "class": "RobertaForMaskedLM", "": "lm_head", "output": "lm_head.decoder",
        "dense": "lm_head.dense", "norm": "lm_head.layer_norm",
    },
    "distilbert": {
        "class": "DistilBertForMaskedLM", "": "vocab_projector", "output": "vocab_projector",
        "dense": "vocab_transform", "norm": "vocab_layer_norm",
    },
}  # fmt: skip
WORDS = "embeddings.word_embeddings.weight"


def head_tensors(head: nn.Module, family: str) -> dict[str, Tensor]:
    """The tensors of a word head under their names in transformers."""
    tensors = {}
    for name, tensor in head.state_dict().items():
        module, _, kind = name.rpartition(".")
        tensors[f"{HEADS[family][module]}.{kind}"] = tensor
    return tensors


def load_head(head: nn.Module, source: EncoderSource) -> bool:
    """Fill the head from the encoder's file; False, and unchanged, when it has no tied head."""
    family = source.shape.family
    theirs = pretrained.read_weights(weights_file(source.folder), family)
    ours, shapes = head_tensors(head, family), {n: t.shape for n, t in theirs.items()}
    output = theirs.get(f"{HEADS[family]['output']}.weight", theirs[WORDS])
    is_there = all(shapes.get(name) == tensor.shape for name, tensor in ours.items())
    if not is_there or not torch.equal(output, theirs[WORDS]):
        return False
    for name, tensor in ours.items():
        tensor.copy_(theirs[name])
    return True


@torch.no_grad()
def begin_head(head: nn.Module, corpus: Corpus, seed: int) -> None:
    """New weights; the bias starts at the log frequency of each word in the training texts.

    So the first predictions already know how frequent words are. Add-one smoothing for words that
    never occur, and for special tokens.
    """
    is_word = ~corpus.vocabulary.is_special
    counts = 1 + is_word * np.bincount(np.concatenate(corpus.train), minlength=len(is_word))
    shares = counts / counts.sum()
    state = head.state_dict()
    state["dense.weight"].normal_(0, SPREAD, generator=torch.Generator().manual_seed(seed))
    state["dense.bias"].zero_()
    state["bias"].copy_(torch.from_numpy(np.log(shares)))


# ------------------------------------------------------------------ the network and its loss

TOKENS = 4096  # of one pack of held-out texts; bounds memory


def lay_out_words(shape: EncoderShape, reading: Reading) -> Layout:
    """A single route, which needs a task to be laid out; its head is replaced by the word head."""
    task = Task(name=TEXT, type="classification", text=(TEXT,), label="word", labels=("a", "b"))
    return lay_out(SharingPlan(name=TEXT), [task], shape, reading)


def build_network(layout: Layout, source: EncoderSource, dropout: float) -> Network:
    """The pretrained encoder with a new word head."""
    network = Network(layout, dropout=dropout)
    network.bank[layout.routes[TEXT].head] = WordHead(layout.encoder)
    pretrained.load_pretrained(network, source)
    return network


def word_head(network: Network) -> nn.Module:
    return network.bank[network.layout.routes[TEXT].head]


def begin_network(ready: Prepared, source: EncoderSource, corpus: Corpus) -> tuple[Network, bool]:
    """The encoder of a folder with its word head, or with a new one where it has none."""
    training = ready.recipe.training
    network = build_network(ready.layout, source, training.dropout)
    is_new = not load_head(word_head(network), source)
    if is_new:
        begin_head(word_head(network), corpus, training.seed)
    return network.to(ready.device), is_new


def masked_loss(network: Network, batch: Sequence[Masked], reduction: str = "mean") -> Tensor:
    """Cross entropy over all chosen tokens of the batch; the head computes no others."""
    device = next(network.parameters()).device
    pack = pack_segments(batch, network.layout, device)
    starts_S = pack.first_S.index_select(0, pack.task_segments[TEXT])  # in the order of the batch
    counts = torch.tensor([len(masked.places) for masked in batch], device=device)
    places_C = torch.from_numpy(np.concatenate([masked.places for masked in batch])).to(device)
    chosen_CD = encode(network.bank, pack).index_select(
        0, starts_S.repeat_interleave(counts) + places_C
    )
    targets = np.concatenate([masked.targets for masked in batch]).astype(np.int64)
    word_VD = network.bank[network.layout.routes[TEXT].embeddings].get_parameter("word.weight")
    logits_CV: Tensor = word_head(network)(chosen_CD, word_VD)
    return F.cross_entropy(logits_CV, torch.from_numpy(targets).to(device), reduction=reduction)


@torch.inference_mode()
def held_out_losses(network: Network, held_out: Mapping[str, Sequence[Masked]]) -> dict[str, float]:
    """Half -> the mean loss over all its chosen tokens (not a mean over batches)."""
    network.eval()
    losses = {}
    for half, sequences in held_out.items():
        batches = split_batches(sorted(sequences, key=token_count), token_count, TOKENS)
        total = sum(float(masked_loss(network, batch, "sum")) for batch in batches)
        losses[half] = total / sum(len(masked.places) for masked in sequences)
    return losses


def token_count(segment: Segment) -> int:
    return len(segment.ids)


# ------------------------------------------------------------------ the folder

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
    config["architectures"] = [HEADS[source.shape.family]["class"]]
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
    family = source.shape.family
    # query, key and value are views of one tensor
    ours = {name: tensor.cpu().clone() for name, tensor in pretrained.foreign_tensors(network)}
    ours |= {name: t.cpu() for name, t in head_tensors(word_head(network), family).items()}
    copies = [f"{HEADS[family]['output']}.{kind}" for kind in ("weight", "bias")]
    theirs = pretrained.open_weights(weights_file(source.folder)).items()
    plain = {pretrained.plain_name(name, family): tensor for name, tensor in theirs}
    tensors = {name: tensor for name, tensor in plain.items() if name not in copies} | ours
    return {f"{family}.{n}" if n.startswith(BASE) else n: tensor for n, tensor in tensors.items()}
