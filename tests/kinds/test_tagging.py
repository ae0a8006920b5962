"""Tagging: spans against seqeval, words and their tokens, the network against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seqeval import metrics as seqeval
from seqeval.metrics.sequence_labeling import get_entities

import mops
from building import tiny_tokenizer
from kinds.kind_data import kinds_recipe
from mops.data.batches import tokenise
from mops.data.dataset import read_dataset, read_rows
from mops.errors import MopsError, PlanError
from mops.evaluate.evaluate import read_predictions
from mops.evaluate.metrics import metrics_of, score
from mops.evaluate.statistics import resamples
from mops.kinds.tags import find_spans
from mops.plans.shapes import Reading
from mops.tasks import Task

LABELS = ("B-P", "B-X", "E-P", "I-P", "I-X", "O", "S-X")
SPANS = Task(name="spans", type="tagging", text=("text",), label="tags", labels=LABELS)


def sequences(seed: int, count: int = 500) -> list[list[str]]:
    draw = np.random.default_rng(seed)
    return [draw.choice(LABELS, draw.integers(1, 9)).tolist() for _ in range(count)]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O B-P I-P O", [(1, 3, "P")]),
        ("I-P I-P O I-X", [(0, 2, "P"), (3, 4, "X")]),  # IOB1
        ("B-P B-P I-X", [(0, 1, "P"), (1, 2, "P"), (2, 3, "X")]),
        ("S-X B-P I-P E-P E-P", [(0, 1, "X"), (1, 4, "P"), (4, 5, "P")]),  # BIOES
        ("O O", []),
    ],
)
def test_spans_by_hand(tags: str, spans: list[Any]) -> None:
    assert find_spans(tags.split()) == spans


def test_spans_and_scores_are_seqevals() -> None:
    true, found = sequences(0), sequences(1)
    found = [(own * 9)[: len(tags)] for own, tags in zip(found, true, strict=True)]
    for tags in true:
        theirs = {(first, last + 1, kind) for kind, first, last in get_entities(tags)}
        assert set(find_spans(tags)) == theirs
    targets, predictions = (SPANS.answer.encode(SPANS, own) for own in (true, found))
    scores = score(SPANS, targets, predictions)
    for name in ("f1", "precision", "recall"):
        theirs = getattr(seqeval, f"{name}_score")(true, found)
        assert scores[f"entity_{name}"] == pytest.approx(theirs)
    assert scores["token_accuracy"] == pytest.approx(seqeval.accuracy_score(true, found))


def test_scores_are_resampled_by_row() -> None:
    true = sequences(0, 40)
    found = [own[::-1] for own in true]
    targets, predictions = (SPANS.answer.encode(SPANS, own) for own in (true, found))
    counts = next(resamples("x", 40))[:10]
    for metric in metrics_of(SPANS).values():
        picks = [np.repeat(np.arange(40), row.astype(int)) for row in counts]
        wanted = [metric(targets[pick], predictions[pick]) for pick in picks]
        np.testing.assert_allclose(metric.resampler(targets, predictions)(counts), wanted)


def test_tags_without_spans_are_scored_by_word() -> None:
    words = Task(**vars(SPANS) | {"labels": ("NOUN", "VERB")})
    assert words.score_name == "token_accuracy" and set(metrics_of(words)) == {"token_accuracy"}
    assert SPANS.score_name == "entity_f1"
    with pytest.raises(MopsError, match="use token_accuracy"):
        Task(**vars(words) | {"score": "entity_f1"})


def test_the_first_piece_of_a_word_answers_and_cut_words_are_marked() -> None:
    tokenizer = tiny_tokenizer()
    text = ("bats, do  banging the bat bat bat",)  # bat ##s , do ban(g) ...
    table = tokenise(tokenizer, [text, ("do",)], Reading(max_length=9), has_words=True)
    pieces = [tokenizer.id_to_token(n) for n in table.ids[: table.starts[1]]]
    places = table.word_places(0)
    assert places[0] == 1 and [pieces[n] for n in places[places >= 0]][1] == "do"
    assert len(places) == 7 and places[-1] == -1
    assert (np.diff(places[places >= 0]) > 0).all() and table.word_places(1).tolist() == [1]
    plain = tokenise(tokenizer, [text, ("do",)], Reading(max_length=9))
    np.testing.assert_array_equal(plain.ids, table.ids)


def test_a_trained_tagging_answers_every_word(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(
        tmp_path, encoder, "spans", "topic", plan="hybrid:1", training__max_length=5
    )
    run = mops.train(recipe, tmp_path / "run")
    model = mops.load(run.folder / "model")
    texts = [json.loads(line)["text"] for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    found = model.predict("spans", texts)
    assert [len(tags) for tags in found] == [len(text.split()) for text in texts]
    assert all(tags[3:] == ["O"] * len(tags[3:]) for tags in found)  # [CLS] 3 words [SEP]
    task = model.bundle.layout.tasks["spans"]
    rows = read_predictions(run.folder / "predictions" / "spans-report.csv", task)
    stored = run.scores.tasks["spans"]["report"]
    again = score(task, rows.targets, rows.values)
    assert {name: again[name] for name in again} == pytest.approx(
        {name: stored[name] for name in again}
    )
    assert any("words" in warning and "cut" in warning for warning in run.record.warnings)


def test_logits_are_those_of_transformers(encoder: Path, tmp_path: Path) -> None:
    """BertForTokenClassification with the same weights, on words that are split already."""
    import transformers

    from mops.export.hf import export_bundle

    recipe = kinds_recipe(tmp_path, encoder, "spans", "topic", plan="hybrid:1")
    mops.train(recipe, tmp_path / "run")
    model = mops.load(tmp_path / "run" / "model")
    export_bundle(model.bundle, tmp_path / "exported")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "exported" / "spans"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported" / "spans")
    texts = [json.loads(line)["text"] for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    table = tokenise(model.bundle.tokenizer, [(t,) for t in texts], Reading(), has_words=True)
    ours = model.compute({"spans": table})["spans"]
    for text, logits in zip(texts, ours, strict=True):
        inputs = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
        word_of = inputs.word_ids()
        first = [word_of.index(n) for n in range(len(text.split()))]
        with torch.no_grad():
            wanted = theirs(**inputs).logits[0, first].numpy()
        np.testing.assert_allclose(logits, wanted, atol=1e-5)


def write_conll(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_conll_files_and_json_lists_are_read(tmp_path: Path) -> None:
    conll = write_conll(
        tmp_path / "a.conll", "-DOCSTART- -X- O\n\nbat NN B-P\nban NN I-P\n\n\ndo VB O\n"
    )
    task = Task(**vars(SPANS) | {"text": ("tokens",)})
    rows = read_rows(conll, task, needs_label=True).rows
    assert [(row.texts, row.label) for row in rows] == [
        (("bat ban",), ("B-P", "I-P")),
        (("do",), ("O",)),
    ]
    assert rows[1].where == "a.conll:7"
    lines = [{"tokens": ["bat", "ban"], "tags": ["B-P", "I-P"]}, {"tokens": ["do"], "tags": ["O"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = read_rows(tmp_path / "a.jsonl", task, needs_label=True).rows
    assert [(row.texts, row.label) for row in other] == [(row.texts, row.label) for row in rows]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"tokens": ["bat", "do"], "tags": ["O"]}, "1 tags for 2 words"),
        ({"tokens": ["bat"], "tags": ["B-Z"]}, "tags has 'B-Z', which is not one of"),
        ({"tokens": [], "tags": []}, "words: an empty list"),
        ({"tokens": ["bat"], "tags": []}, "tags: an empty list"),
        ({"tokens": ["New York"], "tags": ["O"]}, "'New York' is empty or has white space"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    good = {"tokens": ["bat"], "tags": ["O"]}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n")
    task = Task(**vars(SPANS) | {"text": ("tokens",)})
    with pytest.raises(MopsError, match=rf"a.jsonl:2 .*{problem}"):
        read_rows(tmp_path / "a.jsonl", task, needs_label=True)


def test_a_line_with_other_columns_is_named(tmp_path: Path) -> None:
    path = write_conll(tmp_path / "a.conll", "bat B-P\n\nbat I-P\nban\n")
    task = Task(**vars(SPANS) | {"text": ("tokens",)})
    with pytest.raises(MopsError, match=r"a.conll:3 1 columns instead of 2 in line 4"):
        read_rows(path, task, needs_label=True)


def test_a_constant_tag_and_a_feed_are_refused(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "spans", "topic", plan="progressive")
    with pytest.raises(PlanError, match="'spans' answers each word"):
        mops.train(recipe, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    rows = [row | {"tags": " ".join(["O"] * len(row["text"].split()))} for row in rows]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(MopsError, match="every word of the training rows has the tag 'O'"):
        read_dataset(kinds_recipe(tmp_path, encoder, "spans"))
