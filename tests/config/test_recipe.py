"""Recipes: what a user may write, what is refused in one line, and that nothing is lost."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mops.config.recipe import FORMER, Recipe, differing_key, to_recipe
from mops.config.training import Augment, Stage, TaskEntry, Training
from mops.data import compose
from mops.data.compose import compose_recipe, relative_to, set_key
from mops.errors import RecipeError, UsageError
from mops.plans.shapes import HeadShape
from mops.yaml_io import parse_yaml

YAML = """
encoder: minilm
tasks:
  sentiment:
    type: classification
    text: sentence
    label: label
    labels: [0, 1, 2.0, "3.0", 4]
    train: train.csv
    split: 0.1
  paraphrase:
    type: pair_classification
    text: [one, two]
    label: same
    labels: [no, yes]
    class_weights: [1, 2.5]
    train: hub:glue/qqp
  similarity:
    type: similarity
    text: [one, two]
    label: score
    range: [0, 5]
    train: /data/sts.csv
plan: hybrid:3
training:
  pair: bi
  learning_rate: 1e-3
  adam_epsilon: 1E-8
  max_steps: 7
"""


def data() -> dict[str, Any]:
    found: dict[str, Any] = parse_yaml(YAML)
    return found


def with_training(**values: Any) -> Recipe:
    changed = data()
    changed["training"] |= values
    return to_recipe(changed)


def refusal(change: Any = None, **training: Any) -> str:
    changed = data()
    changed["training"] |= training
    if change:
        change(changed)
    with pytest.raises(UsageError) as caught:
        to_recipe(changed, where="mops.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------ reading


def test_numbers_without_a_point_are_numbers() -> None:
    training = to_recipe(data()).training
    assert (training.learning_rate, training.adam_epsilon) == (0.001, 1e-8)
    assert data()["training"]["learning_rate"] == 0.001


def test_labels_have_one_spelling() -> None:
    tasks = to_recipe(data()).task_values()
    assert tasks["sentiment"].labels == ("0", "1", "2", "3", "4")
    assert tasks["paraphrase"].labels == ("no", "yes")  # YAML 1.2: these are words
    assert tasks["paraphrase"].class_weights == (1.0, 2.5)


def test_labels_true_and_false_are_what_the_file_says() -> None:
    changed = data()
    changed["tasks"]["paraphrase"]["labels"] = parse_yaml("[false, true]")
    assert to_recipe(changed).task_values()["paraphrase"].labels == ("false", "true")


def test_a_resolved_recipe_is_equal_after_yaml() -> None:
    """Recipe -> YAML -> Recipe, and its data does not change either."""
    for plan in ("frozen+late:SIS", {"name": "x", "late": [{"per": ["task"], "width": 3}]}):
        changed = data() | {"plan": plan}
        changed["training"] |= {"head": {"sentiment": {"kind": "mlp", "depth": 2}}}
        recipe = to_recipe(changed)
        again = to_recipe(parse_yaml(recipe.to_yaml()))
        assert again == recipe
        assert differing_key(again.to_data(), recipe.to_data()) == ""
        assert again.sharing_plan() == recipe.sharing_plan()


# ------------------------------------------------------------------ keys

WRONG = (None, ["x", 3], [[1]], {"x": 1}, {}, [], "zzz", "", -1, -0.5, True, math.inf, {"a": None})
OWN_WORDS = re.compile(
    r"tuple|dictionary|dict\b|instance|\bNone\b|[Ii]nput|should|valid (string|integer|boolean)|"
    r"Error|Training\b|TaskEntry|HeadShape|Stage\b|Augment\b|parse|\w+\[|\n"
)


def keys() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each key of a recipe, and where it is set."""
    places = {"": Recipe, "training.": Training, "training.augment.": Augment}
    places |= {"tasks.sentiment.": TaskEntry, "tasks.similarity.": TaskEntry}
    for prefix, kind in places.items():
        yield from ((f"{prefix}{name}", {}) for name in kind.model_fields)
    yield "tasks.sentiment", {}
    yield from ((name, {"training.stages": [{"steps": 3}]}) for name in Stage.model_fields)
    heads = (field.name for field in fields(HeadShape))
    yield from ((name, {"training.head": {"kind": "mlp"}}) for name in heads)


