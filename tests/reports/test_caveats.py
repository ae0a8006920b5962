"""What a report admits: data, machines, warnings, missing files, what an encoder has seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from survey_data import TASKS

from mops.config.recipe import to_recipe
from mops.model.sources import BUNDLED_SHA256
from mops.reports.caveats import Section, describe_pretraining, find_encoder, make_caveats
from mops.reports.source import read_source
from surveys import make_survey


def sections(folder: Path) -> dict[str, Section]:
    return {section.title: section for section in make_caveats(read_source(folder))}


def words(section: Section) -> str:
    return "\n".join(section.lines)


def test_rows_and_notes_of_the_training(tmp_path: Path) -> None:
    """The made files have 30 rows for validation, and one bad row for training."""
    made = sections(make_survey(tmp_path, ("shared", "separate"), rows=30))["Data"]
    assert made.table is not None
    assert made.table.columns == ("task", "train", "validation")
    assert [row[2] for row in made.table.texts] == ["30"] * len(TASKS)
    assert "1 of 33 rows left out" in words(made)


def test_one_machine_or_several(tmp_path: Path) -> None:
    same = sections(make_survey(tmp_path / "same", ("shared", "separate")))
    assert "one kind of machine" in words(same["Machine and versions"])
    other = {"separate": {"processor": "Difference Engine", "packages": {"torch": "2.6.0"}}}
    made = sections(make_survey(tmp_path / "other", ("shared", "separate"), meta=other))
    found = made["Machine and versions"]
    assert "differ in processor, torch" in words(found)
    assert found.table is not None
    texts = found.table.texts
    assert ["processor", "Difference Engine", "2"] in texts
    assert ["processor", "Abacus 2000", "2"] in texts


def test_warnings_and_missing_trials_are_said(tmp_path: Path) -> None:
    folder = make_survey(
        tmp_path,
        warnings={"shared": ("it may | be <b>bad</b>",)},
        broken=[("separate", 2)],
        failed=[("hybrid:2", 1)],
        waiting=[("frozen+shared", 2)],
    )
    made = sections(folder)
    assert "shared (trainings: 2): it may | be <b>bad</b>." in made["Warnings"].lines
    told = words(made["Missing and unreadable"])
    assert all(f"trials {state}: 1" in told for state in ("left out", "failed", "waiting"))


def test_nothing_to_say_is_said(tmp_path: Path) -> None:
    made = sections(make_survey(tmp_path, ("shared", "separate")))
    assert words(made["Missing and unreadable"]).startswith("Nothing:")
    assert all(section.lines for section in made.values())


def test_what_was_chosen_on_which_rows(tmp_path: Path) -> None:
    made = sections(make_survey(tmp_path, ("shared", "separate"), on="test"))
    told = words(made["Rows, seeds and statistics"])
    assert "judged on the test files (rows: sentiment 40, paraphrase 40, similarity 40)" in told
    assert "Seeds: 1, 2." in told and "Hsu" in told


# ------------------------------------------------------------------ encoders


@pytest.mark.parametrize(
    ("name", "sha256", "what"),
    [
        ("minilm", BUNDLED_SHA256, "Quora duplicates"),
        ("/somewhere/renamed", BUNDLED_SHA256, "Quora duplicates"),
        ("sentence-transformers/all-MiniLM-L6-v2", "", "Quora duplicates"),
        ("/models/paraphrase-MiniLM-L3-v2", "", "Quora duplicates"),
        ("cross-encoder/stsb-distilroberta-base", "", "STS benchmark"),
        ("cross-encoder/quora-roberta-base", "", "Quora duplicates"),
        ("bert-base-uncased", "", "no labelled task"),
        ("google/bert_uncased_L-4_H-256_A-4", "", "no labelled task"),
        ("roberta-base", "", "no labelled task"),
    ],
)
def test_known_encoders(name: str, sha256: str, what: str) -> None:
    found = find_encoder(name, sha256)
    assert found is not None and what in found["training"]


@pytest.mark.parametrize(
    "name", ["distilbert-base-uncased-finetuned-sst-2-english", "bert-base-uncased-mnli", "mine"]
)
def test_what_is_not_known_is_not_guessed(name: str) -> None:
    assert find_encoder(name, "") is None
    (line,) = describe_pretraining(name, "", to_recipe({"tasks": {"s": {**TASKS["sentiment"]}}}))
    assert "not known" in line


def test_tasks_that_look_like_what_it_has_seen() -> None:
    quora = {**TASKS["paraphrase"], "train": "data/quora-train.csv"}
    other = {**TASKS["similarity"], "train": "data/pairs.csv"}
    recipe = to_recipe({"tasks": {"paraphrase": quora, "similarity": other}})
    lines = list(describe_pretraining("minilm", BUNDLED_SHA256, recipe))
    assert len(lines) == 2 and "The files of paraphrase look like Quora duplicates" in lines[1]
    assert len(list(describe_pretraining("bert-base-uncased", "", recipe))) == 1
