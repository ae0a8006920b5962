"""One candidate, measured in this process: what is measured is what a training does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mops.data.dataset import read_dataset
from mops.surveys.benchmark.measures import Measures, Stopwatch, request_of
from running import world

FROZEN = "frozen+late:SIS"


def measures(folder: Path, plan: Any = "shared", **settings: Any) -> Measures:
    found = Measures(world().recipe(plan, **settings), folder)
    found.warm()
    return found


def test_weights_are_held_still(tmp_path: Path) -> None:
    """Also with a rate at which a training would end in numbers that are none."""
    here = Measures(world().recipe("hybrid:1", training__learning_rate=1e6), tmp_path)
    before = {name: weight.clone() for name, weight in here.loop.network.weights().items()}
    here.warm()
    assert all(value > 0 for key, value in here.round(0).items() if key != "encode")
    after = here.loop.network.weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
    moments = [of["exp_avg"] for of in here.loop.optimiser.state.values()]
    assert any(bool(moment.any()) for moment in moments)  # a whole step was taken


def test_frozen_steps_begin_above_the_encoder(tmp_path: Path, monkeypatch: Any) -> None:
    """Once warm, a step does not encode; all different sequences of the training are counted."""
    here = measures(tmp_path, FROZEN)
    (encoding,) = here.encodings.values()
    loop, splits = here.loop, here.ready.dataset.splits
    taken = {
        splits[task]["train"].good[place.row].texts
        for task, rows in loop.schedule.rows_before(len(loop.schedule)).items()
        for place in loop.schedule.places(task, 0, rows)
    }
    assert encoding.sequences == len(taken)
    assert encoding.seconds() > 0
    monkeypatch.setattr(encoding.cache, "compute", None)
    for weights in here.typical[0].rounds:
        assert all(here.take(step) > 0 for step in weights)


@pytest.mark.parametrize(
    "settings", [{"training__augment": {"word_dropout": 0.5}}, {"plan": "hybrid:1"}, {"off": True}]
)
def test_nothing_is_encoded_before_where_a_run_would_not(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.pop("off", False):
        monkeypatch.setenv("MOPS_CACHE", "off")
    here = measures(tmp_path, settings.pop("plan", FROZEN), **settings)
    assert here.round(0)["encode"] == 0
    assert [encoding.sequences for encoding in here.encodings.values()] == [0]


def test_every_stage_is_measured_as_it_is(tmp_path: Path) -> None:
    """First the head alone, on what is known; then everything."""
    stages = [{"steps": 4, "frozen": True}, {"steps": 4, "schedule": "round-robin"}]
    here = measures(tmp_path, training__stages=stages, training__max_steps=None)
    assert here.round(1)["step"] > 0
    first, second = here.encodings.values()
    assert first.sequences > 0 and second.sequences == 0
    learning = {id(p) for group in here.loop.optimiser.param_groups for p in group["params"]}
    assert learning == {id(p) for p in here.loop.network.parameters()}


def test_a_request_is_a_pair_for_all_tasks() -> None:
    dataset = read_dataset(world().recipe())
    pairs = [row.texts for row in dataset.splits["paraphrase"]["validation"].good]
    one, many = request_of(dataset, 1), request_of(dataset, 32)
    (pair,) = one["paraphrase"]
    assert one["similarity"] == [pair] and one["sentiment"] == [pair[:1]]
    lengths = [len("".join(texts)) for texts in pairs]
    assert abs(np.median(lengths) - len("".join(pair))) <= 4
    assert {len(rows) for rows in many.values()} == {32}
    assert set(many["paraphrase"]) == set(pairs)  # all lengths


def test_a_request_without_pairs_is_a_text() -> None:
    recipe = world().recipe()
    alone = recipe.model_copy(update={"tasks": {"sentiment": recipe.tasks["sentiment"]}})
    dataset = read_dataset(alone)
    assert [len(text) for text in request_of(dataset, 3)["sentiment"]] == [1, 1, 1]


def test_waiting_is_no_work() -> None:
    processor, other = Stopwatch("cpu"), Stopwatch("cuda")
    time.sleep(0.1)
    assert processor.seconds() < 0.05
    assert other.seconds() >= 0.1
