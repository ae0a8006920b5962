"""Tiny encoders, networks and batches that the tests share; everything is random but repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn

from mops.config.training import TaskEntry
from mops.data.batches import Batch, Segment
from mops.evaluate.cost import adapter_flops, layer_flops
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource
from mops.plans.catalog import read_plan
from mops.plans.layout import Route, lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading

ENTRIES = {
    "sentiment": TaskEntry(
        type="classification", text="sentence", label="sentiment", labels=(0, 1, 2, 3, 4)
    ),
    "paraphrase": TaskEntry(
        type="pair_classification", text=("one", "two"), label="same", labels=(0, 1)
    ),
    "similarity": TaskEntry(
        type="similarity", text=("one", "two"), label="similarity", range=(0.0, 5.0)
    ),
}
THREE_TASKS = tuple(entry.task(name) for name, entry in ENTRIES.items())
NAMES = tuple(ENTRIES)

# RoBERTa's places for the special tokens: padding is number 1 in every tiny family.
SPECIAL = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
WORDS = tuple(f"{first}{vowel}{last}" for first in "bdfg" for vowel in "aeiou" for last in "nt")
LETTERS = ("##s", "##ing", "a", "the", ",", ".", "?", "bu", "##lly", "##ton", "do", "re", "mi")
VOCABULARY = (*SPECIAL, *WORDS, *LETTERS)
DEPTH, WIDTH, HEADS, INNER, LONGEST = 4, 32, 4, 48, 40
LENGTHS = (LONGEST, 1, 7, 2, 33, 16, 17, 1, 3, 39)

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "electra", "modernbert")
ROBERTA = {"types": 1, "first_position": 2, "positions": LONGEST + 2, "epsilon": 1e-5}
EXTRAS: Mapping[str, dict[str, Any]] = {
    "bert": {},
    "roberta": ROBERTA,
    "distilbert": {"types": 0},
    "xlm-roberta": ROBERTA,
    "electra": {"embedding": 20},
    "modernbert": {  # layers 1 and 2 see four tokens to each side; more than 24 are windows
        "types": 0, "epsilon": 1e-5, "has_bias": False, "is_gated": True, "norms_first": True,
        "rotary": 160000.0, "local_rotary": 10000.0, "reach": 4, "global_every": 3,
    },
}  # fmt: skip


def tiny_shape(family: str = "bert", depth: int = DEPTH) -> EncoderShape:
    plain = {
        "family": family,
        "depth": depth,
        "width": WIDTH,
        "heads": HEADS,
        "inner": INNER,
        "words": len(VOCABULARY),
        "positions": LONGEST,
    }
    return EncoderShape(**plain | EXTRAS[family])


def tiny_tokenizer() -> Tokenizer:
    """Lower case, WordPiece, [CLS] a [SEP] b [SEP] with token types 0 and 1."""
    vocabulary = {word: n for n, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def tiny_config(family: str) -> Any:
    """transformers' configuration of the tiny shape."""
    import transformers

    shape = tiny_shape(family)
    sizes = {
        "vocab_size": shape.words,
        "max_position_embeddings": shape.positions,
        "pad_token_id": 1,
    }
    if family == "distilbert":
        sizes |= {"dim": WIDTH, "n_layers": DEPTH, "n_heads": HEADS, "hidden_dim": INNER}
        return transformers.DistilBertConfig(**sizes)
    sizes |= {
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
    }
    if family == "modernbert":
        marks = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
        return transformers.ModernBertConfig(**sizes, **marks, local_attention=2 * shape.reach)
    kinds = {
        "bert": transformers.BertConfig,
        "roberta": transformers.RobertaConfig,
        "xlm-roberta": transformers.XLMRobertaConfig,
        "electra": partial(transformers.ElectraConfig, embedding_size=shape.embedding),
    }
    return kinds[family](**sizes, type_vocab_size=shape.types, layer_norm_eps=shape.epsilon)