@pytest.mark.parametrize(("key", "around"), [*keys()])
def test_a_wrong_value_is_refused_in_words_of_a_recipe(
    key: str, around: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the key and what was found; no word of the program's inside."""
    monkeypatch.setattr(compose, "tasks_in", lambda _: copy.deepcopy(data()["tasks"]))
    for value in WRONG:
        settings = copy.deepcopy(around) or {key: value}
        for own in around.values():
            inner = settings[next(iter(around))]
            (inner[0] if isinstance(own, list) else inner)[key] = value
        try:
            compose_recipe(data="sample", set=settings)
        except UsageError as error:
            message = str(error)
            assert key.rpartition(".")[2] in message, message
            told = re.split("; found|; known are", message)[0]
            assert not OWN_WORDS.search(told), message
            if value is None:
                assert "found null" in message or "needs" in message or "no tasks" in message


def test_a_wrong_value_names_all_that_is_allowed() -> None:
    for training, words in (
        ({"per_task_batch_size": "x"}, "must be a whole number or a mapping of keys to values; "),
        ({"report_to": 3}, "must be 'none', 'tensorboard', 'mlflow' or 'wandb' or a list; found 3"),
        (
            {"loss_weights": {"sentiment": "x"}},
            "loss_weights.sentiment must be a number; found 'x'",
        ),
        ({"head": {"sentiment": -2}}, "training.head.sentiment must be a mapping of keys"),
        ({"learning_rate": 0}, "training.learning_rate must be a number above 0; found 0"),
        ({"bf16": "x"}, "must be true or false or 'auto'; found 'x'"),
    ):
        assert words in refusal(**training)
    assert "a-task.label is missing" in refusal(
        lambda d: d["tasks"].update({"a-task": {"type": "classification", "text": "x"}})
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: d["training"].update(learnin_rate=1),
            "unknown key 'training.learnin_rate'.",
        ),
        (lambda d: d.update(encodr="x"), "unknown key 'encodr'. Did you mean 'encoder'?"),
        (
            lambda d: d["tasks"]["sentiment"].update(txt="x"),
            "unknown key 'tasks.sentiment.txt'. Did you mean 'text'?",
        ),
        (lambda d: d["training"].update(zzz=1), "unknown key 'training.zzz'."),
        (lambda d: d["training"].update(learning_rate=-1), "training.learning_rate must be "),
        (
            lambda d: d["training"].update(pair="both"),
            "'cross' or 'bi' or a mapping of keys to values; found 'both'",
        ),
        (lambda d: d["training"].update(dropout=1.0), "training.dropout"),
        (lambda d: d["training"].update(features=[]), "training.features must be "),
        (
            lambda d: d["training"].update(features=["max"]),
            "'difference'; found 'max'",
        ),
        (lambda d: d["training"].update(loss_weights={"x": 1}), "names 'x'; the tasks are"),
        (lambda d: d.update(tasks={}), "no tasks"),
        (lambda d: d.pop("tasks"), "mops.yaml: tasks is missing"),
        (lambda d: d.update(plan="hybird:3"), "Did you mean 'hybrid'?"),
        (lambda d: d.update(plan={"nam": "x"}), "'nam'. Did you mean 'name'?"),
        (lambda d: d["tasks"]["sentiment"].update(label="sentence"), "is also an input"),
        (lambda d: d["tasks"]["sentiment"].update(type="class"), "allowed: classification"),
        (lambda d: d["tasks"]["sentiment"].update(split=1.5), "tasks.sentiment.split"),
    ],
)
def test_refused_in_one_line(change: Any, words: str) -> None:
    assert words in refusal(change)


@pytest.mark.parametrize("key", FORMER)
def test_former_spellings_name_the_new_one(key: str) -> None:
    message = refusal(**{key: 1})
    assert f"training.{key} is written {FORMER[key]}" in message


def test_former_spellings_point_to_keys_that_exist() -> None:
    for key, advice in FORMER.items():
        word = advice.split()[0]
        is_known = word in Training.model_fields or word in Recipe.model_fields
        assert is_known or word.startswith("--"), key
        assert key not in Training.model_fields


# ------------------------------------------------------------------ per task


