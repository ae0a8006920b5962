"""Tensors to and from safetensors files; whatever goes wrong there is an OSError.

Pretrained weights into the bank: the names that other programs give to the same tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mops.errors import EncoderError
from mops.model.encoder import trunk_owners
from mops.model.network import Network
from mops.model.sources import EncoderSource, weights_file


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Write tensors and a few words about them."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt", **(facts or {})})
    except SafetensorError as cause:  # a full disk comes as this
        raise OSError(None, str(cause)) from cause


def read_facts(path: Path) -> dict[str, str]:
    """The words beside the tensors of a file, alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError as cause:
        raise OSError(None, f"{cause}; the file is damaged or incomplete") from cause


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file, and the words beside them."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as cause:
        raise OSError(None, f"{cause}; the file is damaged or incomplete") from cause


# part -> our name -> their names; {n} is the layer; several are laid one below the other
Names = dict[str, dict[str, tuple[str, ...]]]
BERT: Names = {
    "embeddings": {
        "word": ("embeddings.word_embeddings",),
        "position": ("embeddings.position_embeddings",),
        "token_type": ("embeddings.token_type_embeddings",),
        "norm": ("embeddings.LayerNorm",),
    },
    "attention": {
        "query_key_value": tuple(
            f"encoder.layer.{{n}}.attention.self.{which}" for which in ("query", "key", "value")
        ),
        "output": ("encoder.layer.{n}.attention.output.dense",),
    },
    "feedforward": {
        "inner": ("encoder.layer.{n}.intermediate.dense",),
        "output": ("encoder.layer.{n}.output.dense",),
    },
    "norms": {
        "attention": ("encoder.layer.{n}.attention.output.LayerNorm",),
        "feedforward": ("encoder.layer.{n}.output.LayerNorm",),
    },
    "pooler": {"dense": ("pooler.dense",)},
}
DISTILBERT: Names = {
    "embeddings": BERT["embeddings"],
    "attention": {
        "query_key_value": tuple(
            f"transformer.layer.{{n}}.attention.{which}_lin" for which in ("q", "k", "v")
        ),
        "output": ("transformer.layer.{n}.attention.out_lin",),
    },
    "feedforward": {
        "inner": ("transformer.layer.{n}.ffn.lin1",),
        "output": ("transformer.layer.{n}.ffn.lin2",),
    },
    "norms": {
        "attention": ("transformer.layer.{n}.sa_layer_norm",),
        "feedforward": ("transformer.layer.{n}.output_layer_norm",),
    },
    "pooler": {"dense": ("pooler.dense",)},
}
FOREIGN = {"bert": BERT, "roberta": BERT, "distilbert": DISTILBERT}
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # of normalisations, in the first checkpoints
TRUNK = ("embeddings.", "encoder.layer.", "transformer.layer.")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def load_pretrained(network: Network, source: EncoderSource) -> None:
    """Fill every trunk owner of the bank with a copy of the pretrained weights, strictly."""
    source.digest  # noqa: B018  (refuses damaged weights of the bundled encoder)
    path = weights_file(source.folder)
    theirs = read_weights(path, network.layout.encoder.family)
    used: set[str] = set()
    filled: set[str] = set()
    for owner, part, layer in trunk_places(network):
        names = foreign_names(network, part, layer)
        used |= {name for parts in names.values() for name in parts}
        if owner not in filled:
            fill(network.bank[owner], names, theirs, path)
            filled.add(owner)
    left = [name for name in theirs if name.startswith(TRUNK) and name not in used]
    if left:
        raise EncoderError(
            f"{path} has {len(left)} tensors that config.json does not speak of, such as "
            f"{left[0]!r}; the two files do not belong together"
        )


def trunk_places(network: Network) -> Iterator[tuple[str, str, int]]:
    """(owner, part, layer) for each place of each route."""
    for route in network.layout.routes.values():
        layers = [n for n, layer in enumerate(route.layers) for _ in layer]
        for (owner, part), n in zip(
            trunk_owners(route), [0, *layers, *(0 for _ in route.pooler)], strict=True
        ):
            yield owner, part, n


def foreign_names(network: Network, part: str, layer: int) -> dict[str, tuple[str, ...]]:
    """Our tensor's name within its owner -> the names of the tensors it is made of."""
    shape = network.layout.encoder
    found = {}
    for ours, theirs in FOREIGN[shape.family][part].items():
        if ours == "token_type" and not shape.types:
            continue
        is_table = part == "embeddings" and ours != "norm"
        for kind in ("weight",) if is_table else ("weight", "bias"):
            found[f"{ours}.{kind}"] = tuple(f"{name.format(n=layer)}.{kind}" for name in theirs)
    return found


def read_weights(path: Path, family: str) -> dict[str, Tensor]:
    """All tensors of a file as float32, without the prefix of their family."""
    try:
        tensors, _ = read_tensors(path)
    except OSError as cause:
        raise EncoderError(f"{path} cannot be read: {cause.strerror}; fetch it again") from cause
    found = {}
    for name, tensor in tensors.items():
        plain = name.removeprefix(f"{family}.")
        for old, new in OLD_NAMES.items():
            plain = plain.replace(old, new)
        if plain not in BUFFERS:
            found[plain] = tensor.to(torch.float32) if tensor.is_floating_point() else tensor
    return found


def fill(
    module: nn.Module,
    names: Mapping[str, tuple[str, ...]],
    theirs: Mapping[str, Tensor],
    path: Path,
) -> None:
    missing = [name for parts in names.values() for name in parts if name not in theirs]
    if missing:
        raise EncoderError(f"{path} lacks {', '.join(missing[:3])}.{advice(missing[0])}")
    state = module.state_dict()
    for ours, parts in names.items():
        tensor = torch.cat([theirs[name] for name in parts])
        if tensor.shape != state[ours].shape:
            raise EncoderError(
                f"{path}: {' + '.join(parts)} has the shape {list(tensor.shape)}, config.json "
                f"asks for {list(state[ours].shape)}; the two files do not belong together"
            )
        state[ours].copy_(tensor)


def advice(name: str) -> str:
    if name.startswith("pooler."):
        return " This encoder has no pooler: set training.pool to mean, cls or sum"
    return " It is not a complete encoder of the family that config.json names"
