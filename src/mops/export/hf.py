"""Folders for transformers and sentence-transformers: one per task, all its weights in one BERT.

A stock class is used where one computes the same: `BertForSequenceClassification` for a linear head
on the first token (pool `pooler` or `cls`), a SentenceTransformer for a cosine head. None of
transformers' classes pools a BERT by mean and classifies, so everything else is written with
`modeling_mops.py` beside it and needs `trust_remote_code=True`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.errors import UsageError
from mops.export.embedder import write_embedder
from mops.export.folder import TaskModel, linears, write_json, write_tokenizer
from mops.export.merge import trunk_config, unmergeable
from mops.files import atomic_write, holds, write_text
from mops.model.pretrained import write_tensors
from mops.predict.bundle import Bundle
from mops.predict.card import Usage, format_card

MODELING = Path(__file__).with_name("modeling_mops.py")
CUSTOM = "MopsForSequenceClassification"
PROBLEM_TYPES = {
    "class": "single_label_classification",
    "value": "regression",
    "labels": "multi_label_classification",
}
SMALL = 2.0**-14  # tanh(SMALL x) / SMALL = x in float32, for hidden states; a power of 2 is exact


def export_bundle(bundle: Bundle, folder: Path) -> list[Path]:
    """Write a folder per task; nothing is written if one of them cannot be expressed."""
    models = [TaskModel(bundle, name) for name in bundle.layout.tasks]
    for model in models:
        refuse(model)
    holds(folder, *(f"{model.name}/config.json" for model in models), kind="export")
    return [write_model(model, folder / model.name) for model in models]


def refuse(model: TaskModel) -> None:
    """One line on what transformers cannot express."""
    missing = list(unmergeable(model.bundle.layout, model.name))
    if model.head.kind == "cosine" and model.reading.pool == "sum":
        missing.append("a sum over tokens (pool: sum) below a cosine head")
    if model.task.answer.reads_words and not is_linear_alone(model):
        missing.append("late layers or a head of several layers on every word")
    if missing:
        raise UsageError(
            f"task {model.name!r} of plan {model.bundle.layout.plan.name!r} cannot be exported to "
            f"hf: a BERT of transformers has no place for {', '.join(missing)}; nothing was "
            "written. `--to onnx`, `mops serve` and `mops predict` take every plan and encoder"
        )


def write_model(model: TaskModel, folder: Path) -> Path:
    write = choose_writer(model)
    with atomic_write(folder) as draft, torch.no_grad():
        draft.mkdir()
        usage = write(model, draft)
        card = format_card(model.bundle.layout, model.bundle.config, usage)
        write_text(draft / "README.md", card)
    return folder


def choose_writer(model: TaskModel) -> Callable[[TaskModel, Path], Usage]:
    """A stock BERT is a linear head on the first token's vector, and no more."""
    if model.head.kind == "cosine":
        return write_embedder
    if model.task.answer.reads_words:
        return write_tagger
    is_stock = is_linear_alone(model) and model.reading.pool in ("pooler", "cls")
    return write_stock if is_stock else write_custom


def is_linear_alone(model: TaskModel) -> bool:
    """Whether a linear layer is all that follows the encoder's vectors."""
    is_linear = model.head.kind == "linear" and model.task.loss_name != "ordinal"
    return is_linear and not (model.route.late or model.head.norm or model.texts_apart)


def write_tagger(model: TaskModel, draft: Path) -> Usage:
    """BertForTokenClassification; the first piece of each word answers."""
    weight, bias = output_layer(model)
    tensors = model.trunk("bert.") | {"classifier.weight": weight, "classifier.bias": bias}
    write_classifier(model, draft, tensors, {"architectures": ["BertForTokenClassification"]})
    return classifier_usage(model)


def write_stock(model: TaskModel, draft: Path) -> Usage:
    """BertForSequenceClassification; for `cls` its pooler stays in the linear part of tanh."""
    weight, bias = output_layer(model)
    tensors = model.trunk("bert.")
    if model.reading.pool == "cls":
        width = model.encoder.width
        tensors["bert.pooler.dense.weight"] = SMALL * torch.eye(width)
        tensors["bert.pooler.dense.bias"] = torch.zeros(width)
        weight = weight / SMALL
    tensors |= {"classifier.weight": weight, "classifier.bias": bias}
    write_classifier(model, draft, tensors, {"architectures": ["BertForSequenceClassification"]})
    return classifier_usage(model)


