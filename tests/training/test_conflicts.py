"""The products of gradients against gradients computed apart; a training that does not notice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from building import TARGETS, build_network, segment, tiny_shape
from mops.config.training import TaskEntry
from mops.data.batches import Batch
from mops.errors import MopsError, PlanError, RecipeError, UsageError
from mops.evaluate.conflicts import judge
from mops.model.network import Network
from mops.predict.bundle import load_bundle
from mops.tasks import Task
from mops.training.conflicts import (
    answer_common,
    conflicts,
    is_ordered,
    measure,
    shared_owners,
)
from mops.training.prepare import prepare
from mops.training.step import StepFacts, compute_losses
from mops.training.tracking import Watcher
from running import World, one_core, world


@pytest.fixture(scope="module")
def made() -> Any:
    with one_core():
        yield world()


def half(network: Network, task: str, seed: int, targets: np.ndarray) -> Batch:
    lengths = [4 + (seed + n) % 5 for n in range(len(targets))]
    segments = tuple(segment(length, seed + n, (task,)) for n, length in enumerate(lengths))
    return Batch(segments, {task: targets})


def halves_of(network: Network) -> dict[str, tuple[Batch, Batch]]:
    return {
        task: (
            half(network, task, 100 * n, TARGETS[task]),
            half(network, task, 100 * n + 50, TARGETS[task][::-1].copy()),
        )
        for n, task in enumerate(network.layout.tasks)
    }


def gradient_of(network: Network, task: str, batch: Batch, owner: str) -> np.ndarray:
    """By a backward pass of its own."""
    network.zero_grad(set_to_none=True)
    compute_losses(network, batch)[task].backward()
    found = [
        np.zeros(p.numel()) if p.grad is None else p.grad.to_dense().double().numpy().ravel()
        for p in network.bank[owner].parameters()
    ]
    network.zero_grad(set_to_none=True)
    return np.concatenate(found)


def test_products_are_those_of_gradients_computed_apart() -> None:
    network = build_network("late:SI", shape=tiny_shape(depth=2))
    halves = halves_of(network)
    found = measure(network, halves)
    for owner in ("embeddings", "attention/layer01", "norms/layer00", "late1"):
        rows = [gradient_of(network, task, b, owner) for task, both in halves.items() for b in both]
        flat = np.stack(rows)
        wanted = (flat @ flat.T).reshape(3, 2, 3, 2)
        assert np.abs(wanted).min() > 0
        assert np.allclose(found[owner], wanted, rtol=1e-4, atol=1e-6 * wanted.max()), owner


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        ("shared", {"embeddings", "layer00", "layer01", "layer02"}),
        ("hybrid:1", {"embeddings", "layer00"}),
        ("layers:FSI", {"layer01"}),
        ("frozen+late:SI", {"late1"}),
        ("frozen+late:IS/paraphrase+similarity", {"late2"}),
        ("separate", set()),
    ],
)
def test_only_what_is_shared_and_learns_is_measured(plan: str, wanted: set[str]) -> None:
    network = build_network(plan, shape=tiny_shape(depth=3))
    owners = shared_owners(network.layout)
    assert {owner.split("/")[1 if "layer" in owner else 0] for owner in owners} == wanted
    if owners:
        assert list(measure(network, halves_of(network))) == owners


def test_who_does_not_pass_an_owner_has_no_part_in_it() -> None:
    network = build_network("late:S/paraphrase+similarity", shape=tiny_shape(depth=2))
    gram = measure(network, halves_of(network))["late1/paraphrase+similarity"]
    assert not gram[0].any() and not gram[:, :, 0].any() and gram[1:, :, 1:].all()


def twins(flip: bool) -> tuple[Network, dict[str, tuple[Batch, Batch]]]:
    """Two tasks with the same texts and the same head; equal or opposite labels."""
    entry = TaskEntry(type="classification", text="t", label="l", labels=(0, 1))
    network = build_network(
        "shared", shape=tiny_shape(depth=2), tasks=[entry.task(name) for name in ("one", "two")]
    )
    with torch.no_grad():
        for p, q in zip(
            network.bank["head/one"].parameters(),
            network.bank["head/two"].parameters(),
            strict=True,
        ):
            p.mul_(0.05)
            q.copy_(p)
    labels = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    other = 1 - labels if flip else labels
    return network, {
        "one": (half(network, "one", 3, labels), half(network, "one", 40, labels)),
        "two": (half(network, "two", 3, other), half(network, "two", 40, other)),
    }


def test_identical_tasks_agree_fully_on_the_same_rows() -> None:
    network, halves = twins(flip=False)
    for owner, gram in measure(network, halves).items():
        assert gram[0, 0, 1, 0] == pytest.approx(gram[0, 0, 0, 0], rel=1e-5), owner
        assert gram[0, 0, 0, 1] == pytest.approx(gram[1, 0, 1, 1], rel=1e-5), owner
    same = {task: (batches[0], batches[0]) for task, batches in halves.items()}
    grams = {o: np.stack([g, g]) for o, g in measure(network, same).items()}
    cells = judge(grams, network.layout.users, ("one", "two"))["owners"]
    assert len(cells) == len(grams) == 7
    for cell in cells:
        assert (cell.mean, cell.norm_ratio) == pytest.approx((1.0, 1.0), abs=1e-5)
        assert cell.own == pytest.approx((1.0, 1.0), abs=1e-5)
        assert cell.negative == 0 and not cell.is_conflict


def test_opposite_labels_conflict() -> None:
    """Near an even guess the gradient changes its sign with the label."""
    network, halves = twins(flip=True)
    for owner, gram in measure(network, halves).items():
        cosine = gram[0, 0, 1, 0] / np.sqrt(gram[0, 0, 0, 0] * gram[1, 0, 1, 0])
        assert cosine < -0.9, owner


# ------------------------------------------------------------------ a whole measurement


class Losses(Watcher):
    """Remembers what each step did."""

    def __init__(self) -> None:
        self.facts: list[StepFacts] = []

    def step(self, step: int, facts: StepFacts) -> None:
        self.facts.append(facts)


def test_measuring_leaves_the_training_as_it_is(made: World, tmp_path: Path) -> None:
    """To the bit: the same losses and norms as `mops train` has."""
    measured, plain = Losses(), Losses()
    conflicts(made.recipe("shared"), steps=8, every=1, watcher=measured)
    mops.train(made.recipe("shared", training__max_steps=8), tmp_path / "run", plain)
    assert measured.facts == plain.facts and len(plain.facts) == 8


def test_the_file_says_everything(made: World, tmp_path: Path) -> None:
    recipe = made.recipe("hybrid:2", training__schedule="in-turn")
    found = mops.conflicts(recipe, tmp_path / "out", steps=11, every=2)
    assert isinstance(found, mops.Conflicts)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["conflicts.json"]
    data = json.loads((tmp_path / "out" / "conflicts.json").read_text("utf-8"))
    assert data["info"]["plan"] == "hybrid:2"
    assert data["info"]["measured_steps"] == [2, 4, 6, 8, 10]
    assert data["info"]["batch_sizes"] == dict.fromkeys(recipe.tasks, 4)
    assert data["recipe"]["training"]["max_steps"] == 11
    assert {"packages", "processor", "threads", "device"} <= set(data["machine"])
    assert len(data["owners"]) == (1 + 2 * 3) * 3 and len(data["places"]) == 3 * 3
    for cell in data["owners"] + data["places"]:
        assert -1 <= cell["mean"] <= 1 and cell["stderr"] > 0 and cell["steps"] == 5
        assert 0 <= cell["negative"] <= 1 and cell["norm_ratio"] > 0 and len(cell["own"]) == 2
    assert data["advice"] and all(isinstance(sentence, str) for sentence in data["advice"])
    assert [(cell["tasks"], cell["rows_of"], cell["rows"]) for cell in data["outputs"]] == [
        (["sentiment", "paraphrase"], "paraphrase", 20),
        (["sentiment", "similarity"], "similarity", 20),
        (["paraphrase", "similarity"], "paraphrase", 20),
        (["paraphrase", "similarity"], "similarity", 20),
    ]
    for cell in data["outputs"]:
        assert -1 <= cell["low"] <= cell["correlation"] <= cell["high"] <= 1
    assert "outputs" in data["advice"][-1]


def test_common_texts_are_answered_as_a_predictor_answers_them(made: World) -> None:
    """Pairs by both pair tasks; each text of a pair by the task of single texts, and the mean."""
    bundle = load_bundle(made.run / "model")
    ready = prepare(made.recipe(), lambda _: None)
    answers, targets = answer_common(ready, bundle.network)
    assert {task: set(own) for task, own in answers.items()} == {
        "sentiment": {"sentiment"},
        "paraphrase": set(answers),
        "similarity": set(answers),
    }
    rows = ready.dataset.splits["similarity"]["validation"].good
    texts = [row.texts for row in rows]
    assert sorted(targets["similarity"]) == sorted(float(row.label or 0) for row in rows)
    predictor = mops.load(made.run / "model")
    pairs = predictor.predict_tasks({"paraphrase": texts, "similarity": texts})
    own = answers["similarity"]
    assert sorted(own["similarity"]) == pytest.approx(sorted(pairs["similarity"].values))
    assert sorted(own["paraphrase"]) == pytest.approx(
        sorted(pairs["paraphrase"].probabilities[:, 1])
    )
    singles = [predictor.predict_tasks({"sentiment": [(t,) for t in row]}) for row in texts]
    mean = [float((one["sentiment"].probabilities @ np.arange(5)).mean()) for one in singles]
    assert sorted(own["sentiment"]) == pytest.approx(sorted(mean))


def test_classes_without_an_order_have_no_number() -> None:
    def task(**more: Any) -> Task:
        return Task(name="t", type="classification", text=("a",), label="b", **more)

    assert is_ordered(task(labels=("no", "yes"))) and is_ordered(task(labels=("0", "1", "2")))
    assert is_ordered(task(labels=("bad", "fair", "good"), loss="ordinal"))
    assert not is_ordered(task(labels=("news", "sport", "travel")))


def test_a_finished_measurement_is_shown_again(made: World, tmp_path: Path) -> None:
    recipe = made.recipe("shared")
    first = conflicts(recipe, tmp_path, steps=5, every=1)
    watcher = Losses()
    assert conflicts(recipe, tmp_path, steps=5, every=1, watcher=watcher) == first
    assert not watcher.facts
    assert conflicts(recipe, steps=5, every=1).places == first.places  # the same to the bit
    for changed, key in (
        ({"recipe": made.recipe("hybrid:1")}, "plan"),
        ({"steps": 6}, "training.max_steps"),
        ({"steps": 10, "every": 2}, "max_steps"),
    ):
        given: dict[str, Any] = {"recipe": recipe, "steps": 5, "every": 1, **changed}
        with pytest.raises(RecipeError, match=f"a measurement with other settings .*{key}"):
            conflicts(out=tmp_path, **given)


@pytest.mark.parametrize(
    ("plan", "settings", "kind", "words"),
    [
        ("separate", {}, PlanError, "no two tasks train the same weights"),
        ("frozen+late:I", {}, PlanError, "nothing can conflict"),
        ("shared", {"steps": 4, "every": 1}, UsageError, "at least 5 measured steps"),
        ("shared", {"steps": 24, "every": 5}, UsageError, "take 25 steps"),
        ("shared", {"every": 0}, UsageError, "1 or more"),
    ],
)
def test_wrong_use(
    made: World, plan: str, settings: Mapping[str, int], kind: type[MopsError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        conflicts(made.recipe(plan), **{"steps": 5, "every": 1, **settings})
    assert caught.value.exit_code == 2


def test_one_task_has_no_conflict_with_itself(made: World, tmp_path: Path) -> None:
    alone = mops.recipe(data=made.data, encoder=str(made.encoder), tasks=["sentiment"])
    with pytest.raises(RecipeError, match="there is only sentiment"):
        conflicts(alone)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        conflicts(made.recipe(), tmp_path / "file")


def test_few_rows_make_smaller_batches(made: World, tmp_path: Path) -> None:
    lines = (made.data / "sts-train.csv").read_text("utf-8").splitlines()
    (tmp_path / "few.csv").write_text("\n".join(lines[:4]) + "\n", "utf-8")
    recipe = made.recipe("shared", tasks__similarity__train=str(tmp_path / "few.csv"))
    assert conflicts(recipe, steps=5, every=1).places
