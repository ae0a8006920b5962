"""A run end to end, as a user of the package calls it."""

from __future__ import annotations

import csv
import gc
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics

import mops
from building import LONGEST
from mops.data.compose import compose_recipe
from mops.errors import RecipeError
from mops.model.sources import find_encoder
from mops.plans.layout import lay_out
from mops.yaml_io import read_yaml
from running import TRAIN_ROWS, StopAt, World, world, write_toy_data

NAMES = ("sentiment", "paraphrase", "similarity")
FILES = {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}


@pytest.fixture(scope="module")
def made() -> World:
    return world()


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def inputs(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]


# ------------------------------------------------------------------ what it writes


def test_the_folder_holds_exactly_what_is_promised(made: World) -> None:
    assert {path.name for path in made.run.iterdir()} == {
        "recipe.yaml", "record.json", "curve.jsonl", "predictions", "model",
    }  # fmt: skip
    assert {path.name for path in (made.run / "model").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "plan.yaml", "tasks.yaml",
        "README.md", "manifest.json",
    }  # fmt: skip
    assert {path.name for path in (made.run / "predictions").iterdir()} == {
        f"{name}-{split}.csv" for name in NAMES for split in ("validation", "report", "test")
    }


def test_the_recipe_alone_repeats_the_run(made: World, tmp_path: Path) -> None:
    again = mops.train(compose_recipe(config=made.run / "recipe.yaml"), tmp_path / "again")
    for file in ("model/model.safetensors", "predictions/similarity-validation.csv", "recipe.yaml"):
        assert (tmp_path / "again" / file).read_bytes() == (made.run / file).read_bytes()
    assert again.scores == mops.read_record(made.run / "record.json").scores


def test_the_record_says_what_was_run(made: World) -> None:
    record = mops.read_record(made.run / "record.json")
    info = record.run_info
    assert (info.status, info.plan, info.seed) == ("finished", "hybrid:1", 3)
    assert info.started <= info.finished
    assert info.recipe == read_yaml(made.run / "recipe.yaml")
    assert set(record.meta_info.packages) >= {"mops", "torch"}
    assert len(record.meta_info.data_sha256) == 9
    assert record.meta_info.threads == 1


def test_the_record_counts_what_the_layout_counts(made: World) -> None:
    record, recipe = mops.read_record(made.run / "record.json"), made.recipe()
    tasks = recipe.task_values()
    layout = lay_out(
        recipe.sharing_plan(), list(tasks.values()), find_encoder(recipe.encoder).shape,
        recipe.training.reading(tasks),
    )  # fmt: skip
    costs = record.costs
    assert costs.parameters_by_owner == dict(layout.sizes)
    assert costs.parameters == costs.trained_parameters == layout.parameters
    assert costs.weight_bytes == 4 * layout.parameters
    assert costs.training_state_bytes == 12 * layout.parameters
    files = (made.run / "model").iterdir()
    assert costs.latency_seconds and set(costs.latency_by_task) == set(layout.tasks)
    assert all(seconds > 0 for seconds in costs.latency_by_task.values())
    assert costs.bundle_bytes == sum(file.stat().st_size for file in files)


def test_realised_steps_and_passes_are_the_planned_ones(made: World) -> None:
    info = mops.read_record(made.run / "record.json").train_info
    assert info.steps == info.planned_steps == 8
    assert info.steps_per_epoch == 15  # 60 rows in batches of 4
    assert info.evaluations == 2 and info.best_step in (4, 8)
    for name, rows in TRAIN_ROWS.items():
        facts = info.tasks[name]
        assert facts.rows == rows
        assert facts.batches == facts.planned_batches == 8
        assert facts.examples == 32
        assert facts.passes == pytest.approx(32 / rows)


