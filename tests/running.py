"""A small world for tests that train: an encoder, three tasks in the CS224N layout, one run."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mops
from building import HEADS, INNER, VOCABULARY, WIDTH, WORDS, shake, tiny_tokenizer
from mops.config.recipe import Recipe
from mops.evaluate import metrics
from mops.training.tracking import Watcher

RESAMPLES = metrics.RESAMPLES
SOURCE = Path(mops.__file__).parents[1]
TRAIN_ROWS = {"sentiment": 60, "paraphrase": 30, "similarity": 20}
COLUMNS = {
    "sentiment": ("ids-sst", "sentence", "sentiment"),
    "paraphrase": ("quora", "sentence1\tsentence2", "is_duplicate"),
    "similarity": ("sts", "sentence1\tsentence2", "similarity"),
}
# Few steps of everything: what a run is, not what it learns.
QUICK: dict[str, Any] = {
    "training.max_steps": 8,
    "training.eval_steps": 4,
    "training.per_task_batch_size": 4,
    "training.max_length": 32,
    "training.threads": 1,
    "training.seed": 3,
}


def words(draw: np.random.Generator, vowel: str, count: int) -> str:
    """Words with one vowel: the toy's meaning."""
    known = [word for word in WORDS if word[1] == vowel]
    return " ".join(draw.choice(known, count))


def toy_row(draw: np.random.Generator, task: str, number: int) -> tuple[str, ...]:
    """Texts and label; which vowel it is, whether both have the same, and how far they are."""
    first, second = "aeiou"[number % 5], "aeiou"[(number * 3 + number // 5) % 5]
    count = 3 + number % 4
    if task == "sentiment":
        return words(draw, first, count), str(number % 5)
    texts = words(draw, first, count), words(draw, second, count + number % 2)
    distance = abs("aeiou".index(first) - "aeiou".index(second))
    if task == "paraphrase":
        return *texts, str(int(distance == 0))
    return *texts, f"{5 - distance + 0.125 * (number % 3) * (distance > 0):.3f}"


def write_toy_data(folder: Path) -> Path:
    """The files of the course: tab-separated .csv, an unnamed first column, test without labels."""
    for n, (task, (stem, text, label)) in enumerate(COLUMNS.items()):
        draw = np.random.default_rng(n)
        for split, count in (("train", TRAIN_ROWS[task]), ("dev", 20), ("test-student", 8)):
            is_test = split == "test-student"
            lines = ["\t".join(("", "id", text, *([] if is_test else [label])))]
            for number in range(count):
                row = toy_row(draw, task, number)
                cells = (str(number), f"{task[:2]}{split}{number}", *(row[:-1] if is_test else row))
                lines.append("\t".join(cells))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{stem}-{split}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def write_long_encoder(folder: Path, positions: int = 256, depth: int = 3) -> Path:
    """A tiny BERT that takes as many tokens as the default recipe asks for."""
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        max_position_embeddings=positions,
        hidden_size=WIDTH,
        num_hidden_layers=depth,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.BertModel(config)
    shake(model, seed=7)
    model.save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@dataclass(frozen=True)
class World:
    """Where the shared files lie. Nothing in it may be changed: copy first."""

    data: Path
    encoder: Path
    run: Path  # a finished run of QUICK

    def recipe(self, plan: Any = "hybrid:1", **settings: Any) -> Recipe:
        """QUICK on the toy data; `a__b=c` sets the key `a.b`."""
        given = {key.replace("__", "."): value for key, value in settings.items()}
        data = given.pop("data", self.data)
        encoder = given.pop("encoder", self.encoder)
        return mops.recipe(data=data, encoder=str(encoder), plan=plan, set={**QUICK, **given})

    def options(self, *more: str, **settings: Any) -> list[str]:
        """The same recipe as words of a command."""
        given = QUICK | {key.replace("__", "."): value for key, value in settings.items()}
        found = ["--data", str(self.data), "--encoder", str(self.encoder)]
        for key, value in given.items():
            found += ["--set", f"{key}={value}"]
        return [*found, *more]


@cache
def world() -> World:
    """Made once; the run is trained when the world is."""
    folder = Path(tempfile.mkdtemp(prefix="mops-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = World(
        write_toy_data(folder / "data"), write_long_encoder(folder / "encoder"), folder / "run"
    )
    with pytest.MonkeyPatch.context() as patch:  # whichever test asks first, also one with few
        patch.setattr(metrics, "RESAMPLES", RESAMPLES)
        mops.train(made.recipe(), made.run)
    return made


def bundle_scores(run: Path) -> dict[str, Any]:
    """The recorded scores but those of cross-fitting, which need more than the bundle."""
    scores = asdict(mops.read_record(run / "record.json").scores)
    scores["overall"]["report"] = {}
    for parts in scores["tasks"].values():
        del parts["report"]
    return scores | {"untrained": list(scores["untrained"])}


class StopAt(Watcher):
    """Breaks off after a step, as a crash would."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, facts: object) -> None:
        if step == self.at:
            raise ZeroDivisionError


def run_python(*words: str, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """A child with this Python, one thread and the same mops."""
    child = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | child,
        **options,
    )


@contextmanager
def one_core() -> Iterator[None]:
    """This process and its children on one core: two threads that wait for each other are slow."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_cli_with(monkeypatch: Any, capsys: Any) -> Any:
    """`run(*words) -> (code, out, err)`: the command line in this process."""
    from mops.cli.main import main

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mops", *words])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run
