"""Weights: safetensors files, strict checks, and pretrained encoders under foreign tensor names."""

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mops.errors import EncoderError
from mops.model.network import Network, shape_network
from mops.model.sources import FAMILIES, EncoderSource, Source, weights_file
from mops.plans.layout import lay_out
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task

CHECK = "crc32"  # the key of the checksum among the facts


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Write tensors and a few facts about them; every failure is an OSError.

    With facts it is a state, for which no manifest has a digest: it gets a checksum.
    """
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    facts = {} if facts is None else {**facts, CHECK: checksum(plain, facts)}
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(plain, path, metadata={"format": "pt", **facts})
        path.chmod(mode)  # safetensors lets only the owner read it, so a container could not
    except SafetensorError as cause:  # for example a full disk
        raise OSError(None, str(cause)) from cause


def read_tensors(
    path: Path, names: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file and the facts beside them; every failure is an OSError."""
    with opened_tensors(path) as file:
        chosen = file.keys() if names is None else names
        tensors = {name: file.get_tensor(name) for name in chosen}
        facts = file.metadata() or {}
    if names is None and CHECK in facts and checksum(tensors, facts) != facts[CHECK]:
        raise OSError(None, "its checksum is wrong; the file is damaged")
    return tensors, facts


def checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """The checksum of names, types, shapes and values, and of the facts."""
    told = {name: fact for name, fact in facts.items() if name not in (CHECK, "format")}
    value = zlib.crc32(json.dumps(told, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        about = f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        data = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        value = zlib.crc32(data, zlib.crc32(about.encode(), value))
    return f"{value:08x}"


def read_shapes(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same without values: only the header is read."""
    with opened_tensors(path) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        empty = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        return empty, file.metadata() or {}


@contextmanager
def opened_tensors(path: Path) -> Iterator[Any]:
    try:
        if path.exists() and not path.is_file():  # a FIFO would never open
            raise OSError(None, "it is not a regular file")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, UnicodeError) as cause:
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


Read = Callable[[Path], tuple[dict[str, Tensor], dict[str, str]]]
TRUNK = ("embeddings", "encoder.layer.", "transformer.layer.", "layers.", "final_norm.")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def load_pretrained(network: Network, source: Source) -> None:
    """Copy the pretrained weights into every trunk owner of the bank, strictly."""
    source.digest  # noqa: B018  (refuses damaged weights of the bundled encoder)
    path = weights_file(source.folder)
    weights = read_weights(path, network.layout.encoder.family)
    for name, tensor in reversed(fitting_tensors(path, network, weights)):
        tensor.copy_(weights[name])  # an owner of several layers keeps the lowest one's


@lru_cache(maxsize=8)
def check_encoder(source: EncoderSource) -> None:
    """Refuse sizes in config.json that are not those of the weights, before they take memory."""
    shape, path = source.shape, weights_file(source.folder)
    task = Task(name="any", type="regression", text=("text",), label="label")
    network = shape_network(lay_out(SharingPlan(name="any"), [task], shape, Reading()))
    found = open_weights(path, read_shapes).items()
    fitting_tensors(path, network, {plain_name(name, shape.family): own for name, own in found})


def fitting_tensors(
    path: Path, network: Network, weights: Mapping[str, Tensor]
) -> list[tuple[str, Tensor]]:
    """The network's pretrained tensors by their foreign names, which the file has in this shape."""
    places = list(foreign_tensors(network))
    expected = dict(places)
    if any(name.startswith("pooler.") and name not in weights for name in expected):
        raise EncoderError(f"{path} has no pooler; set training.pool to mean, cls or sum")
    trunk = (n for n in weights if n in expected or n.startswith(TRUNK))
    used = {name: weights[name] for name in trunk if name not in BUFFERS}
    check_tensors(path, used, expected)
    return places


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
    }


def open_weights(path: Path, read: Read = read_tensors) -> dict[str, Tensor]:
    """The tensors of an encoder's or a bundle's file."""
    try:
        return read(path)[0]
    except OSError as cause:
        problem = cause.strerror or cause
        raise EncoderError(f"{path} cannot be read: {problem}; fetch it again") from cause


def plain_name(name: str, family: str) -> str:
    """A foreign name without the prefix, with the present names of LayerNorm."""
    plain = name.removeprefix(f"{prefix_of(family)}.")
    return plain.replace(".gamma", ".weight").replace(".beta", ".bias")


def prefix_of(family: str) -> str:
    """What stands in front of an encoder's names in the files of a model with a head."""
    return str(FAMILIES[family].get("prefix", family))
