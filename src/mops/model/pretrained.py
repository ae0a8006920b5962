"""Weights: safetensors files, strict checks, and pretrained encoders under foreign tensor names."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mops.errors import EncoderError
from mops.model.network import Network
from mops.model.sources import FAMILIES, Source, weights_file
from mops.plans.shapes import EncoderShape


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Write tensors and a few facts about them; every failure is an OSError."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(plain, path, metadata={"format": "pt", **(facts or {})})
        path.chmod(mode)  # safetensors lets only the owner read it, so a container could not
    except SafetensorError as cause:  # for example a full disk
        raise OSError(None, str(cause)) from cause


def read_tensors(
    path: Path, names: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file and the facts beside them; every failure is an OSError."""
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys() if names is None else names
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as cause:
        raise OSError(None, f"{cause}; the file is damaged or incomplete") from cause


def check_tensors(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Refuse a file whose tensors do not have exactly the expected names and shapes."""
    found, wanted = ({n: list(t.shape) for n, t in each.items()} for each in (tensors, expected))
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if names:
        shapes = [f"{n} {found.get(n, 'missing')}, not {wanted.get(n, 'missing')}" for n in names]
        raise EncoderError(
            f"{path}: {len(names)} tensor(s) not as expected: {'; '.join(shapes[:3])}; "
            "it does not belong to the other files of its folder"
        )


TRUNK = ("embeddings", "encoder.layer.", "transformer.layer.", "layers.", "final_norm.")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def load_pretrained(network: Network, source: Source) -> None:
    """Copy the pretrained weights into every trunk owner of the bank, strictly."""
    source.digest  # noqa: B018  (refuses damaged weights of the bundled encoder)
    path = weights_file(source.folder)
    weights = read_weights(path, network.layout.encoder.family)
    places = list(foreign_tensors(network))
    expected = dict(places)
    if any(name.startswith("pooler.") and name not in weights for name in expected):
        raise EncoderError(f"{path} has no pooler; set training.pool to mean, cls or sum")
    used = {n: tensor for n, tensor in weights.items() if n in expected or n.startswith(TRUNK)}
    check_tensors(path, used, expected)
    for name, tensor in reversed(places):  # an owner of several layers keeps the lowest one's
        tensor.copy_(weights[name])


def foreign_tensors(network: Network) -> Iterator[tuple[str, Tensor]]:
    """(foreign name, view of our tensor) for every pretrained weight, from the bottom up."""
    shape = network.layout.encoder
    places = (place for route in network.layout.routes.values() for place in route.trunk)
    for owner, part, layer in dict.fromkeys(places):
        yield from named_tensors(network.bank[owner], part, layer, shape, shape.family)


def named_tensors(
    module: nn.Module, part: str, layer: int, shape: EncoderShape, family: str
) -> Iterator[tuple[str, Tensor]]:
    """(foreign name, view of our tensor) for the weights of one part in one layer."""
    names_of, norms = FAMILIES[family]["weights"], shape.norm_names([layer])
    for ours, tensor in module.state_dict().items():
        inner, _, kind = ours.rpartition(".")
        if part == "norms" and inner not in norms:  # only in other layers of the owner
            continue
        names = names_of[f"{part}.{inner}"]
        for name, view in zip(names, tensor.chunk(len(names)), strict=True):
            yield f"{name.replace('.N.', f'.{layer}.')}.{kind}", view


def read_weights(path: Path, family: str) -> dict[str, Tensor]:
    """All tensors of an encoder's file as float32, without the prefix of a model with a head."""
    weights = {plain_name(name, family): tensor for name, tensor in open_weights(path).items()}
    return {
        name: tensor.to(torch.float32) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
        if name not in BUFFERS
    }


def open_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of an encoder's or a bundle's file."""
    try:
        return read_tensors(path)[0]
    except OSError as cause:
        raise EncoderError(f"{path} cannot be read: {cause.strerror}; fetch it again") from cause


def plain_name(name: str, family: str) -> str:
    """A foreign name without the prefix, with the present names of LayerNorm."""
    plain = name.removeprefix(f"{prefix_of(family)}.")
    return plain.replace(".gamma", ".weight").replace(".beta", ".bias")


def prefix_of(family: str) -> str:
    """What stands in front of an encoder's names in the files of a model with a head."""
    return str(FAMILIES[family].get("prefix", family))
