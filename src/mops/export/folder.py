"""What every exported folder has: one task of a bundle, its tokenizer, its JSON files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors
from torch import Tensor, nn

from mops.export.merge import trunk_tensors
from mops.files import write_text
from mops.plans.layout import Route
from mops.plans.shapes import EncoderShape, HeadShape, Reading
from mops.predict.bundle import Bundle
from mops.tasks import Task

DenseRow = tuple[nn.Linear, str]  # a layer and its activation
SPECIAL = {  # the names that BERT and RoBERTa give their special tokens
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class TaskModel:
    """One task of a bundle."""

    bundle: Bundle
    name: str

    @property
    def task(self) -> Task:
        return self.bundle.layout.tasks[self.name]

    @property
    def route(self) -> Route:
        return self.bundle.layout.routes[self.name]

    @property
    def encoder(self) -> EncoderShape:
        return self.bundle.layout.encoder

    @property
    def reading(self) -> Reading:
        return self.bundle.layout.reading.of(self.name)

    @property
    def head(self) -> HeadShape:
        return self.reading.head(self.name)

    @property
    def texts_apart(self) -> bool:
        return self.reading.texts_apart(self.task.is_pair)

    @property
    def head_module(self) -> nn.Module:
        return self.module(self.route.head)

    def module(self, owner: str) -> nn.Module:
        return self.bundle.network.bank[owner]

    @property
    def late(self) -> list[DenseRow]:
        """The late layers, from the bottom to the top."""
        rows = zip(self.route.late, self.bundle.layout.plan.late, strict=True)
        return [
            (dense, str(row.activation)) for o, row in rows for dense in linears(self.module(o))
        ]

    @property
    def norm(self) -> nn.Module:
        """The norm above the late layers, of the plan or of the head; Identity without one."""
        rows = self.bundle.layout.plan.late[-1:]
        own = self.head_module.get_submodule("norm")
        return self.module(self.route.late[-1]) if any(row.norm for row in rows) else own

    def trunk(self, prefix: str = "") -> dict[str, Tensor]:
        """The weights of the encoder under the names of a BertModel."""
        tensors = trunk_tensors(self.bundle.network, self.name)
        return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def linears(module: nn.Module) -> Iterator[nn.Linear]:
    return (part for part in module.modules() if isinstance(part, nn.Linear))


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_tokenizer(model: TaskModel, folder: Path, *, joins_texts: bool) -> None:
    """The bundle's tokenizer for transformers, with the length at which it cuts.

    `joins_texts`: a pair is [CLS] a [SEP] [CLS] b [SEP], up to twice the length; the model cuts
    each text.
    """
    tokenizer = Tokenizer.from_str(model.bundle.tokenizer.to_str())
    tokenizer.no_truncation()
    if joins_texts:
        tokenizer.post_processor = joining_template(tokenizer)
    names = {
        key: next((name for name in known if tokenizer.token_to_id(name) is not None), None)
        for key, known in SPECIAL.items()
    }
    has_types = joins_texts or model.encoder.types > 1
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.reading.max_length * (2 if joins_texts else 1),
        "model_input_names": [
            "input_ids", *(["token_type_ids"] if has_types else []), "attention_mask",
        ],
        **{key: name for key, name in names.items() if name},
    }  # fmt: skip
    write_text(folder / "tokenizer.json", tokenizer.to_str())
    write_json(folder / "tokenizer_config.json", config)


def joining_template(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """Both texts of a pair as if alone, one after the other, with token types 0 and 1."""
    probe = tokenizer.encode("a")
    marks = list(zip(probe.tokens, probe.special_tokens_mask, strict=True))
    before = [token for token, _ in takewhile(lambda mark: mark[1], marks)]
    after = [token for token, _ in takewhile(lambda mark: mark[1], reversed(marks))][::-1]

    def sequence(place: str, kind: int) -> list[str]:
        return [f"{piece}:{kind}" for piece in (*before, place, *after)]

    return processors.TemplateProcessing(
        single=sequence("$A", 0),
        pair=[*sequence("$A", 0), *sequence("$B", 1)],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*before, *after}],
    )
