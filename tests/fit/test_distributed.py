"""Two processes train what one process trains with the joined batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from building import build_network, mixed_batch
from mops.data.batches import TaskData
from mops.data.schedule import Place
from mops.data.tokens import TokenTable
from mops.errors import RecipeError
from mops.fit.distributed import Group, mass
from mops.fit.step import compute_losses, step_seed
from mops.recipes import Recipe
from mops.settings import TaskEntry, Training
from running import one_core, run_python, world

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python")
NO_DROPOUT = {"training__dropout": 0, "training__head_dropout": 0, "training__learning_rate": 1e-3}
WEIGHTED = {"tasks__sentiment__class_weights": [1, 2, 3, 0.5, 1]}
# name -> what differs from the small recipe; each is trained by one process and by two
CASES: dict[str, dict[str, Any]] = {
    "unequal rows": {
        "training__schedule": "mixed",
        "training__per_task_batch_size": 1,
        "training__loss_weights": "uncertainty",
        **WEIGHTED,
    },
    "rows per task": {
        "training__per_task_batch_size": {"sentiment": 3, "paraphrase": 2, "similarity": 1},
        "training__loss_weights": "dwa",
        "training__dwa_steps": 3,
        "training__augment": {"word_dropout": 0.2, "swap": ["paraphrase"]},
    },
    "surgery": {"plan": "shared", "training__gradients": "pcgrad"},
    "surgery, unequal": {
        "plan": "hybrid:1",
        "training__gradients": "mgda",
        "training__schedule": "mixed",
        "training__per_task_batch_size": 1,
    },
    "stages": {
        "plan": "late:SI",
        "training__max_steps": None,
        "training__stages": [{"steps": 6, "frozen": True}, {"steps": 6}],
    },
    "early": {"training__early_stopping": 1, "training__eval_steps": 2},
}


def recipe_of(joined: int = 1, **settings: Any) -> Recipe:
    """Twelve steps without dropout; `joined` times the rows in each."""
    given = {"plan": "hybrid:1", "training__max_steps": 12, **NO_DROPOUT, **settings}
    sizes = given.pop("training__per_task_batch_size", 2)
    larger = (
        {task: joined * size for task, size in sizes.items()}
        if isinstance(sizes, dict)
        else joined * sizes
    )
    return world().recipe(**given, training__per_task_batch_size=larger)


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text("utf-8").splitlines()]


def assert_same_curve(one: Path, two: Path) -> None:
    """All that follows from the joined batch; the shares of gradients are the first one's."""
    ours, theirs = curve(one), curve(two)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for key in {"loss", "gradient_norm", "overall"} & set(a):
            assert a[key] == pytest.approx(b[key], abs=1e-5)
        for key in {"losses", "loss_weights"} & set(a):
            assert a[key] == pytest.approx(b[key], abs=1e-5)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with one_core():
        yield


# ------------------------------------------------------------------ the command


def test_torchrun_gives_the_losses_of_one_process(tmp_path: Path) -> None:
    """Fifty steps, 4 rows of a task in each of two processes against 8 in one."""
    settings = NO_DROPOUT | {"training__max_steps": 50, "training__eval_steps": 25}
    settings |= {"training__learning_rate": 1e-4}
    words = ["-m", "mops", "train", "--plan", "hybrid:1", "--out", str(tmp_path / "two")]
    words += world().options(**settings, training__per_task_batch_size=4)
    launch = [word for word in TORCHRUN if word != "--no-python"]
    ended = run_python(*launch, *words)
    assert ended.returncode == 0, ended.stderr
    mops.train(world().recipe(**settings, training__per_task_batch_size=8), tmp_path / "one")
    lines = [line for line in curve(tmp_path / "one") if "loss" in line]
    assert [line["step"] for line in lines] == [1, 10, 20, 30, 40, 50]
    assert_same_curve(tmp_path / "one", tmp_path / "two")
    one, two = (mops.read_record(tmp_path / name / "record.json") for name in ("one", "two"))
    assert (one.train_info["processes"], two.train_info["processes"]) == (1, 2)
    assert one.train_info["tokens"] == two.train_info["tokens"]
    assert one.train_info["tasks"] == two.train_info["tasks"]
    assert ended.stdout.count("model   ") == 1  # one of them speaks
    assert ended.stderr.count("planned batches") == 3
    assert not (tmp_path / "two" / "state").exists()
