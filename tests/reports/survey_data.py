"""The data files and the encoder folder of a made survey: real files with known faults."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surveying import TASKS as TWO_TASKS

TASKS: dict[str, dict[str, Any]] = {
    "sentiment": TWO_TASKS["sentiment"],
    "paraphrase": {
        "type": "pair_classification",
        "text": ["sentence1", "sentence2"],
        "label": "is_duplicate",
        "labels": [0, 1],
    },
    "similarity": TWO_TASKS["similarity"],
}
# The first rows of every file that judges.
HOSTILE = (
    '<script>document.title = "taken"</script><img src=x onerror="document.title=1">',
    r"a | b || c \| and 50 % of #1 & $x_1^2$ ~ {braces} \textbf{bold} \end{table}",
    'he said "no", then\nleft `code` *there* <b>&amp;</b>',
    "naïve café — “quotes”, 東京, −1 ≤ x ± 2 …",
)
WORDS = ("ant", "bear", "crab", "deer", "eel", "frog", "goat", "hare", "ibis", "jay", "kite")
ENCODER = {
    "model_type": "bert",
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_act": "gelu",
    "vocab_size": 200,
    "max_position_embeddings": 256,
}


def write_encoder(folder: Path) -> Path:
    """A shape and a digest; there is nothing to load."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(ENCODER), "utf-8")
    (folder / "model.safetensors").write_bytes(b"no weights")
    return folder


def write_data(
    folder: Path, rows: int, labels: Sequence[str], split: float | None = None
) -> dict[str, Any]:
    """Three files for each task, and the entries of a recipe that name them.

    Known faults of every training file: one row stands twice, one is also in validation; that of
    sentiment has a row without a label.
    """
    entries: dict[str, Any] = {}
    for name, plain in TASKS.items():
        entry = {**plain, "on_bad_row": "skip"}
        if name == "sentiment":
            entry["labels"] = list(labels)
        made = {
            part: list(made_rows(name, entry, part, rows))
            for part in ("train", "validation", "test")
        }
        made["train"] += [
            ["twice", *made["train"][-1][1:]],
            ["leak", *made["validation"][-1][1:]],
            *([["bad", "no label here", ""]] if name == "sentiment" else []),
        ]
        for part, of in made.items():
            path = folder / f"{name}-{part}.csv"
            write_csv(path, ["id", *texts_of(entry), entry["label"]], of)
            entry[part] = str(path)
        if split:
            entry |= {"split": split, "validation": None}
        entries[name] = entry
    return entries


def made_rows(name: str, entry: Mapping[str, Any], split: str, count: int) -> Iterator[list[str]]:
    """Texts of two to ten words; in a file that judges the hostile ones come first."""
    draw = np.random.default_rng([len(name), len(split)])
    hostile = () if split == "train" else HOSTILE
    for number in range(count):
        words = [" ".join(draw.choice(WORDS, 1 + number % 9)) for _ in texts_of(entry)]
        texts = [f"{split}{number} {text}" for text in words]
        if number < len(hostile):
            texts[0] = f"{hostile[number]} {split}"
        classes = entry.get("labels") or [f"{draw.uniform(0, 5):.3f}"]
        yield [f"{split}-{number}", *texts, str(classes[number % len(classes)])]


def texts_of(entry: Mapping[str, Any]) -> list[str]:
    return [entry["text"]] if isinstance(entry["text"], str) else list(entry["text"])


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