def shake(module: nn.Module, seed: int, size: float = 0.1) -> None:
    """Move every weight, also the biases and norms that begin at 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def write_encoder(folder: Path, family: str, model_class: str = "", **options: Any) -> Path:
    """config.json, model.safetensors and tokenizer.json, as transformers writes them."""
    import transformers

    with torch.random.fork_rng():  # the same whatever ran before
        torch.manual_seed(7)
        config = tiny_config(family)
        plain = transformers.MODEL_MAPPING[type(config)].__name__
        model = getattr(transformers, model_class or plain)(config, **options)
    shake(model, seed=7)
    model.save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def as_plan(plan: str | SharingPlan | dict[str, Any]) -> SharingPlan:
    return plan if isinstance(plan, SharingPlan) else read_plan(plan)


def build_network(
    plan: str | SharingPlan | dict[str, Any],
    folder: Path | None = None,
    *,
    shape: EncoderShape | None = None,
    reading: Reading | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    tasks: Sequence[Any] = THREE_TASKS,
) -> Network:
    """A network in eval mode; with pretrained weights where a folder is given."""
    source = EncoderSource(str(folder), folder) if folder else None
    shape = shape or (source.shape if source else tiny_shape())
    reading = reading or Reading(max_length=min(256, shape.longest))
    layout = lay_out(as_plan(plan), tasks, shape, reading)
    network = Network(layout, dropout=dropout, head_dropout=dropout, seed=seed)
    if source:
        load_pretrained(network, source)
    return network.eval()


@lru_cache(maxsize=256)
def words_of(length: int, seed: int) -> np.ndarray:
    """A sequence of token numbers that are no special tokens, between [CLS] and [SEP]."""
    ids = np.random.default_rng(seed).integers(len(SPECIAL), len(VOCABULARY), length)
    ids[0], ids[-1] = 0, (2 if length > 1 else 0)
    return ids.astype(np.int32)


def segment(length: int, seed: int, tasks: tuple[str, ...], *, types: int = 2) -> Segment:
    """A random sequence; its second half has token type 1 where the family knows types."""
    kinds = (np.arange(length) >= (length + 1) // 2).astype(np.int32) if types == 2 else None
    zeros = np.zeros(length, dtype=np.int32)
    return Segment(words_of(length, seed), zeros if kinds is None else kinds, tasks)


def mixed_segments(network: Network, lengths: Sequence[int] = (2, 9, 5, 14)) -> list[Segment]:
    """Rows of every task with these lengths; two sequences a row where texts are read apart."""
    layout = network.layout
    found = []
    for n, (name, task) in enumerate(layout.tasks.items()):
        texts = 1 + layout.reading.texts_apart(task.is_pair)
        for i, length in enumerate(lengths):
            for text in range(texts):
                seed = 100 * n + 10 * i + text
                found.append(segment(length + text, seed, (name,), types=layout.encoder.types))
    return found


TARGETS = {
    "sentiment": np.array([0.0, 3.0, 4.0, 1.0]),
    "paraphrase": np.array([0.0, 1.0, 1.0, 0.0]),
    "similarity": np.array([0.4, 5.0, 2.75, 3.2]),
}


def mixed_batch(network: Network) -> Batch:
    """Four rows of each task with targets."""
    return Batch(tuple(mixed_segments(network)), {n: TARGETS[n] for n in network.layout.tasks})


def outputs_of(network: Network, segments: Sequence[Segment]) -> dict[str, Tensor]:
    with torch.inference_mode():
        return network(pack_segments(segments, network.layout))


def hidden_of(network: Network, segments: Sequence[Segment], task: str) -> list[Tensor]:
    """The hidden states of each of a task's segments at the top of the trunk, in given order."""
    pack = pack_segments(segments, network.layout)
    with torch.inference_mode():
        hidden = encode(network.bank, pack)
    places = pack.task_segments[task].tolist()
    first, length = pack.first_S.tolist(), pack.length_S.tolist()
    return [hidden[first[place] : first[place] + length[place]] for place in places]


def check_batch_invariance(network: Network) -> None:
    """A segment has the same outputs alone and among any others, bit by bit."""
    types, lengths = network.layout.encoder.types, (*LENGTHS, *range(1, 30))
    crowd = [segment(n, i, (NAMES[i % 3],), types=types) for i, n in enumerate(lengths)]
    together = outputs_of(network, crowd)
    place = dict.fromkeys(NAMES, 0)
    for each in crowd[:12]:
        (task,) = each.tasks
        alone = outputs_of(network, [each])[task][0]
        assert torch.equal(alone, together[task][place[task]])
        place[task] += 1


def check_fan_out(network: Network) -> None:
    """A segment of several tasks has the outputs that each task alone gives, bit by bit."""
    tasks_of = [NAMES, NAMES[:1], NAMES[1:], NAMES, (NAMES[2], NAMES[0])]
    lengths, types = (9, 40, 1, 3, 9), network.layout.encoder.types
    fanned = [segment(n, i, tasks_of[i], types=types) for i, n in enumerate(lengths)]
    single = [
        segment(len(s.ids), i, (t,), types=types) for i, s in enumerate(fanned) for t in s.tasks
    ]
    ours, expected = outputs_of(network, fanned), outputs_of(network, single)
    for task in NAMES:
        assert torch.equal(ours[task], expected[task])
        alone = [outputs_of(network, [each])[task] for each in single if each.tasks == (task,)]
        assert torch.equal(ours[task], torch.cat(alone))


def forward_flops(route: Route, encoder: EncoderShape, length: int) -> int:
    """Of a sequence in the whole encoder on one route."""
    adapters = list(chain(*route.adapters))
    reaches = (encoder.scope(layer).reach for layer in range(encoder.depth))
    layers = sum(layer_flops(encoder, length, reach) for reach in reaches)
    return layers + adapter_flops(adapters, length)
