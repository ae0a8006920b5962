"""Five tasks of five kinds over one file: trained with several plans, surveyed, reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from kinds.kind_data import TASKS, kinds_recipe, write_rows
from mops.errors import MopsError
from mops.export import hf, onnx
from mops.predict.bundle import load_bundle, save_bundle
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


@pytest.fixture(params=["mean", "cls"])
def folders(request: pytest.FixtureRequest, encoder: Path, tmp_path: Path) -> Iterator[Path]:
    """A bundle and what transformers loads: with a file of its own, and stock classes."""
    recipe = kinds_recipe(
        tmp_path, encoder, training__pool=request.param, training__pair={"closeness": "bi"}
    )
    mops.train(recipe, tmp_path / "run")
    bundle = load_bundle(tmp_path / "run" / "model")
    bundle.network.bank["head/moods"].threshold.copy_(torch.tensor([0.3, -0.2, 0.05]))
    save_bundle(tmp_path / "model", bundle.network, bundle.tokenizer, bundle.entries, {})
    hf.export_bundle(load_bundle(tmp_path / "model"), tmp_path / "hf")
    yield tmp_path


def load_folder(folder: Path, kind: str) -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, f"AutoModelFor{kind}Classification").from_pretrained(
        folder, trust_remote_code=True
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def test_folders_for_transformers_answer_as_the_predictor(folders: Path) -> None:
    """Classes by the largest logit, labels by logits above 0, numbers as they are."""
    own = mops.load(folders / "model")
    rows = [json.loads(line) for line in (folders / "dev.jsonl").read_text().splitlines()]
    kinds = {"topic": "single_label_classification", "odd": "single_label_classification"}
    kinds |= {"moods": "multi_label_classification", "price": "regression"}
    for name, kind in (kinds | {"closeness": "regression"}).items():
        columns = [[row[key] for row in rows] for key in own.bundle.layout.tasks[name].text]
        ours = own.predict_tasks({name: list(zip(*columns, strict=True))})[name]
        model, tokenizer = load_folder(folders / "hf" / name, "Sequence")
        with torch.inference_mode():
            logits = model(**tokenizer(*columns, padding=True, return_tensors="pt")).logits.numpy()
        assert (model.config.problem_type, logits.shape[1]) == (kind, max(1, len(ours.task.labels)))
        if name == "moods":
            np.testing.assert_allclose(1 / (1 + np.exp(-logits)), ours.probabilities, atol=1e-5)
            np.testing.assert_array_equal(logits > 0, ours.values == 1)
            assert 0 < ours.values.mean() < 1
        elif kind == "regression":
            low, high = ours.task.range or (-np.inf, np.inf)
            np.testing.assert_allclose(logits[:, 0].clip(low, high), ours.values, rtol=1e-5)
        else:
            np.testing.assert_array_equal(logits.argmax(1), ours.values)


def test_a_folder_of_tags_answers_as_the_predictor(folders: Path) -> None:
    own = mops.load(folders / "model")
    texts = [json.loads(row)["text"] for row in (folders / "dev.jsonl").read_text().splitlines()]
    model, tokenizer = load_folder(folders / "hf" / "spans", "Token")
    for text, tags in zip(texts, own.predict("spans", texts), strict=True):
        inputs = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
        first = [inputs.word_ids().index(n) for n in range(len(tags))]
        with torch.inference_mode():
            best = model(**inputs).logits[0, first].argmax(-1).tolist()
        assert [model.config.id2label[n] for n in best] == tags


def test_the_cards_of_folders_say_what_their_numbers_are(folders: Path) -> None:
    cards = {name: (folders / "hf" / name / "README.md").read_text("utf-8") for name in TASKS}
    said = "A label is given where its logit > 0"
    assert [name for name, card in cards.items() if said in card] == ["moods"]
    assert "The value is the only logit." in cards["price"]
    assert "The value is the only logit, limited to 0 .. 1 in mops." in cards["closeness"]
    pipelines = {
        name: dict(line.partition(": ")[::2] for line in card.split("---")[1].strip().split("\n"))
        for name, card in cards.items()
    }
    assert {name: front.get("pipeline_tag") for name, front in pipelines.items()} == {
        **dict.fromkeys(("topic", "odd", "moods"), "text-classification"),
        "spans": "token-classification",
        "price": None,
        "closeness": None,
    }
    one = "gets one of the answers above"
    assert [name for name, card in cards.items() if one in card] == ["topic", "odd"]
    assert "every text or pair gets the labels that are above their thresholds" in cards["moods"]
    assert "every word gets one of the tags above" in cards["spans"]


def test_the_card_of_a_graph_says_what_its_outputs_are(folders: Path) -> None:
    onnx.export_bundle(load_bundle(folders / "model"), folders / "onnx")
    card = (folders / "onnx" / "README.md").read_text("utf-8")
    assert "pipeline_tag" not in card  # texts and words are classified
    assert "- topic, odd: every text or pair gets one of the answers above" in card
    mean, deviation = load_bundle(folders / "model").layout.tasks["price"].scale or (0, 0)
    for line in (
        "topic: a number for each answer, before softmax",
        "moods: a number for each label, given where it is > 0; its sigmoid is the probability",
        f"price: the value is {mean:.9g} + {deviation:.9g} x its output\n",
        "closeness: the value is its output, limited to 0 .. 1; a row is two sequences, whose num",
        "spans: batch x length x tags, before softmax; the tag of a word is that of its first tok",
    ):
        assert f"\n- {line}" in card


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