def heads(head: Any, pair: str = "bi") -> dict[str, HeadShape]:
    recipe = with_training(head=head, pair=pair)
    return dict(recipe.training.reading(recipe.task_values()).heads)


def test_heads_for_all_or_per_task() -> None:
    assert set(heads("mlp").values()) == {HeadShape(kind="mlp")}
    assert set(heads({"kind": "mlp", "depth": 3}).values()) == {HeadShape(kind="mlp", depth=3)}
    assert heads({"similarity": "cosine", "sentiment": {"kind": "mlp", "width": 9}}) == {
        "sentiment": HeadShape(kind="mlp", width=9),
        "paraphrase": HeadShape(),
        "similarity": HeadShape(kind="cosine"),
    }


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("tree", "training.head: kind must be 'linear', 'mlp' or 'cosine'; found 'tree'"),
        ("cosine", "a cosine head needs a similarity, 'sentiment'"),
        ({"paraphrase": "cosine"}, "'paraphrase' is a pair_classification"),
        ({"kind": "mlp", "dept": 3}, "Did you mean 'depth'?"),
        ({"sentimant": "mlp"}, "sentimant"),
        ({"sentiment": 5}, "training.head"),
        ({"kind": "mlp", "depth": 0}, "at least 1"),
        ({"kind": "mlp", "activation": "swish"}, "'relu', 'gelu' or 'tanh'"),
    ],
)
def test_heads_that_cannot_be(head: Any, words: str) -> None:
    assert words in refusal(head=head)


def test_a_cosine_needs_texts_that_are_read_apart() -> None:
    assert "pair: bi" in refusal(head={"similarity": "cosine"}, pair="cross")
    assert heads({"similarity": "cosine"})["similarity"].kind == "cosine"


def test_batch_sizes() -> None:
    sizes = {"sentiment": 8, "paraphrase": 4, "similarity": 2}
    training = with_training(per_task_batch_size=sizes).training
    assert {task: training.batch_size(task) for task in sizes} == sizes
    assert with_training(per_task_batch_size=5).training.batch_size("paraphrase") == 5
    assert "lacks paraphrase, similarity" in refusal(per_task_batch_size={"sentiment": 8})
    assert "names 'x'" in refusal(per_task_batch_size=sizes | {"x": 1})
    assert "training.per_task_batch_size" in refusal(per_task_batch_size=0)


# ------------------------------------------------------------------ schedules, stages, augmentation


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"schedule": "rondom"}, "found 'rondom'"),
        ({"temperature": 0}, "training.temperature"),
        ({"temperature": 1e-300}, "training.temperature must be a number of at least 0.05"),
        ({"head_dropout": 0.99999999999}, "training.head_dropout must be a number of at most 0.99"),
        ({"dropout": 0.9999}, "training.dropout must be a number of at most 0.99"),
        ({"max_steps": 10**18}, "training.max_steps must be a number of at most 2e+06"),
        ({"max_steps": None, "stages": [{"steps": 10**12}]}, "training.stages.0.steps must be"),
        ({"num_train_epochs": 1e300}, "training.num_train_epochs must be a number of at most"),
        ({"per_task_batch_size": 10**9}, "must be a number of at most 65536"),
        ({"per_task_batch_size": {"similarity": 10**9}}, "per_task_batch_size.similarity must be"),
        ({"task_steps": {"sentimant": 5}}, "task_steps names 'sentimant'; the tasks are sentiment"),
        ({"task_steps": {"sentimant": 5}}, "Did you mean 'sentiment'?"),
        ({"task_steps": {"sentiment": 0}}, "training.task_steps.sentiment"),
        ({"train_tasks": ["x"]}, "training.train_tasks names 'x'"),
        ({"stages": [{"steps": 5}]}, "max_steps is 7 and training.stages has steps of its own"),
        ({"stages": [{"frozen": True}]}, "training.stages.0.steps is missing"),
        ({"stages": [{"steps": 5, "freeze": True}]}, "'training.stages.0.freeze'"),
        ({"max_steps": None, "stages": [{"steps": 1, "tasks": ["x"]}]}, "stages.0.tasks names 'x'"),
        (
            {"max_steps": None, "train_tasks": ["sentiment"],
             "stages": [{"steps": 1}, {"steps": 1, "tasks": ["similarity"]}]},
            "stages.1.tasks names 'similarity', but training.train_tasks has only sentiment",
        ),
        ({"augment": {"word_dropout": 1.0}}, "training.augment.word_dropout"),
        ({"augment": {"swap": ["x"]}}, "augment.swap names 'x'"),
        (
            {"augment": {"swap": ["similarity", "sentiment"]}},
            "swap names 'sentiment', which reads one text; allowed: pair tasks "
            "(paraphrase, similarity)",
        ),
    ],
)  # fmt: skip
def test_schedules_that_cannot_be(training: dict[str, Any], words: str) -> None:
    assert words in refusal(**training)


