"""The pretrained encoder as a folder that mops and transformers read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from mops.data.tokens import load_tokenizer
from mops.encoder.network import Network
from mops.encoder.pretrained import OLD_NAMES, TRUNK, foreign_names, trunk_places
from mops.encoder.sources import CONFIG, WEIGHTS, EncoderSource, weights_file
from mops.encoder.tensors import read_tensors, write_tensors
from mops.files import beside, write_text
from mops.mlm.head import HEADS, TIED
from mops.mlm.model import head_owner

ARCHITECTURES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
}
BASE = (*TRUNK, "pooler.")  # what transformers names with the family in front
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
            with beside(folder / name) as draft:
                shutil.copyfile(source.folder / name, draft)
    if not (folder / TOKENIZER).is_file():
        with beside(folder / TOKENIZER) as draft:
            load_tokenizer(source.folder).save(str(draft))
    with beside(folder / WEIGHTS) as draft:
        write_tensors(draft, foreign_weights(network, source))


def config_text(source: EncoderSource) -> str:
    """The source's configuration; what changed is the head, its tie and the type of numbers."""
    config = json.loads((source.folder / CONFIG).read_text("utf-8"))
    config["architectures"] = [ARCHITECTURES[source.shape.family]]
    config |= {key: "float32" for key in ("dtype", "torch_dtype") if key in config}
    config |= {key: True for key in ("tie_word_embeddings",) if key in config}
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def foreign_weights(network: Network, source: EncoderSource) -> dict[str, Tensor]:
    """Ours under their names, and every tensor of the source that mops does not use."""
    family = source.shape.family
    ours = dict(trained_weights(network, family))
    theirs, _ = read_tensors(weights_file(source.folder))
    kept = {}
    for name, tensor in theirs.items():
        plain = name.removeprefix(f"{family}.")
        for old, new in OLD_NAMES.items():
            plain = plain.replace(old, new)
        if plain not in ours and plain not in TIED[family]:
            kept[plain if plain.startswith(BASE) else name] = tensor
    return {
        f"{family}.{name}" if name.startswith(BASE) else name: tensor
        for name, tensor in (kept | ours).items()
    }


def trained_weights(network: Network, family: str) -> Iterator[tuple[str, Tensor]]:
    """(their name without the family, tensor); query, key and value are parted again."""
    for owner, part, layer in trunk_places(network):
        state = network.bank[owner].state_dict()
        for ours, names in foreign_names(network, part, layer).items():
            for name, piece in zip(names, state[ours].chunk(len(names)), strict=True):
                yield name, piece.cpu().clone()
    head = network.bank[head_owner(network)].state_dict()
    for ours, name in HEADS[family].items():
        yield name, head[ours].cpu()