def test_the_curve_has_the_first_step_and_every_evaluation(made: World) -> None:
    lines = [json.loads(line) for line in (made.run / "curve.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 4, 8]
    assert set(lines[0]["losses"]) == set(NAMES)
    assert lines[0]["loss"] == pytest.approx(sum(lines[0]["losses"].values()), rel=1e-6)
    record = mops.read_record(made.run / "record.json")
    best = next(line for line in lines if line["step"] == record.train_info.best_step)
    assert best["best"] and best["overall"] == record.train_info.best_score
    assert record.scores.overall["validation"]["overall"] == pytest.approx(best["overall"])


# ------------------------------------------------------------------ scores and predictions


def rescore(name: str, rows: list[dict[str, str]]) -> dict[str, float]:
    """By other people's code."""
    if name == "similarity":
        labels = np.array([float(row["label"]) for row in rows])
        values = np.array([float(row["prediction"]) for row in rows])
        return {
            "pearson": stats.pearsonr(labels, values).statistic,
            "spearman": stats.spearmanr(labels, values).statistic,
        }
    labels, values = [row["label"] for row in rows], [row["prediction"] for row in rows]
    return {
        "accuracy": metrics.accuracy_score(labels, values),
        "matthews": metrics.matthews_corrcoef(labels, values),
    }


@pytest.mark.parametrize("name", NAMES)
def test_rescoring_the_predictions_gives_the_recorded_scores(made: World, name: str) -> None:
    scores = mops.read_record(made.run / "record.json").scores.tasks[name]
    for split in ("validation", "report"):
        rows = table(made.run / "predictions" / f"{name}-{split}.csv")
        assert scores[split]["rows"] == len(rows) == 20
        for score, value in rescore(name, rows).items():
            assert scores[split][score] == pytest.approx(value, abs=1e-12), (split, score)


def test_both_overall_scores_are_the_means_of_the_tasks(made: World) -> None:
    scores = mops.read_record(made.run / "record.json").scores
    for part in ("report", "validation", "train"):
        main = [scores.tasks[name][part][scores.main[name]] for name in NAMES]
        assert scores.overall[part]["overall"] == pytest.approx(np.mean(main))
        main[2] = (main[2] + 1) / 2
        assert scores.overall[part]["overall_normalised"] == pytest.approx(np.mean(main))
    assert scores.overall["test"] == {}  # the test files have no labels
    assert scores.tasks["sentiment"]["train"]["rows"] == 60


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_every_input_row_in_input_order(made: World, name: str) -> None:
    for split, file in (("validation", "dev"), ("report", "dev"), ("test", "test-student")):
        rows = table(made.run / "predictions" / f"{name}-{split}.csv")
        given = inputs(made.data / f"{FILES[name]}-{file}.csv")
        assert [row["id"] for row in rows] == [line[1] for line in given]
        assert ("label" in rows[0]) == (split != "test")


def test_bad_rows_are_answered_but_neither_learned_from_nor_scored(
    made: World, tmp_path: Path
) -> None:
    data = write_toy_data(tmp_path / "data")
    for split in ("train", "dev"):
        with (data / f"quora-{split}.csv").open("a") as file:
            file.write("97\tbad1\t\tban bat\t1\n98\tbad2\tban\tbat\t\n99\tbad3\tban\tbat\t7\n")
    run = mops.train(made.recipe(data=data), tmp_path / "run")
    rows = table(tmp_path / "run" / "predictions" / "paraphrase-validation.csv")
    assert [row["id"] for row in rows][-3:] == ["bad1", "bad2", "bad3"]
    assert len(rows) == 23 and all(row["prediction"] in "01" for row in rows)
    assert run.scores.tasks["paraphrase"]["validation"]["rows"] == 20
    assert run.record.train_info.tasks["paraphrase"].rows == 30
    notes = " ".join(run.record.meta_info.data_notes)
    assert "3 of 23 rows left out: quora-dev.csv:22 sentence1 is empty" in notes


def texts_of(made: World, name: str) -> list[Any]:
    given = inputs(made.data / f"{FILES[name]}-dev.csv")
    return [line[2] if name == "sentiment" else tuple(line[2:4]) for line in given]


@pytest.mark.parametrize("name", NAMES)
def test_the_loaded_bundle_gives_the_recorded_predictions(made: World, name: str) -> None:
    written = [
        row["prediction"] for row in table(made.run / "predictions" / f"{name}-validation.csv")
    ]
    found = mops.load(made.run / "model").predict(name, texts_of(made, name))
    if name == "similarity":
        assert [np.float32(value) for value in found] == [np.float32(value) for value in written]
    else:
        assert found == written


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_confidences_are_written(made: World, name: str) -> None:
    answers, rows = (
        mops.load(made.run / "model").predict_tasks({name: texts_of(made, name)})[name],
        table(made.run / "predictions" / f"{name}-validation.csv"),
    )
    labels = np.array([float(row["label"]) for row in rows])  # the toy's words are its numbers
    assert [float(row["loss"]) for row in rows] == pytest.approx(answers.losses(labels), rel=1e-3)
    written = [float(row["confidence"]) for row in rows if "confidence" in row]
    assert written == pytest.approx(answers.confidences(), abs=1e-4)


# ------------------------------------------------------------------ the same folder again


def test_a_finished_run_is_left_alone(made: World) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.run.rglob("*")}
    run = mops.train(made.recipe(), made.run)
    assert run.was_finished
    assert run.record == mops.read_record(made.run / "record.json")
    assert {path: path.stat().st_mtime_ns for path in made.run.rglob("*")} == before


def test_a_key_that_an_older_version_lacked_has_its_default(made: World, tmp_path: Path) -> None:
    run = shutil.copytree(made.run, tmp_path / "run")
    text = (run / "recipe.yaml").read_text("utf-8")
    (run / "recipe.yaml").write_text(text.replace("  ema: 0.0\n", ""), "utf-8")
    assert "ema: 0.0" in text and mops.train(made.recipe(), run).was_finished


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training__learning_rate": 0.25}, r"training\.learning_rate: 5e-05 there, 0\.25 here"),
        ({"plan": "shared"}, "plan: 'hybrid:1' there, 'shared' here"),
    ],
)
def test_another_recipe_in_the_same_folder_is_refused_by_key(
    made: World, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        mops.train(made.recipe(**change), made.run)


def test_a_folder_with_other_things_is_refused(made: World, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RecipeError, match="not empty"):
        mops.train(made.recipe(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_interrupted_run_refuses_other_data(made: World, tmp_path: Path) -> None:
    data = write_toy_data(tmp_path / "data")
    recipe = made.recipe(data=data, training__save_steps=2)
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "run", StopAt(5))
    file = data / "sts-train.csv"
    file.write_text(file.read_text().replace("5.000", "4.000", 1))
    with pytest.raises(RecipeError, match="other data"):
        mops.train(recipe, tmp_path / "run")


def test_an_encoder_too_short_for_the_recipe_is_refused(
    made: World, tmp_path: Path, encoder_folder: Any
) -> None:
    recipe = made.recipe(encoder=encoder_folder("bert"), training__max_length=LONGEST + 1)
    with pytest.raises(RecipeError, match=f"at most {LONGEST} tokens"):
        mops.train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ it learns


def test_the_loss_falls_on_a_small_set(made: World, tmp_path: Path, few_resamples: None) -> None:
    """Every batch is the whole set of each task's first rows: training must fit it."""
    data = write_toy_data(tmp_path / "data")
    for stem in FILES.values():
        lines = (data / f"{stem}-train.csv").read_text().splitlines()
        (data / f"{stem}-train.csv").write_text("\n".join(lines[:13]) + "\n")
    recipe = made.recipe(
        data=data, training__per_task_batch_size=12, training__max_steps=60,
        training__eval_steps=60, training__learning_rate=3e-3, training__head_learning_rate=1e-2,
        training__dropout=0.0, training__head_dropout=0.0,
    )  # fmt: skip
    run = mops.train(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (run.folder / "curve.jsonl").read_text().splitlines()]
    first, last = lines[0]["losses"], [line for line in lines if "losses" in line][-1]["losses"]
    for name in NAMES:
        assert last[name] < 0.5 * first[name], name
    assert run.scores.tasks["sentiment"]["train"]["accuracy"] > 0.9
    assert torch.get_num_threads() == 1


def test_a_library_call_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's threads, signal handlers and garbage collection come back; malloc is not set."""
    set_options: list[str] = []
    monkeypatch.setattr(
        "mops.training.machine.call_c", lambda name, *given: set_options.append(name)
    )

    def settings() -> tuple[object, ...]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        return torch.get_num_threads(), handlers, gc.isenabled()

    before = settings()
    threads = torch.get_num_threads() + 1
    mops.train(world().recipe(training__threads=threads, training__max_steps=1), tmp_path / "run")
    assert settings() == before
    assert "mallopt" not in set_options
