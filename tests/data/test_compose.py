"""From options to a recipe: later options override earlier ones, and every recipe is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.data.compose import compose_recipe
from mops.errors import MopsError, RecipeError
from mops.yaml_io import format_yaml

ENTRY = {"type": "classification", "text": "sentence", "label": "label", "train": "train.csv"}


def write_recipe(folder: Path, **rest: object) -> Path:
    path = folder / "mops.yaml"
    path.write_text(format_yaml({"tasks": {"a": ENTRY, "b": ENTRY}, **rest}), "utf-8")
    return path


def test_null_unsets_a_key(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, training={"max_steps": 5})
    assert compose_recipe(config=path).training.max_steps == 5
    assert compose_recipe(config=path, set={"training.max_steps": None}).training.max_steps is None


def test_an_empty_mapping_can_be_set_into(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    path.write_text(path.read_text("utf-8") + "training:\n", "utf-8")
    assert compose_recipe(config=path, seed=3).training.seed == 3


def test_files_are_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a recipe file relative to it, in an option relative to the working folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = compose_recipe(config=write_recipe(tmp_path), set={"tasks.b.train": "new.csv"})
    assert found.tasks["a"].train == str(tmp_path / "train.csv")
    assert found.tasks["b"].train == str(tmp_path / "elsewhere" / "new.csv")


def test_settings_of_tasks_that_are_not_chosen_are_forgotten(tmp_path: Path) -> None:
    training = {
        "loss_weights": {"a": 2, "b": 3},
        "per_task_batch_size": {"a": 4, "b": 5},
        "head": {"a": "mlp", "b": "linear"},
        "task_steps": {"a": 6, "b": 7},
        "train_tasks": ["a", "b"],
        "stages": [{"steps": 1, "tasks": ["b", "a"]}, {"steps": 2}],
        "augment": {"word_dropout": 0.1, "swap": ["b"]},
    }
    found = compose_recipe(config=write_recipe(tmp_path, training=training), tasks=["a"])
    assert found.training.loss_weights == {"a": 2}
    assert found.training.batch_size("a") == 4
    assert found.training.task_steps == {"a": 6}
    assert found.training.train_tasks == found.training.stages[0].tasks == ("a",)
    assert found.training.augment is not None and found.training.augment.swap == ()
    with pytest.raises(RecipeError, match="names 'c'"):
        compose_recipe(
            config=write_recipe(tmp_path, training={}), set={"training.loss_weights.c": 1}
        )


def test_optional_tasks_join_when_named(tmp_path: Path) -> None:
    path = tmp_path / "mops.yaml"
    entries = {"a": ENTRY, "b": {**ENTRY, "optional": True}}
    path.write_text(format_yaml({"tasks": entries}), "utf-8")
    assert list(compose_recipe(config=path).tasks) == ["a"]
    assert list(compose_recipe(config=path, tasks=["b"]).tasks) == ["b"]


def test_sample_is_the_embedded_data_even_beside_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample").mkdir()
    monkeypatch.chdir(tmp_path)
    assert list(compose_recipe(data="sample").tasks) == ["sentiment", "paraphrase", "similarity"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("training.learning_rate", float("inf"), "learning_rate"),
        ("training.seed", 10**30, "seed"),
        ("training.max_steps", True, "max_steps"),
        ("learning_rate", 0.1, "It is a key of training"),
        ("training.per_task_batch_size", 0, "training.per_task_batch_size must be "),
    ],
)
def test_values_that_would_fail_later_are_refused_now(key: str, value: object, words: str) -> None:
    with pytest.raises(MopsError) as caught:
        compose_recipe(data="sample", set={key: value})
    assert words in str(caught.value) and "constrained" not in str(caught.value)


def test_named_recipes_are_complete_and_under_the_file(tmp_path: Path) -> None:
    named = {name: compose_recipe(data="sample", recipe=name) for name in ("fast", "good", "best")}
    epochs = [recipe.training.num_train_epochs for recipe in named.values()]
    assert epochs == sorted(set(epochs))  # each takes longer than the one before
    assert compose_recipe(data="sample", recipe="plain") == compose_recipe(data="sample")
    path = write_recipe(tmp_path, training={"learning_rate": 0.5})
    found = compose_recipe(config=path, recipe="good", set={"training.warmup_steps": 3}).training
    assert (found.learning_rate, found.warmup_steps) == (0.5, 3)
    assert found.schedule == named["good"].training.schedule
    with pytest.raises(RecipeError, match=r"no recipe 'beast'; there are .*Did you mean 'best'"):
        compose_recipe(data="sample", recipe="beast")


def test_more_training_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_recipe(tmp_path)
    more = [("a", "x.csv", 0.5), ("a", "y.csv", 2.0)]
    found = compose_recipe(config=path, more_train=more).tasks
    weights = {"train.csv": 1, "x.csv": 0.5, "y.csv": 2}
    assert found["a"].train_files == {str(tmp_path / name): w for name, w in weights.items()}
    assert found["b"].train == str(tmp_path / "train.csv")
    with pytest.raises(RecipeError, match=r"no task 'c' for x\.csv"):
        compose_recipe(config=path, more_train=[("c", "x.csv", 1.0)])