def write_custom(model: TaskModel, draft: Path) -> Usage:
    """A model of `modeling_mops.py`; without trust transformers refuses its model_type."""
    head, (weight, bias) = model.head_module, output_layer(model)
    hidden = [
        (dense, str(model.head.activation)) for dense in linears(head.get_submodule("layers"))
    ]
    tensors = model.trunk("bert.") | {"classifier.weight": weight, "classifier.bias": bias}
    tensors |= {f"norm.{key}": t for key, t in model.norm.state_dict().items()}
    config = custom_config(model) | {"head_size": weight.shape[1], "head_outputs": weight.shape[0]}
    for stem, rows in {"late": model.late, "hidden": hidden}.items():
        config[stem] = [(dense.in_features, dense.out_features, name) for dense, name in rows]
        for n, (dense, _) in enumerate(rows):  # an activation lies between two dense layers
            tensors |= {f"{stem}.{2 * n}.{key}": t for key, t in dense.state_dict().items()}
    write_classifier(model, draft, tensors, config)
    shutil.copyfile(MODELING, draft / MODELING.name)
    return classifier_usage(model, ", trust_remote_code=True")


def custom_config(model: TaskModel) -> dict[str, Any]:
    """The keys of config.json that `modeling_mops.py` reads, but for the layers."""
    return {
        "model_type": "mops",
        "architectures": [CUSTOM],
        "auto_map": {
            "AutoConfig": f"{MODELING.stem}.MopsConfig",
            "AutoModelForSequenceClassification": f"{MODELING.stem}.{CUSTOM}",
        },
        "pool": model.reading.pool,
        "texts_apart": model.texts_apart,
        "text_length": model.reading.max_length,
        "features": list(model.reading.features) if model.texts_apart else [],
        "norm": isinstance(model.norm, nn.LayerNorm),
        "vector_size": model.bundle.layout.late_widths[-1],
        "ordinal": model.task.loss_name == "ordinal",
    }


def output_layer(model: TaskModel) -> tuple[Tensor, Tensor]:
    """Weight and bias of the last layer; one logit for two classes becomes (0, logit)."""
    output = model.head_module.get_submodule("output").state_dict()
    weight, bias = output["weight"], output["bias"]
    if model.task.answer.has_thresholds:
        return weight, bias - model.bundle.network.thresholds[model.name]
    if model.task.loss_name == "binary_cross_entropy":
        return F.pad(weight, (0, 0, 1, 0)), F.pad(bias, (1, 0))
    mean, deviation = model.task.scale or (0.0, 1.0)
    return weight * deviation, bias * deviation + mean


def write_classifier(
    model: TaskModel, draft: Path, tensors: dict[str, Tensor], more: dict[str, Any]
) -> None:
    labels = model.task.labels or (model.name,)
    kind = PROBLEM_TYPES.get(model.task.answer.name)
    config = {
        **trunk_config(model.encoder),
        "id2label": dict(enumerate(labels)),
        "label2id": {label: n for n, label in enumerate(labels)},
        **({"problem_type": kind} if kind else {}),
        **more,
    }
    write_json(draft / "config.json", config)
    write_tensors(draft / "model.safetensors", tensors)
    write_tokenizer(model, draft, joins_texts=model.texts_apart)


def classifier_usage(model: TaskModel, trust: str = "") -> Usage:
    """How to load the folder, and what its numbers are."""
    texts = '"A first text.", "A second one."' if model.task.is_pair else '"A lovely film."'
    notes = []
    if trust:
        notes.append(
            "`modeling_mops.py` in this folder pools the tokens and applies the head, which no "
            "class of transformers does for a BERT; read it before you trust it."
        )
    if model.task.answer.has_thresholds:
        notes.append("A label is given where its logit > 0: the thresholds are in the biases.")
    elif not model.task.answer.has_labels:
        limited = "" if model.task.range is None else ", limited to {:g} .. {:g} in mops"
        notes.append(f"The value is the only logit{limited.format(*model.task.range or ())}.")
    auto = "AutoModelForSequenceClassification"
    if model.task.answer.reads_words:
        auto = "AutoModelForTokenClassification"
        notes.append("The first piece of each word answers for the word (`word_ids()`).")
    text = f"""```python
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER"{trust})
model = {auto}.from_pretrained("FOLDER"{trust})
logits = model(**tokenizer({texts}, truncation=True, return_tensors="pt")).logits
```"""
    return Usage((model.name,), "transformers", text="\n\n".join([text, *notes]))
