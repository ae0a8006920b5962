"""Five tasks of five kinds over one file: trained with several plans, surveyed, reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from kinds.kind_data import TASKS, kinds_recipe, write_rows
from mops.errors import MopsError
from mops.export import hf, onnx
from mops.predict.bundle import load_bundle
from mops.surveys.results.judge import judge_run
from mops.surveys.results.results import read_results
from running import StopAt, run_cli_with

MAIN = {
    "topic": "accuracy", "price": "pearson", "moods": "micro_f1", "spans": "entity_f1",
    "odd": "macro_f1", "closeness": "pearson",
}  # fmt: skip


@pytest.mark.parametrize("plan", ["shared", "hybrid:2", "lora:8", "separate", "frozen+late:SI"])
def test_every_plan_trains_all_kinds(encoder: Path, tmp_path: Path, plan: str) -> None:
    run = mops.train(kinds_recipe(tmp_path, encoder, plan=plan), tmp_path / "run")
    assert run.scores.main == MAIN
    judged = judge_run(tmp_path / "run").candidates[0].scores
    for name, score in MAIN.items():
        report = run.scores.tasks[name]["report"]
        assert judged[name].mean == pytest.approx(report[score]) and report["rows"] == 30
    model = mops.load(tmp_path / "run" / "model")
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    texts = {name: [row["text"] for row in rows] for name in TASKS}
    texts["closeness"] = [(row["text"], row["other"]) for row in rows]
    together = model.predict_tasks(texts)
    for name in TASKS:
        assert together[name].labels == model.predict(name, texts[name])


@pytest.mark.parametrize(
    "settings",
    [
        {"gradients": "pcgrad", "pool": "pooler"},
        {"loss_weights": "uncertainty", "schedule": "mixed"},
        {"loss_weights": "dwa", "schedule": "round-robin"},
        {"label_smoothing": 0.1, "r_drop": 0.5},
        {"ema": 0.9, "head": "mlp"},
        {"augment": {"swap": ["closeness"]}},
    ],
)
def test_every_way_of_training_takes_all_kinds(
    encoder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    given = {f"training__{key}": value for key, value in settings.items()}
    run = mops.train(kinds_recipe(tmp_path, encoder, **given), tmp_path / "run")
    assert all("report" in scores for scores in run.scores.tasks.values())


def test_an_interrupted_run_of_all_kinds_resumes(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, training__save_steps=1)
    whole = mops.train(recipe, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "run", watcher=StopAt(6))
    again = mops.train(recipe, tmp_path / "run")
    assert again.scores == whole.scores
    stored = [
        (tmp_path / name / "model/model.safetensors").read_bytes() for name in ("whole", "run")
    ]
    assert stored[0] == stored[1]


@pytest.fixture(scope="module")
def model(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    mops.train(kinds_recipe(folder, encoder, plan="hybrid:2"), folder / "run")
    return folder / "run" / "model"


def test_a_graph_answers_all_kinds(model: Path, tmp_path: Path) -> None:
    """Also words of several pieces, and words that are cut."""
    onnx.export_bundle(mops.load(model).bundle, tmp_path / "onnx")
    assert "spans: batch x length x tags" in (tmp_path / "onnx" / "README.md").read_text("utf-8")
    singles = ["bat butonning don", "do", "bully ban " * 30]
    texts: dict[str, Any] = dict.fromkeys(TASKS, singles)
    texts["closeness"] = [(text, "din") for text in singles]
    ours = mops.load(model).predict_tasks(texts)
    for name, found in mops.load(tmp_path / "onnx").predict_tasks(texts).items():
        if name in ("price", "closeness"):
            assert found.labels == pytest.approx(ours[name].labels, abs=0.1)
        else:
            assert found.labels == ours[name].labels
        for theirs, own in zip(found.probabilities, ours[name].probabilities, strict=True):
            np.testing.assert_allclose(theirs, own, atol=1e-4)
        assert found.cut_words == ours[name].cut_words
    assert ours["spans"].cut_words > 0


def test_commands_take_a_graph_with_words(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    run, small, source = run_cli_with(monkeypatch, capsys), tmp_path / "small", tmp_path / "dev"
    words = ("export", str(model), "--to", "onnx", "--out", str(small), "--int8", "--force")
    assert run(*words)[0] == 0
    scores = json.loads((small / "config.json").read_text("utf-8"))["onnx"]["scores"]
    assert set(scores) == set(TASKS) and "entity_f1" in scores["spans"]
    graph = ("--backend", "onnx")
    code, said, _ = run("eval", str(model), *graph, "--verify")
    assert code == 0 and "verified" in said
    write_rows(source.with_suffix(".jsonl"), 30, seed=1)
    words = ("predict", str(model), str(source.with_suffix(".jsonl")), "--task", "spans")
    assert run(*words, *graph)[1] == run(*words)[1] != ""
    apps: list[Any] = []
    monkeypatch.setattr("mops.serve.workers.serve", lambda app, **_: apps.append(app))
    assert run("serve", str(small), "--port", "0")[0] == 0
    with testclient.TestClient(apps[0]) as client:
        body = {"items": [{"text": "bat ban din"}]}
        [answer] = client.post("/predict", json=body).json()["answers"]
    [expected] = mops.load(small).predict("spans", ["bat ban din"])
    assert answer["spans"]["prediction"] == expected


def test_a_graph_whose_words_are_not_finite_is_refused(model: Path, tmp_path: Path) -> None:
    bundle = load_bundle(model)
    with torch.no_grad():
        bundle.network.bank["head/spans"].output.bias[0] = np.nan
    with pytest.raises(MopsError, match="task 'spans': the output for row 1 is not a finite"):
        onnx.export_bundle(bundle, tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_three_kinds_are_folders_for_transformers(encoder: Path, tmp_path: Path) -> None:
    mops.train(kinds_recipe(tmp_path, encoder, "topic", "price", "moods"), tmp_path / "three")
    bundle = load_bundle(tmp_path / "three" / "model")
    assert len(hf.export_bundle(bundle, tmp_path / "hf")) == 3


@pytest.mark.slow
def test_a_survey_of_five_kinds_is_judged_and_reported(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One file, five tasks, four plans: results, decision, charts and examples of errors."""
    plans = ["shared", "hybrid:2", "lora:8", "separate"]
    config, design = tmp_path / "recipe.yaml", tmp_path / "design.yaml"
    config.write_text(kinds_recipe(tmp_path, encoder, training__max_steps=12).to_yaml())
    design.write_text(json.dumps({"name": "five", "axes": {"plan": plans}, "seeds": [1]}))
    run, out = run_cli_with(monkeypatch, capsys), tmp_path / "survey"
    code, said, _ = run("survey", str(design), "--config", str(config), "--out", str(out))
    assert code == 0 and all(plan in said for plan in plans)
    results = read_results(out)
    assert not results.missing and results.tasks == MAIN
    assert {candidate.name for candidate in results.candidates} == set(plans)
    page = (out / "report.html").read_text("utf-8")
    assert 'class="entity-' in page and "moods by label" in page
    assert {"answers-topic.svg", "answers-price.svg"} <= {
        path.name for path in (out / "figures").iterdir()
    }
