"""A cosine head as a SentenceTransformer: encoder, pooling, and the layers below the cosine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mops.export.folder import TaskModel, linears, write_json, write_tokenizer
from mops.export.merge import trunk_config
from mops.model.pretrained import write_tensors
from mops.predict.card import Usage

KEYS = ("weight", "bias")
POOLS = {"mean": "mean_tokens", "cls": "cls_token", "pooler": "cls_token"}
ACTIVATIONS = {
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "tanh": "torch.nn.modules.activation.Tanh",
    "identity": "torch.nn.modules.linear.Identity",
}
LARGE = 2.0**12  # LayerNorm's epsilon is 1e-5 there, 1e-12 here; x LARGE divides it by LARGE^2
FRACTIONS = {"half": "(cosine + 1) / 2", "relu": "max(cosine, 0)"}


@dataclass(frozen=True)
class Module:
    """A module of sentence-transformers with its config and weights."""

    kind: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def write_embedder(model: TaskModel, folder: Path) -> Usage:
    """Write the files that `SentenceTransformer(folder)` reads."""
    trunk = model.trunk()
    pooler = [trunk.pop(f"pooler.dense.{key}") for _ in model.route.pooler for key in KEYS]
    write_tensors(folder / "model.safetensors", trunk)
    config = {**trunk_config(model.encoder), "architectures": ["BertModel"]}
    write_json(folder / "config.json", config)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": model.reading.max_length, "model_args": {"add_pooling_layer": False}},
    )
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for n, module in enumerate(modules_of(model, pooler), start=1):
        place = f"{n}_{module.kind}"
        kind = f"sentence_transformers.models.{module.kind}"
        rows.append({"idx": n, "name": str(n), "path": place, "type": kind})
        (folder / place).mkdir()
        write_json(folder / place / "config.json", module.config)
        if module.tensors:
            write_tensors(folder / place / "model.safetensors", module.tensors)
    write_json(folder / "modules.json", rows)
    write_tokenizer(model, folder, joins_texts=False)
    return embedder_usage(model)


def modules_of(model: TaskModel, pooler: list[Tensor]) -> Iterator[Module]:
    """From the tokens' states to the vector whose cosine is taken."""
    width, top = model.encoder.width, model.bundle.layout.late_widths[-1]
    modes = {f"pooling_mode_{key}": key == POOLS[model.reading.pool] for key in POOLS.values()}
    yield Module("Pooling", {"word_embedding_dimension": width, **modes})
    if pooler:
        yield dense(pooler[0], pooler[1], "tanh")
    for layer, activation in model.late:
        yield dense(layer.weight, layer.bias, activation)
    norm = model.norm
    if isinstance(norm, nn.LayerNorm):
        yield dense(LARGE * torch.eye(top), torch.zeros(top), "identity")
        tensors = {f"norm.{name}": tensor for name, tensor in norm.state_dict().items()}
        yield Module("LayerNorm", {"dimension": top}, tensors)
    for layer in linears(model.head_module):
        yield dense(layer.weight, layer.bias, "identity")


def dense(weight: Tensor, bias: Tensor, activation: str) -> Module:
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": ACTIVATIONS[activation],
    }
    return Module("Dense", config, {"linear.weight": weight, "linear.bias": bias})


def embedder_usage(model: TaskModel) -> Usage:
    """How the cosine becomes the task's value."""
    assert model.task.range is not None
    low, high = model.task.range
    line = model.head_module.state_dict().get("line")
    learned = "" if line is None else f"{line[0]:.9g} * cosine + {line[1]:.9g}"
    fraction = learned or FRACTIONS[model.head.scale]
    text = f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
first, second = model.encode(["A girl sings.", "A woman is singing."])
cosine = model.similarity(first, second)
value = {low:g} + {high - low:g} * ({fraction})  # then limited to {low:g} .. {high:g}
```"""
    return Usage((model.name,), "sentence-transformers", "sentence-similarity", text)
