"""Tasks leave models and models become one; the answers of the tasks that stay do not change."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

from building import (
    DEPTH,
    ENTRIES,
    NAMES,
    THREE_TASKS,
    build_network,
    shake,
    tiny_shape,
    tiny_tokenizer,
)
from mops.data.batches import tokenise
from mops.errors import MopsError
from mops.plans.catalog import every_plan, read_plan
from mops.plans.joining import join_plan
from mops.plans.rows import SharingPlan
from mops.plans.shapes import HeadShape, Reading
from mops.predict.bundle import Bundle, load_bundle, save_bundle
from mops.predict.editing import merge_bundles, remove_task
from mops.predict.inference import compute_outputs

TEXTS = [("ban bat",), ("bet the den",), ("a gun bully gon ban ban ban",)]
PAIRS = [("ban bat", "bet"), ("den", "a fit ."), ("gun gon", "gun gon")]
READING = Reading(max_length=32, heads={"paraphrase": HeadShape(kind="mlp", width=8)})
LATER = replace(THREE_TASKS[0], name="later")
LATEST = replace(THREE_TASKS[2], name="latest")
PLANS = {plan.name: plan for plan in every_plan(DEPTH, NAMES)}


def save(folder: Path, plan: SharingPlan, tasks: Any = THREE_TASKS, seed: int = 0) -> Bundle:
    """A bundle in which every weight is random."""
    network = build_network(plan, reading=READING, tasks=tasks)
    for owner, module in network.bank.items():  # the same for the same owner
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        shake(module, seed=seed + crc32(owner.encode()), size=0.3)
    entries = {task.name: entry_of(task.name) for task in tasks}
    scores = {name: {"report": {"accuracy": 0.5}} for name in entries}
    facts = {"encoder_sha256": "same", "scores": scores, "untrained": ["paraphrase"]}
    save_bundle(folder, network, tiny_tokenizer(), entries, facts)
    return load_bundle(folder)


def entry_of(name: str) -> Any:
    return ENTRIES[{"later": "sentiment", "latest": "similarity"}.get(name, name)]


def outputs(bundle: Bundle) -> dict[str, np.ndarray]:
    layout = bundle.layout
    tables = {
        name: tokenise(bundle.tokenizer, PAIRS if task.is_pair else TEXTS, layout.reading.of(name))
        for name, task in layout.tasks.items()
    }
    return compute_outputs(bundle.network, tables)


def assert_same_answers(bundle: Bundle, originals: list[Bundle]) -> None:
    ours = outputs(bundle)
    expected = dict(chain(*(outputs(original).items() for original in originals)))
    for name, values in ours.items():
        assert values.tobytes() == expected[name].tobytes(), name


def grown(plan: SharingPlan, way: str | None, like: str = "similarity") -> SharingPlan:
    own = read_plan(way) if way else None
    return join_plan(plan, THREE_TASKS, {"later": like}, own)


@pytest.mark.parametrize("name", [name for name in PLANS if not PLANS[name].feeds])
def test_the_other_tasks_answer_as_before(name: str, tmp_path: Path) -> None:
    old = save(tmp_path / "old", PLANS[name])
    for leaving in NAMES[:2]:
        remove_task(old, leaving, tmp_path / leaving)
        new = load_bundle(tmp_path / leaving)
        assert list(new.layout.tasks) == [task for task in NAMES if task != leaving]
        assert_same_answers(new, [old])
        users = old.layout.users.items()
        used = [old.layout.sizes[owner] for owner, tasks in users if set(tasks) - {leaving}]
        assert new.layout.parameters == sum(used)  # nothing that only it used is left


@pytest.mark.parametrize(
    ("name", "way"),
    [("shared", None), ("shared", "lora:2"), ("hybrid:2", "shared"), ("hybrid:2", "hybrid:3"),
     ("separate", "hybrid:2"), ("lora:8", None), ("lora:8", "lora:2"), ("shared", "pals:top"),
     ("late:ISS/paraphrase+similarity", None), ("late:ISS/paraphrase+similarity", "adapters:4")],
)  # fmt: skip
def test_any_task_of_a_grown_model_leaves(name: str, way: str | None, tmp_path: Path) -> None:
    """Also the one whose weights another passes: the follower takes its place."""
    plan = grown(read_plan(name), way)
    old = save(tmp_path / "old", plan, (*THREE_TASKS, LATER))
    for leaving in (*NAMES, "later"):
        remove_task(old, leaving, tmp_path / leaving)
        assert_same_answers(load_bundle(tmp_path / leaving), [old])
    remove_task(load_bundle(tmp_path / "similarity"), "later", tmp_path / "two")
    assert_same_answers(load_bundle(tmp_path / "two"), [old])


def test_facts_of_the_tasks_that_stay(tmp_path: Path) -> None:
    remove_task(save(tmp_path / "old", PLANS["shared"]), "similarity", tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert set(config["scores"]) == {"sentiment", "paraphrase"}
    assert config["untrained"] == ["paraphrase"] and set(config["heads"]) == {"paraphrase"}
    remove_task(load_bundle(tmp_path / "new"), "paraphrase", tmp_path / "last")
    config = json.loads((tmp_path / "last" / "config.json").read_text())
    assert config["untrained"] == [] and config["heads"] == {}


def test_a_task_that_feeds_another_stays(tmp_path: Path) -> None:
    old = save(tmp_path / "old", read_plan("progressive"))
    with pytest.raises(MopsError, match="it feeds paraphrase, similarity"):
        remove_task(old, "sentiment", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    remove_task(old, "similarity", tmp_path / "new")  # it is only fed
    assert_same_answers(load_bundle(tmp_path / "new"), [old])


@pytest.mark.parametrize(
    ("name", "said"), [("sentimnt", "Did you mean 'sentiment'"), ("x", "it has sentiment")]
)
def test_an_unknown_task(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MopsError, match=said):
        remove_task(save(tmp_path / "old", PLANS["shared"]), name, tmp_path / "new")


def test_the_last_task_stays(tmp_path: Path) -> None:
    old = save(tmp_path / "old", PLANS["shared"], THREE_TASKS[:1])
    with pytest.raises(MopsError, match="it is the only task"):
        remove_task(old, "sentiment", tmp_path / "new")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    old = save(tmp_path / "old", PLANS["shared"])
    with pytest.raises(MopsError, match="holds a model already"):
        remove_task(old, "sentiment", tmp_path / "old")


# ------------------------------------------------------------------ merge


@pytest.mark.parametrize("name", [name for name in PLANS if not PLANS[name].feeds])
def test_two_halves_are_the_whole(name: str, tmp_path: Path) -> None:
    old = save(tmp_path / "old", PLANS[name])
    remove_task(old, "similarity", tmp_path / "a")
    remove_task(old, "paraphrase", tmp_path / "b")
    halves = [load_bundle(tmp_path / half) for half in "ab"]
    merge_bundles(*halves, tmp_path / "whole")
    whole = load_bundle(tmp_path / "whole")
    assert set(whole.layout.tasks) == set(NAMES)
    assert_same_answers(whole, [old])
    if "+" not in name.removeprefix("frozen+"):  # a group that was parted has two copies
        assert whole.layout.parameters == old.layout.parameters


@pytest.mark.parametrize("ways", [("lora:2", "hybrid:2"), (None, "adapters:4")])
@pytest.mark.parametrize("name", ["shared", "hybrid:2", "lora:8", "late:ISS"])
def test_two_that_grew_from_one_become_one(name: str, ways: Any, tmp_path: Path) -> None:
    plan = read_plan(name)
    first = save(tmp_path / "a", grown(plan, ways[0]), (*THREE_TASKS, LATER))
    own = read_plan(ways[1])
    joined = join_plan(plan, THREE_TASKS, {"latest": "paraphrase"}, own)
    second = save(tmp_path / "b", joined, (*THREE_TASKS, LATEST))
    merge_bundles(first, second, tmp_path / "whole")
    whole = load_bundle(tmp_path / "whole")
    assert set(whole.layout.tasks) == {*NAMES, "later", "latest"}
    assert_same_answers(whole, [first, second])
    assert not any(whole.layout.rates[owner] for owner in save(tmp_path / "c", plan).layout.sizes)


def test_shared_weights_must_be_equal(tmp_path: Path) -> None:
    first = save(tmp_path / "a", PLANS["shared"], THREE_TASKS[:1])
    second = save(tmp_path / "b", PLANS["shared"], THREE_TASKS[1:], seed=5)
    with pytest.raises(MopsError, match="the plan shares 'embeddings', and its weights differ"):
        merge_bundles(first, second, tmp_path / "whole")


def test_shared_encoders_that_were_frozen_are_merged(tmp_path: Path) -> None:
    first = save(tmp_path / "a", PLANS["shared"], THREE_TASKS[:1])
    second = save(tmp_path / "b", PLANS["shared"], THREE_TASKS[1:])
    merge_bundles(first, second, tmp_path / "whole")
    assert_same_answers(load_bundle(tmp_path / "whole"), [first, second])


def test_different_plans_and_readings_are_refused(tmp_path: Path) -> None:
    first = save(tmp_path / "a", PLANS["shared"], THREE_TASKS[:1])
    second = save(tmp_path / "b", read_plan("hybrid:2"), THREE_TASKS[1:])
    with pytest.raises(MopsError, match="differ in the `copies` that all tasks have"):
        merge_bundles(first, second, tmp_path / "whole")
    network = build_network("shared", reading=replace(READING, pool="cls", heads={}))
    save_bundle(tmp_path / "c", network, tiny_tokenizer(), ENTRIES, {"encoder_sha256": "same"})
    with pytest.raises(MopsError, match=r"training\.pool is mean in the first and cls in the"):
        merge_bundles(first, load_bundle(tmp_path / "c"), tmp_path / "whole")


def test_tasks_and_encoders_that_differ_are_told_by_their_keys(tmp_path: Path) -> None:
    first = save(tmp_path / "a", PLANS["shared"])
    other = replace(THREE_TASKS[0], score="macro_f1", text=("words",))
    network = build_network("shared", reading=READING, tasks=(other, *THREE_TASKS[1:]))
    with pytest.raises(MopsError) as refused:
        merge_bundles(first, replace(first, network=network), tmp_path / "whole")
    assert str(refused.value).endswith(
        "cannot be merged: both have a task 'sentiment', which differs in text, score; take it out "
        "of one of them with `mops remove-task`"
    )
    network = build_network("shared", reading=READING, shape=tiny_shape("roberta"))
    with pytest.raises(MopsError, match="their encoders differ in family, positions, types, first"):
        merge_bundles(first, replace(first, network=network), tmp_path / "whole")
