"""Five tasks of five kinds over one file: trained with several plans, surveyed, reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mops
from kinds.kind_data import TASKS, kinds_recipe
from mops.errors import UsageError
from mops.export import hf, onnx
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


def test_a_graph_refuses_words_in_one_sentence(encoder: Path, tmp_path: Path) -> None:
    mops.train(kinds_recipe(tmp_path, encoder, "topic", "price", "moods"), tmp_path / "three")
    bundle = mops.load(tmp_path / "three" / "model").bundle
    onnx.export_bundle(bundle, tmp_path / "onnx")
    exported, texts = mops.load(tmp_path / "onnx"), ["bat ban din", "do re mi"]
    ours = mops.load(tmp_path / "three" / "model")
    for name in ("topic", "moods"):
        assert exported.predict(name, texts) == ours.predict(name, texts)
    assert exported.predict("price", texts) == pytest.approx(ours.predict("price", texts), abs=0.1)
    assert len(hf.export_bundle(bundle, tmp_path / "hf")) == 3
    mops.train(kinds_recipe(tmp_path, encoder, "spans", "topic"), tmp_path / "words")
    with pytest.raises(UsageError, match="'spans' answers each word") as caught:
        onnx.export_bundle(mops.load(tmp_path / "words" / "model").bundle, tmp_path / "none")
    assert "\n" not in str(caught.value) and not (tmp_path / "none").exists()


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