def test_stages_and_augmentation_are_equal_after_yaml() -> None:
    recipe = with_training(
        max_steps=None, train_tasks=["sentiment", "similarity"], task_steps={"sentiment": 4},
        augment={"word_dropout": 0.1, "swap": ["similarity"]},
        stages=[{"steps": 3, "frozen": True, "learning_rate": 1e-3}, {"steps": 2}],
    )  # fmt: skip
    assert to_recipe(parse_yaml(recipe.to_yaml())) == recipe


def test_a_stage_takes_the_rest_from_training() -> None:
    training = with_training(
        max_steps=None, schedule="sqrt", warmup_steps=0.2,
        stages=[{"steps": 3, "learning_rate": 0.5, "tasks": ["similarity"]}, {"steps": 2}],
    ).training  # fmt: skip
    one, two = map(training.in_stage, training.stages)
    assert (one.learning_rate, one.schedule, one.max_steps) == (0.5, "sqrt", 3)
    assert (two.learning_rate, two.warmup_steps, two.max_steps) == (1e-3, 0.2, 2)
    assert (one.train_tasks, two.train_tasks) == (("similarity",), ())


# ------------------------------------------------------------------ files and differences


def test_relative_files_lie_beside_the_recipe(tmp_path: Path) -> None:
    tasks = relative_to(data(), tmp_path)["tasks"]
    assert tasks["sentiment"]["train"] == str(tmp_path / "train.csv")
    assert tasks["paraphrase"]["train"] == "hub:glue/qqp"
    assert tasks["similarity"]["train"] == "/data/sts.csv"


def test_a_plan_file_lies_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\n", "utf-8")
    found = relative_to(data() | {"plan": "mine.yaml"}, tmp_path)
    assert to_recipe(found).sharing_plan().name == "mine"


def test_differing_key() -> None:
    one = to_recipe(data()).to_data()
    assert differing_key(one, to_recipe(data()).to_data()) == ""
    other = with_training(seed=4).to_data()
    assert differing_key(one, other) == "training.seed: 11711 there, 4 here"
    other = to_recipe(data() | {"plan": "shared"}).to_data()
    assert differing_key(one, other) == "plan: 'hybrid:3' there, 'shared' here"
    del other["plan"]
    assert differing_key(one, other) == "plan: 'hybrid:3' there, None here"
    changed = data()
    changed["tasks"]["sentiment"]["label"] = "y"
    assert "tasks.sentiment.label" in differing_key(one, to_recipe(changed).to_data())


def test_set_key() -> None:
    changed: dict[str, Any] = {"training": {"seed": 1}, "plan": "shared"}
    set_key(changed, "training.seed", 2)
    set_key(changed, "tasks.a.type", "similarity")
    assert changed["training"] == {"seed": 2}
    assert changed["tasks"] == {"a": {"type": "similarity"}}
    with pytest.raises(UsageError, match="'plan' is not a mapping"):
        set_key(changed, "plan.name", "x")


@pytest.mark.parametrize("high", [1e308, math.inf])
def test_a_range_has_bounds(high: float) -> None:
    changed = data()
    changed["tasks"]["similarity"]["range"] = [0, high]
    with pytest.raises(RecipeError, match=r"similarity\.range\.1 must be"):
        to_recipe(changed)


def test_an_encoder_with_a_name_that_no_folder_can_have(tmp_path: Path) -> None:
    named = relative_to({"encoder": "x" * 70_000, "tasks": {}}, tmp_path)["encoder"]
    assert named == "x" * 70_000  # it is looked for elsewhere
