"""Runs in every order, with budgets of tasks, on some tasks only, and on changed rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mops
from building import WORDS
from mops.data.batches import make_batch
from mops.data.samplers import SAMPLERS
from mops.training.prepare import build_trainer, prepare
from mops.training.run import Run, begin_folder
from mops.training.step import compute_losses
from mops.training.tracking import Watcher
from mops.training.trainer import Trainer
from running import TRAIN_ROWS, world, write_toy_data

NAMES = ("sentiment", "paraphrase", "similarity")
LEARN = {
    "training__max_steps": 36,
    "training__learning_rate": 2e-3,
    "training__dropout": 0.0,
    "training__head_dropout": 0.0,
}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    world()
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


@pytest.fixture
def run_with(tmp_path: Path) -> Any:
    def run(plan: Any = "shared", name: str = "run", **settings: Any) -> Run:
        return mops.train(world().recipe(plan, **settings), tmp_path / name)

    return run


def trainer_of(folder: Path, **settings: Any) -> Trainer:
    """The trainer of a run, before its first step."""
    ready = prepare(world().recipe("shared", **settings), lambda _: None)
    begin_folder(folder, ready.recipe)
    return build_trainer(folder, ready)


def facts_of(run: Run, key: str) -> dict[str, Any]:
    return {name: getattr(facts, key) for name, facts in run.record.train_info.tasks.items()}


# ------------------------------------------------------------------ every order


@pytest.mark.parametrize("order", SAMPLERS)
def test_every_order_lowers_the_loss_of_a_fixed_batch(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(tmp_path / "run", training__schedule=order, **LEARN)
    monkeypatch.setattr(Trainer, "evaluate", lambda *given: None)
    fixed = make_batch(trainer.objective.data, {name: range(12) for name in NAMES})

    def loss() -> float:
        losses = compute_losses(trainer.network.eval(), fixed)
        return sum(float(value.detach()) for value in losses.values())

    before = loss()
    trainer.run(Watcher())
    assert loss() < 0.9 * before
    assert trainer.state.step == 36


@pytest.mark.parametrize("order", ["round-robin", "mixed", "staggered"])
def test_realised_numbers_are_in_the_record(run_with: Any, order: str) -> None:
    run = run_with(training__schedule=order, training__max_steps=18)
    seen = facts_of(run, "examples")
    assert facts_of(run, "batches") == facts_of(run, "planned_batches")
    total = {"round-robin": 18 * 4, "mixed": 18 * 12, "staggered": 18 * 4}
    assert sum(seen.values()) == total[order]
    for name, passes in facts_of(run, "passes").items():
        assert passes == pytest.approx(seen[name] / TRAIN_ROWS[name])
    assert [vars(stage) for stage in run.record.train_info.stages] == [
        {"steps": 18, "planned_steps": 18, "frozen": False, "schedule": order}
    ]


def test_the_loss_of_a_mixed_batch_counts_every_row_the_same(tmp_path: Path) -> None:
    """The sum over rows by the batch size of 4: the mean over rows times the three tasks."""
    trainer = trainer_of(tmp_path / "run", training__schedule="mixed", training__dropout=0.0,
                   training__head_dropout=0.0)  # fmt: skip
    counts, batch = trainer.schedule.steps[0], trainer.objective.make_batch(0)
    losses = compute_losses(trainer.network, batch)
    expected = sum(float(losses[task].detach()) * rows for task, rows in counts.items()) / 4
    trainer.note_step(trainer.take_step(batch))
    line = json.loads((tmp_path / "run" / "curve.jsonl").read_text().splitlines()[0])
    assert line["loss"] == pytest.approx(expected, rel=1e-5)


def test_doubts_are_told_before_the_first_step_and_recorded(tmp_path: Path) -> None:
    class Listening(Watcher):
        told: list[Any] = []

        def planned(self, tasks: Any, doubts: Any) -> None:
            self.told.append((tasks, doubts))

        def step(self, step: int, facts: object) -> None:
            self.told.append(step)

    watcher = Listening()
    recipe = world().recipe(training__max_steps=2, training__task_steps={"similarity": 1})
    run = mops.train(recipe, tmp_path / "run", watcher)
    (tasks, doubts), *steps = watcher.told
    assert steps == [1, 2]
    assert tasks["sentiment"].passes == pytest.approx(8 / 60)
    assert [doubt.split(",")[0] for doubt in doubts] == [
        "sentiment: only 2 batches planned",
        "paraphrase: only 2 batches planned",
        "similarity: only 1 batch planned",
    ]
    assert set(doubts) <= set(run.record.warnings)


# ------------------------------------------------------------------ budgets of tasks, some tasks


def test_a_task_that_spent_its_budget_is_left_out(run_with: Any) -> None:
    run = run_with(training__task_steps={"similarity": 3})
    assert facts_of(run, "batches") == {"sentiment": 8, "paraphrase": 8, "similarity": 3}
    assert run.scores.untrained == ()


@pytest.mark.parametrize("order", ["together", "mixed", "annealed", "staggered"])
def test_a_network_of_three_tasks_trained_on_one(run_with: Any, order: str) -> None:
    run = run_with(
        "hybrid:1", training__schedule=order, training__train_tasks=["paraphrase"],
        training__eval_steps=2,
    )  # fmt: skip
    assert facts_of(run, "batches") == {"sentiment": 0, "paraphrase": 8, "similarity": 0}
    assert run.scores.untrained == ("sentiment", "similarity")
    assert "sentiment: no training step was taken for it" in run.record.warnings
    assert not any("planned" in warning for warning in run.record.warnings)
    alone = run.scores.tasks["paraphrase"]
    assert run.scores.overall["report"]["overall"] == alone["report"]["accuracy"]
    assert set(run.scores.tasks["sentiment"]) >= {"report", "validation"}
    lines = map(json.loads, (run.folder / "curve.jsonl").read_text().splitlines())
    judged = [(line["overall"], line["selection"]) for line in lines if "selection" in line]
    assert all(overall == of["paraphrase"]["accuracy"] for overall, of in judged)
    assert run.record.train_info.best_score == max(overall for overall, _ in judged)


@pytest.mark.parametrize("plan", ["shared", "hybrid:1", "late:SI", "frozen+late:I", "layers:FSI"])
def test_one_task_alone(plan: str, tmp_path: Path) -> None:
    made = world()
    settings = {"training.max_steps": 3, "training.max_length": 32, "training.threads": 1}
    recipe = mops.recipe(
        data=made.data, encoder=str(made.encoder), plan=plan, tasks=["sentiment"], set=settings
    )
    run = mops.train(recipe, tmp_path / "run")
    assert list(run.scores.tasks) == ["sentiment"] and run.scores.untrained == ()
    answers = mops.load(run.folder / "model").predict("sentiment", ["ban dat", "gon"])
    assert all(answer in "01234" for answer in answers)


# ------------------------------------------------------------------ long texts of a fourth task


def write_movies(folder: Path) -> Path:
    """Beside the three tasks a set of long texts in two classes, in the files of the course."""
    write_toy_data(folder)
    for split, count in (("train", 24), ("dev", 12), ("test-student", 4)):
        is_test = split == "test-student"
        lines = ["\tid\tsentence" + ("" if is_test else "\tsentiment")]
        for n in range(count):
            text = " ".join(WORDS[(n * 7 + i * (1 + n % 2)) % len(WORDS)] for i in range(90))
            lines.append(f"{n}\tm{split}{n}\t{text}" + ("" if is_test else f"\t{n % 2}"))
        (folder / f"ids-cfimdb-{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("tasks", [["movies"], [*NAMES, "movies"]])
def test_movies_alone_and_with_the_others(tasks: list[str], tmp_path: Path) -> None:
    data = write_movies(tmp_path / "data")
    settings = {"training.max_steps": 3, "training.max_length": 64, "training.threads": 1,
                "training.per_task_batch_size": 4}  # fmt: skip
    encoder = str(world().encoder)
    recipe = mops.recipe(data=data, encoder=encoder, tasks=tasks, set=settings)
    run = mops.train(recipe, tmp_path / "run")
    assert list(run.scores.tasks) == tasks
    assert run.scores.tasks["movies"]["validation"]["rows"] == 12
    assert len((run.folder / "predictions" / "movies-test.csv").read_text().splitlines()) == 5
    assert "movies" not in mops.recipe(data=data, encoder=encoder).tasks


# ------------------------------------------------------------------ changed rows


def test_only_training_rows_are_changed(run_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At rates of nearly nothing the augmented run and the plain one give the same answers on all
    that is scored, and learn from different rows."""
    still = {"training__learning_rate": 1e-30, "training__head_learning_rate": 1e-30}
    augment = {"word_dropout": 0.5, "swap": ["similarity"]}
    plain = run_with(**still)
    changed = run_with(name="changed", training__augment=augment, **still)
    assert changed.scores == plain.scores
    for file in (plain.folder / "predictions").iterdir():
        assert (changed.folder / "predictions" / file.name).read_bytes() == file.read_bytes()
    first = [json.loads((r.folder / "curve.jsonl").read_text().splitlines()[0])["losses"]
             for r in (plain, changed)]  # fmt: skip
    assert all(first[0][task] != first[1][task] for task in ("sentiment", "paraphrase"))
    info = [r.record.train_info for r in (plain, changed)]
    assert info[1].tokens < 0.8 * info[0].tokens
    recorded = changed.record.run_info.recipe["training"]["augment"]
    assert recorded == {"word_dropout": 0.5, "swap": ["similarity"]}
