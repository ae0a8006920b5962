"""One file with a column for a task of each kind, over the same texts; and its recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import mops
from building import WORDS
from mops.config.recipe import Recipe
from running import QUICK

VOWELS = "aeiou"


def make_row(draw: np.random.Generator, number: int) -> dict[str, Any]:
    """Words with the first of five vowels or another; every label follows from the words."""
    known = {vowel: [word for word in WORDS if word[1] == vowel] for vowel in VOWELS}
    first, other = VOWELS[number % 5], VOWELS[(number // 5) % 5]
    chosen = [str(draw.choice(known[v])) for v in (first, first, other, first)[: 3 + number % 2]]
    found = [word[1] for word in chosen]
    return {
        "text": " ".join(chosen),
        "topic": first,
        "price": round(200.0 + 300.0 * found.count("a") - 50.0 * found.count("o"), 2),
        "moods": json.dumps(sorted({vowel for vowel in found if vowel in "aei"})),
        "tags": " ".join("B-X" if v == "a" else "I-X" if v == "e" else "O" for v in found),
        "odd": str(number % 2),
        "other": " ".join(reversed(chosen)) if number % 3 else str(draw.choice(known[other])),
        "closeness": round(float(draw.uniform(0.7, 1) if number % 3 else draw.uniform(0, 0.3)), 3),
    }


TASKS: Mapping[str, dict[str, Any]] = {
    "topic": {"type": "classification", "label": "topic"},
    "price": {"type": "regression", "label": "price"},
    "moods": {"type": "multilabel", "label": "moods"},
    "spans": {"type": "tagging", "label": "tags"},
    "odd": {"type": "classification", "label": "odd", "score": "macro_f1"},
    "closeness": {
        "type": "similarity", "text": ["text", "other"], "label": "closeness", "range": [0, 1],
    },
}  # fmt: skip


def write_rows(path: Path, count: int, seed: int = 0) -> Path:
    draw = np.random.default_rng(seed)
    rows = [make_row(draw, number) for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def kinds_recipe(
    folder: Path, encoder: Path, *names: str, plan: Any = "shared", **settings: Any
) -> Recipe:
    """QUICK on one file that all named tasks read."""
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    if not train.is_file():
        write_rows(train, 60)
        write_rows(dev, 30, seed=1)
    tasks = {
        name: {"text": "text", **TASKS[name], "train": str(train), "validation": str(dev)}
        for name in names or TASKS
    }
    given = {key.replace("__", "."): value for key, value in settings.items()}
    config = folder / "recipe.yaml"
    config.write_text(json.dumps({"tasks": tasks}), "utf-8")
    return mops.recipe(config=config, encoder=str(encoder), plan=plan, set={**QUICK, **given})
