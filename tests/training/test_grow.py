"""A task joins a trained model: the others answer as before, bit by bit, and it learns."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from same_runs import assert_same_model

import mops
from building import ENTRIES, build_network, shake, tiny_tokenizer
from mops.data.batches import tokenise
from mops.errors import MopsError, UsageError
from mops.files import file_digest
from mops.model.sources import find_encoder
from mops.plans.shapes import Reading
from mops.predict.bundle import load_bundle, save_bundle
from mops.predict.inference import compute_outputs
from mops.training.grow import growth_recipe, lay_out_growth, prepare_growth
from mops.training.prepare import build_trainer
from running import QUICK, StopAt, world

OLD_PLANS = (
    "shared", "hybrid:1", "late:ISS", "late:ISS/paraphrase+similarity", "pals:parallel",
    "pals:both-different", "lora:8", "separate", "progressive",
)  # fmt: skip
WAYS = (None, "shared", "lora:2", "adapters:4", "hybrid:1", "pals:top")
TEXTS = ["ban bat", "bet the den", "fit", "a gun bully gon ban ban ban"]
PAIRS = [("ban bat", "bet"), ("den", "a fit ."), ("gun gon", "gun gon"), ("fat", "bat bat bat")]
OLD = {"sentiment": TEXTS, "paraphrase": PAIRS, "similarity": PAIRS}


def save_base(folder: Path, plan: str, reading: Reading | None = None) -> Path:
    """A bundle with three tasks and weights that no training would give."""
    source = find_encoder(str(world().encoder))
    network = build_network(plan, world().encoder, reading=reading or Reading(max_length=32))
    for n, module in enumerate(network.bank.values()):
        shake(module, seed=n)
    facts = {"encoder_name": source.name, "encoder_sha256": source.digest,
             "scores": {"sentiment": {"report": {"accuracy": 0.5, "stderr": 0.1, "rows": 20}}},
             "main_scores": {"sentiment": "accuracy"}}  # fmt: skip
    save_bundle(folder, network, tiny_tokenizer(), ENTRIES, facts)
    return folder


def new_recipe(plan: Any = None, name: str = "vowel", **settings: Any) -> mops.Recipe:
    """A recipe with one new task, on the files of sentiment."""
    entry = world().recipe().tasks["sentiment"].model_copy(update={"labels": ()})
    given = {key: value for key, value in QUICK.items() if key != "training.max_length"}
    given |= {"training.max_steps": 4, "training.head_learning_rate": 0.01}
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    given[f"tasks.{name}"] = entry.model_dump(mode="json", exclude_none=True)
    return mops.recipe(data=world().data, tasks=[name], plan=plan, set=given)


def recipe_file(folder: Path, name: str = "vowel", **settings: Any) -> Path:
    path = folder / "new.yaml"
    recipe = new_recipe(name=name, **settings)
    keys = {k.removeprefix("training."): v for k, v in QUICK.items() if k != "training.max_length"}
    data = {"tasks": recipe.to_data()["tasks"], "training": keys}
    path.write_text(json.dumps(data))
    return path


def raw_outputs(folder: Path, rows: dict[str, Any]) -> dict[str, np.ndarray]:
    bundle = load_bundle(folder)
    tables = {
        task: tokenise(bundle.tokenizer, [(r,) if isinstance(r, str) else r for r in own],
                       bundle.layout.reading.of(task))
        for task, own in rows.items()
    }  # fmt: skip
    return compute_outputs(bundle.network, tables)


@cache
def base(plan: str) -> Path:
    return save_base(world().run.parent / "bases" / plan.replace(":", "-").replace("/", "-"), plan)


def assert_old_answers_stay(before: Path, after: Path) -> None:
    """Bytes of the raw outputs: alone, and beside rows of the new task in the same pass."""
    expected = raw_outputs(before, OLD)
    for rows in (OLD, OLD | {"vowel": TEXTS}):
        ours = raw_outputs(after, rows)
        for task, outputs in expected.items():
            assert ours[task].tobytes() == outputs.tobytes(), task


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("plan", OLD_PLANS)
def test_the_old_tasks_answer_as_before(plan: str, way: str | None, tmp_path: Path) -> None:
    recipe = growth_recipe(base(plan), new_recipe(way))
    run = mops.train(recipe, tmp_path / "run")
    assert_old_answers_stay(base(plan), run.folder / "model")
    old, new = load_bundle(base(plan)), load_bundle(run.folder / "model")
    assert list(new.layout.tasks) == [*ENTRIES, "vowel"]
    for owner, module in old.network.bank.items():
        for name, weight in module.state_dict().items():
            assert torch.equal(new.network.bank[owner].state_dict()[name], weight), owner
    # Something of its own learned: the head at least moved away from its start.
    own = set(new.layout.sizes) - set(old.layout.sizes)
    assert own == {owner for owner, rate in new.layout.rates.items() if rate}
    assert "head/vowel" in own


@pytest.mark.parametrize(
    ("plan", "way", "expected"),
    [
        ("shared", None, {"head/vowel"}),
        ("hybrid:1", "shared", {"head/vowel"}),
        ("hybrid:1", None, {f"{p}/layer0{n}/vowel" for n in (1, 2)
                            for p in ("attention", "feedforward", "norms")} | {"head/vowel"}),
        ("late:ISS", None, {"late1/vowel", "head/vowel"}),
        ("separate", "hybrid:2", {f"{p}/layer02/vowel"
                                  for p in ("attention", "feedforward", "norms")} | {"head/vowel"}),
        ("pals:parallel", "lora:2", {f"lora_{p}/layer0{n}/vowel" for n in range(3)
                                     for p in ("down", "up")} | {"head/vowel"}),
    ],
)  # fmt: skip
def test_what_the_new_task_has_for_itself(plan: str, way: Any, expected: set[str]) -> None:
    recipe = growth_recipe(base(plan), new_recipe(way))
    old = load_bundle(base(plan)).layout
    layout = lay_out_growth(load_bundle(base(plan)), recipe, recipe.task_values())
    assert set(layout.sizes) - set(old.sizes) == expected
    assert {owner for owner, rate in layout.rates.items() if rate} == expected


@pytest.mark.parametrize("like", ["sentiment", "similarity"])
def test_copies_start_as_those_of_the_task_it_is_like(like: str, tmp_path: Path) -> None:
    """Before the first step the upper layers are copies, so a copied head gives equal answers."""
    recipe = growth_recipe(base("hybrid:1"), new_recipe("hybrid:1"), like)
    trainer = build_trainer(tmp_path, prepare_growth(recipe, lambda _: None))
    bank = trainer.network.bank
    for part in ("attention", "feedforward", "norms"):
        mine, theirs = (bank[f"{part}/layer02/{task}"].state_dict() for task in ("vowel", like))
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("way", [None, "lora:2", "hybrid:2"])
def test_the_new_task_learns(way: str | None, tmp_path: Path) -> None:
    settings = {"training__max_steps": 60, "training__eval_steps": 60,
                "training__learning_rate": 3e-3, "training__head_learning_rate": 0.03}  # fmt: skip
    run = mops.train(growth_recipe(base("shared"), new_recipe(way, **settings)), tmp_path / "run")
    lines = [json.loads(line) for line in (run.folder / "curve.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    assert run.scores.tasks["vowel"]["train"]["accuracy"] > 0.3  # five classes
    assert_old_answers_stay(base("shared"), run.folder / "model")


def test_a_frozen_prefix_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    settings = {"training__max_steps": 40}
    recipe = growth_recipe(base("shared"), new_recipe("shared", **settings))
    info = mops.train(recipe, tmp_path / "run").record.train_info
    rows = 60 + 20  # training and validation rows, however often they are used
    assert 0 < info.frozen_sequences["computed"] <= rows


def test_the_record_and_the_card(tmp_path: Path) -> None:
    run = mops.train(growth_recipe(base("shared"), new_recipe()), tmp_path / "run")
    digest = file_digest(base("shared") / "model.safetensors")
    assert run.record.meta_info.base_sha256 == digest
    assert run.record.run_info.recipe["base"] == str(base("shared").resolve())
    assert run.record.run_info.tasks == ("vowel",)
    config = json.loads((run.folder / "model" / "config.json").read_text())
    assert config["base_sha256"] == digest
    assert set(config["scores"]) == {"sentiment", "vowel"}  # what is known of the old ones stays
    assert "0.500 (0.304 to 0.696)" in (run.folder / "model" / "README.md").read_text()
    # The recipe of the run repeats it.
    again = mops.recipe(config=run.folder / "recipe.yaml")
    assert_same_model(mops.train(again, tmp_path / "again").folder, run.folder)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    settings = {"training__max_steps": 6, "training__save_steps": 2, "training__eval_steps": 3}
    recipe = growth_recipe(base("hybrid:1"), new_recipe("lora:2", **settings))
    whole = mops.train(recipe, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "cut", StopAt(5))
    assert_same_model(mops.train(recipe, tmp_path / "cut").folder, whole.folder)
    assert mops.train(recipe, tmp_path / "cut").was_finished


def test_a_base_that_changed_is_refused(tmp_path: Path) -> None:
    folder = save_base(tmp_path / "base", "shared")
    recipe = growth_recipe(folder, new_recipe())
    mops.train(recipe, tmp_path / "run")
    save_base(folder, "shared", Reading(max_length=32, pool="cls"))
    network = build_network("shared", reading=Reading(max_length=32), seed=3,
                            shape=load_bundle(folder).layout.encoder)  # fmt: skip
    facts = dict(load_bundle(folder).config)
    save_bundle(folder, network, tiny_tokenizer(), ENTRIES,
                {key: facts[key] for key in ("encoder_name", "encoder_sha256")})  # fmt: skip
    with pytest.raises(UsageError, match="have changed since"):
        mops.train(recipe, tmp_path / "run")


def test_one_after_the_other(tmp_path: Path) -> None:
    """A third generation: everything that was there stays, also what joined before."""
    first = mops.train(growth_recipe(base("hybrid:1"), new_recipe("lora:2")), tmp_path / "one")
    grown = first.folder / "model"
    for way, like in (("lora:4", "vowel"), (None, "vowel"), ("hybrid:2", None)):
        out = tmp_path / f"two-{way}"
        mops.train(growth_recipe(grown, new_recipe(way, name="third"), like), out)
        rows = OLD | {"vowel": TEXTS}
        before, after = raw_outputs(grown, rows), raw_outputs(out / "model", rows)
        assert all(after[task].tobytes() == before[task].tobytes() for task in rows), way


def test_two_tasks_at_a_time(tmp_path: Path) -> None:
    recipe = new_recipe("hybrid:1")
    two = recipe.model_copy(update={"tasks": recipe.tasks | {"other": recipe.tasks["vowel"]}})
    run = mops.train(growth_recipe(base("shared"), two), tmp_path / "run")
    assert_old_answers_stay(base("shared"), run.folder / "model")
    owners = load_bundle(run.folder / "model").layout.sizes
    assert {"attention/layer02/vowel", "attention/layer02/other"} <= set(owners)


# ------------------------------------------------------------------ wrong use


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training__pair": "bi"}, "training.pair is 'bi', the model's is 'cross'"),
        ({"training__pool": "cls"}, "training.pool"),
        ({"training__max_length": 16}, "training.max_length is 16, the model's is 32"),
        ({"encoder": "minilm"}, "encoder is 'minilm'"),
        ({"name": "sentiment"}, "tasks.sentiment"),
        ({"plan": "late:I"}, "late layers"),
        ({"plan": "soft:0.1"}, "pull"),
        ({"plan": "progressive:vowel>sentiment"}, "feed into 'sentiment'"),
        ({"plan": "layers:SSSSI"}, "written for 5 layers"),
    ],
)
def test_wrong_use_names_the_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(MopsError) as refused:
        growth_recipe(base("shared"), new_recipe(**change))
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_an_equal_setting_is_no_contradiction() -> None:
    same = {"training__pair": "cross", "training__max_length": 32, "training__pool": "mean"}
    growth_recipe(base("shared"), new_recipe(encoder=str(world().encoder), **same))


def test_an_unknown_task_to_be_like() -> None:
    with pytest.raises(UsageError, match="Did you mean 'sentiment'"):
        growth_recipe(base("shared"), new_recipe(), "sentimnt")


def test_a_plan_that_lets_old_weights_learn_is_refused(tmp_path: Path) -> None:
    recipe = growth_recipe(base("shared"), new_recipe())
    assert isinstance(recipe.plan, dict)
    thawed = recipe.model_copy(update={"plan": recipe.plan | {"frozen": ["sentiment"]}})
    # What only the others pass would learn; with `shared` that is their heads.
    with pytest.raises(UsageError, match="name all its tasks under `frozen`"):
        mops.train(thawed, tmp_path / "run")


def test_other_commands_say_who_can_use_such_a_recipe() -> None:
    recipe = growth_recipe(base("shared"), new_recipe())
    with pytest.raises(UsageError, match="mops add-task"):
        mops.train_many([recipe], [Path("nowhere")])
