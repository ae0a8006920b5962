"""Several tasks on one file: read once, tokenised once, encoded once in a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from kinds.kind_data import kinds_recipe
from mops.config.recipe import Recipe
from mops.data import tables
from mops.data.dataset import read_dataset, shared_files
from mops.errors import DataError
from mops.model.network import Network
from mops.training.distributed import ALONE
from mops.training.prepare import TaskObjective, build_objective, build_trainer, prepare
from mops.training.step import compute_losses

THREE = ("topic", "price", "moods")


def objective_of(recipe: Any) -> TaskObjective:
    return build_objective(prepare(recipe, lambda text: None), ALONE)


def remove_labels(path: Path, name: str, numbers: range) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for number in numbers:
        rows[number][name] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("schedule", ["together", "mixed"])
def test_a_row_with_three_labels_is_one_segment(
    encoder: Path, tmp_path: Path, schedule: str
) -> None:
    made = objective_of(kinds_recipe(tmp_path, encoder, *THREE, training__schedule=schedule))
    assert made.data["topic"].tokens is made.data["price"].tokens is made.data["moods"].tokens
    for step in (0, 5):
        batch = made.make_batch(step)
        assert all(segment.tasks == THREE for segment in batch.segments)
        assert {len(targets) for targets in batch.targets.values()} == {len(batch.segments)}


def test_the_file_is_read_once(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = tables._json_lines
    monkeypatch.setattr(
        tables, "_json_lines", lambda lines: opened.append(lines.name) or read(lines)
    )
    read_dataset(kinds_recipe(tmp_path, encoder, "topic"))
    alone, opened[:] = list(opened), []
    read_dataset(kinds_recipe(tmp_path, encoder, *THREE))
    assert opened == alone


@pytest.mark.parametrize("plan", ["shared", "hybrid:1", "lora:4", "separate"])
def test_losses_and_gradients_are_those_of_each_task_alone(
    encoder: Path, tmp_path: Path, plan: str
) -> None:
    """One pass for all tasks, or one for each, also where a row lacks some labels."""
    recipe = kinds_recipe(
        tmp_path, encoder, *THREE, plan=plan, training__dropout=0, training__head_dropout=0
    )
    remove_labels(tmp_path / "train.jsonl", "price", range(0, 60, 2))
    ready = prepare(recipe, lambda text: None)
    trainer = build_trainer(tmp_path / "run", ready)
    network, made = trainer.network.train(), trainer.objective
    batch = made.make_batch(0)
    assert len(batch.targets["price"]) < len(batch.targets["topic"]) == len(batch.segments)
    losses = compute_losses(network, batch)
    together = gradients(network, losses)
    apart = {t: compute_losses(network, made.make_batch(0, [t]))[t] for t in losses}
    for task, loss in losses.items():
        torch.testing.assert_close(loss, apart[task], rtol=1e-5, atol=1e-6)
    for one, other in zip(together, gradients(network, apart), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def gradients(network: Network, losses: Any) -> list[torch.Tensor]:
    network.zero_grad(set_to_none=True)
    sum(losses.values()).backward(retain_graph=True)
    return [p.grad.to_dense().clone() for p in network.parameters() if p.grad is not None]


def test_rows_without_a_label_count_for_the_other_tasks_only(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, *THREE)
    remove_labels(tmp_path / "train.jsonl", "price", range(30))
    remove_labels(tmp_path / "dev.jsonl", "topic", range(10))
    run = mops.train(recipe, tmp_path / "run")
    assert run.scores.tasks["price"]["train"]["rows"] == 30
    assert run.scores.tasks["topic"]["report"]["rows"] == 20
    assert run.scores.tasks["moods"]["report"]["rows"] == 30
    assert any("30 of 60 rows have no label" in note for note in run.record.meta_info.data_notes)


def test_a_sparse_task_that_is_trained_in_turn_takes_its_labelled_rows(
    encoder: Path, tmp_path: Path
) -> None:
    recipe = kinds_recipe(tmp_path, encoder, *THREE, training__schedule="round-robin")
    remove_labels(tmp_path / "train.jsonl", "price", range(55))
    made = objective_of(recipe)
    assert {name: len(data) for name, data in made.data.items()} == {
        "topic": 60, "price": 5, "moods": 60,
    }  # fmt: skip
    assert all(data.is_known.all() for data in made.data.values())


def test_the_tasks_of_a_row_are_on_one_side_of_a_split(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, *THREE)
    remove_labels(tmp_path / "train.jsonl", "price", range(0, 60, 3))
    entries = {
        name: entry.model_copy(update={"validation": None, "split": 0.3})
        for name, entry in recipe.tasks.items()
    }
    splits = read_dataset(recipe.model_copy(update={"tasks": entries})).splits
    sides = [{row.where for row in own["train"].rows} for own in splits.values()]
    assert sides[0] == sides[1] == sides[2] and 20 < len(sides[0]) < 60


def test_tasks_with_other_texts_take_rows_of_their_own(encoder: Path, tmp_path: Path) -> None:
    entries = kinds_recipe(tmp_path, encoder, *THREE).tasks
    assert {one.leader for one in shared_files(entries).values()} == {"topic"}
    other = entries["price"].model_copy(update={"text": "topic"})
    shared = shared_files({**entries, "price": other})
    assert {name: one.leader for name, one in shared.items() if one.is_together} == {
        "topic": "topic", "moods": "topic",
    }  # fmt: skip
    assert not shared["price"].is_together  # its rows may lack a label all the same
    assert shared_files({"topic": entries["topic"]}) == {}


def test_rows_that_only_tasks_with_other_texts_label(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "topic", "closeness")
    for name in ("train", "dev"):
        remove_labels(tmp_path / f"{name}.jsonl", "closeness", range(12))
    splits = read_dataset(recipe).splits
    assert len(splits["closeness"]["train"].rows) == 48 and len(splits["topic"]["train"].rows) == 60
    run = mops.train(recipe, tmp_path / "run")
    assert run.scores.tasks["closeness"]["report"]["rows"] == 18


def test_one_pass_takes_each_row_once(encoder: Path, tmp_path: Path) -> None:
    made = objective_of(kinds_recipe(tmp_path, encoder, *THREE, training__schedule="mixed"))
    rows = [made.schedule.rows_at(step) for step in range(8)]
    for step in rows:
        assert step["topic"] == step["price"] == step["moods"]
    taken = [place.row for step in rows for place in step["topic"]]
    assert len(set(taken[:60])) == min(60, len(taken)) and np.all(np.array(taken) < 60)


def test_a_column_that_tasks_read_differently_is_tokenised_for_each(
    encoder: Path, tmp_path: Path
) -> None:
    """A JSON list is words to a tagging and a text to a classification."""
    recipe = kinds_recipe(tmp_path, encoder, "spans", "topic")
    for name in ("train", "dev"):
        path = tmp_path / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row | {"text": row["text"].split()} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = objective_of(recipe)
    assert made.data["spans"].tokens is not made.data["topic"].tokens
    batch = made.make_batch(0)
    assert {segment.tasks for segment in batch.segments} == {("spans",), ("topic",)}


def test_tasks_on_one_file_are_split_alike(encoder: Path, tmp_path: Path) -> None:
    """Also a task that reads one more text; different shares would part the tasks of a row."""
    recipe = kinds_recipe(tmp_path, encoder, "topic", "closeness")

    def split(**shares: float) -> Recipe:
        given = {n: {"validation": None, "split": share} for n, share in shares.items()}
        tasks = {n: entry.model_copy(update=given[n]) for n, entry in recipe.tasks.items()}
        return recipe.model_copy(update={"tasks": tasks})

    splits = read_dataset(split(topic=0.3, closeness=0.3)).splits.values()
    sides = [{row.where for row in own["validation"].rows} for own in splits]
    assert sides[0] == sides[1] and 15 <= len(sides[0]) <= 21
    with pytest.raises(DataError, match=r"topic, closeness read the same .* different `split`"):
        read_dataset(split(topic=0.3, closeness=0.2))
