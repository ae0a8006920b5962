"""Masked words: the tasks' own texts, masked anew in every step, and an encoder that guesses them.

Held-out texts are masked once. Shapes: S segments of the pack, C chosen tokens, D width, V words.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from mops.data.batches import Segment, split_batches, tokenise
from mops.data.dataset import Dataset
from mops.data.schedule import generator
from mops.data.splits import normalised
from mops.errors import DataError, EncoderError
from mops.model import pretrained
from mops.model.blocks import ACTIVATIONS, Dense, build_norm
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.sources import FAMILIES, Source, read_config, weights_file
from mops.plans.layout import Layout, lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task
from mops.training.feature_cache import token_count

Ints = NDArray[np.int32]
HELD_OUT_FRACTION = 0.05
FEWEST, MOST = 50, 1000  # held-out texts; never more than one in five
HELD_OUT_SEED = 0  # the recipe's seed changes neither what is held out nor its masks
CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # Devlin et al. 2019, section 3.1
TEXT = "texts"  # the one task of a pretraining's segments; row orders depend on it
MASKS = ("[MASK]", "<mask>")
SPECIAL = {*MASKS, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>"}


def gather_texts(dataset: Dataset) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Part -> its distinct texts (train, selection, report), and how many there are of each kind.

    Texts that differ only in case, punctuation and spaces count as one. Half of the held-out texts
    pick the best state (`selection`), the others are reported.
    """
    splits = dataset.splits.values()
    training = [row.texts for task in splits for row in task["train"].good]
    spellings: dict[str, str] = {}
    for text in chain.from_iterable(training):
        spellings.setdefault(normalised(text), text)
    evaluated = {
        normalised(text)
        for task in splits
        for split in task.keys() - {"train"}
        for row in task[split].rows  # also those that cannot be scored
        for text in row.texts
    }
    usable = set(spellings) - evaluated
    count = min(MOST, max(FEWEST, round(HELD_OUT_FRACTION * len(usable))), len(usable) // 5)
    # the lowest hashes, whatever the seed and the order of files
    held_out = sorted(usable, key=lambda key: hashlib.sha256(key.encode()).digest())[:count]
    # also without texts in one row with them: a pair is often one sentence in two wordings
    rows, chosen = ({normalised(text) for text in texts} for texts in training), set(held_out)
    train = sorted(usable.difference(*(keys for keys in rows if keys & chosen)))
    if count < 2 or not train:
        raise DataError(
            f"only {len(usable)} distinct training texts are in no validation or test file; at "
            "least 10 that are not all paired are needed, so that some can be held out; name more "
            "data"
        )
    keys = {"train": train, "selection": held_out[::2], "report": held_out[1::2]}
    counts = {
        "distinct": len(spellings),
        "left_out_as_in_validation_or_test": len(spellings) - len(usable),
        "left_out_as_partner_of_held_out": len(usable) - len(train) - len(held_out),
        "held_out": len(held_out),
        "train": len(train),
    }
    return {part: [spellings[key] for key in own] for part, own in keys.items()}, counts


@dataclass(frozen=True)
class Vocabulary:
    mask: int
    is_special: NDArray[np.bool_]  # by token number
    words: Ints  # candidates for random tokens


def read_vocabulary(tokenizer: Tokenizer, size: int) -> Vocabulary:
    """`size` is the number of the encoder's word vectors."""
    known: Mapping[str, int] = tokenizer.get_vocab()
    mask = next((known[word] for word in MASKS if word in known), None)
    if mask is None:
        raise EncoderError(
            f"the tokenizer of this encoder has no mask token ({' or '.join(MASKS)}); words can "
            "only be masked with one; name another encoder"
        )
    added = tokenizer.get_added_tokens_decoder().items()
    special = {number for word, number in known.items() if word in SPECIAL}
    special |= {number for number, token in added if token.special}
    special |= set(tokenizer.encode("").ids)  # surround every text
    is_special = np.zeros(size, dtype=np.bool_)
    is_special[sorted(special)] = True
    words = sorted(number for number in known.values() if number not in special)
    return Vocabulary(mask, is_special, np.array(words, dtype=np.int32))


@dataclass(frozen=True)
class Masked(Segment):
    """A sequence as the encoder sees it, and the words to guess."""

    places: NDArray[np.int64]  # of the chosen tokens
    targets: Ints  # the words that stood there


def mask_sequence(ids: Ints, vocabulary: Vocabulary, draw: np.random.Generator) -> Masked:
    """Choose each word with probability 15 %, and at least one word of a sequence.

    80 % of the chosen words become the mask, 10 % a random word, 10 % stay (Devlin et al. 2019). A
    short sequence would often have none, so the word with the lowest draw is always chosen.
    """
    draws = draw.random(len(ids))
    draws[vocabulary.is_special[ids]] = np.inf
    is_chosen = draws < CHOSEN
    is_chosen[draws.argmin()] = True
    places = np.flatnonzero(is_chosen)
    fate = draw.random(len(places))
    visible = ids.copy()
    visible[places[fate < MASKED]] = vocabulary.mask
    changed = places[(fate >= MASKED) & (fate < MASKED + RANDOM)]
    visible[changed] = draw.choice(vocabulary.words, len(changed))
    return Masked(visible, np.zeros_like(ids), (TEXT,), places, ids[places])


@dataclass(frozen=True)
class Corpus:
    """Token sequences of single texts."""

    train: Sequence[Ints]
    held_out: Mapping[str, Sequence[Masked]]  # by half
    vocabulary: Vocabulary
    counts: Mapping[str, int]


def build_corpus(dataset: Dataset, tokenizer: Tokenizer, words: int, reading: Reading) -> Corpus:
    """Tokenise the texts of a dataset; those without a single known word are left out."""
    texts, counts = gather_texts(dataset)
    vocabulary = read_vocabulary(tokenizer, words)
    sequences: dict[str, dict[str, Ints]] = {}  # part -> text -> its tokens
    for part, own in texts.items():
        table = tokenise(tokenizer, [(text,) for text in own], reading)
        rows = ((text, next(table.row(n))[0]) for n, text in enumerate(own))
        sequences[part] = {t: ids for t, ids in rows if not vocabulary.is_special[ids].all()}
    sizes = {part: len(kept) for part, kept in sequences.items()}
    if not all(sizes.values()):
        raise DataError(
            f"no {min(sizes, key=lambda part: sizes[part])} text has a word that the encoder's "
            "tokenizer knows; the encoder and the texts are of different languages or scripts"
        )
    train = list(sequences.pop("train").values())
    held_out = {
        half: [
            mask_sequence(ids, vocabulary, generator(HELD_OUT_SEED, "held-out", text))
            for text, ids in kept.items()
        ]
        for half, kept in sequences.items()
    }
    counts |= {
        "without_known_words": sum(map(len, texts.values())) - sum(sizes.values()),
        "train_tokens": sum(map(len, train)),
        **sizes,
        "report_words": sum(len(masked.places) for masked in held_out["report"]),
    }
    return Corpus(train, held_out, vocabulary, counts)


SPREAD = 0.02  # standard deviation of new weights, as in BERT
HEADS = {family: entry["word_head"] for family, entry in FAMILIES.items()}


class WordHead(nn.Module):
    """E LayerNorm(GELU(W h)) + b, with E the encoder's word vectors (Devlin et al. 2019)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = Dense(shape.width, shape.embedded, shape.has_bias)
        self.activation = ACTIVATIONS[HEADS[shape.family].get("activation", shape.activation)]
        self.norm = build_norm(shape, shape.embedded)
        self.bias = nn.Parameter(torch.zeros(shape.words))

    def forward(self, hidden_CD: Tensor, word_VD: Tensor) -> Tensor:
        normed_CD = self.norm(self.activation(self.dense(hidden_CD)))
        return F.linear(normed_CD, word_VD, self.bias)


def head_tensors(head: nn.Module, family: str) -> dict[str, Tensor]:
    """The tensors of a word head under their names in transformers."""
    tensors = {}
    for name, tensor in head.state_dict().items():
        module, _, kind = name.rpartition(".")
        tensors[f"{HEADS[family][module or kind]}.{kind}"] = tensor
    return tensors


def load_head(head: nn.Module, source: Source) -> bool:
    """Fill the head from the encoder's file; False, and unchanged, when it has no such head."""
    family = source.shape.family
    config, known = read_config(source.folder), HEADS[family].get("only", {})
    if any(config.get(key, value) != value for key, value in known.items()):
        return False
    theirs = pretrained.read_weights(weights_file(source.folder), family)
    ours, shapes = head_tensors(head, family), {n: t.shape for n, t in theirs.items()}
    words = theirs[f"{FAMILIES[family]['weights']['embeddings.word'][0]}.weight"]
    output = theirs.get(f"{HEADS[family]['output']}.weight", words)
    is_there = all(shapes.get(name) == tensor.shape for name, tensor in ours.items())
    if not is_there or not torch.equal(output, words):
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
    state.get("dense.bias", torch.empty(0)).zero_()
    state["bias"].copy_(torch.from_numpy(np.log(shares)))


TOKENS = 4096  # of one pack of held-out texts; bounds memory


def lay_out_words(shape: EncoderShape, reading: Reading) -> Layout:
    """A single route, which needs a task to be laid out; its head is replaced by the word head."""
    task = Task(name=TEXT, type="classification", text=(TEXT,), label="word", labels=("a", "b"))
    return lay_out(SharingPlan(name=TEXT), [task], shape, reading)


def build_network(layout: Layout, source: Source, dropout: float) -> Network:
    """The pretrained encoder with a new word head."""
    network = Network(layout, dropout=dropout)
    network.bank[layout.routes[TEXT].head] = WordHead(layout.encoder)
    pretrained.load_pretrained(network, source)
    return network


def word_head(network: Network) -> nn.Module:
    return network.bank[network.layout.routes[TEXT].head]


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
