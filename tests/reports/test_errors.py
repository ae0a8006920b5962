"""Error analysis against what can be counted by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from mops.files import file_digest
from mops.kinds.tags import Piece
from mops.reports.errors import Example, TaskErrors, find_errors
from mops.reports.source import Source, TrialFiles, read_source
from surveys import PLANS, make_survey

SKILLS = {"shared": 0.8, "separate": 0.75, "hybrid:2": 0.3, "frozen+shared": 0.2}


def errors_in(source: Source) -> dict[str, TaskErrors]:
    return {one.task: one for one in find_errors(source) if isinstance(one, TaskErrors)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("errors")
    return read_source(make_survey(folder, rows=120, skills=SKILLS, seeds=[5, 7]))


@pytest.fixture(scope="module")
def found(source: Source) -> dict[str, TaskErrors]:
    return errors_in(source)


def predictions(source: Source, name: str, task: str) -> list[dict[str, str]]:
    """The rows that judge, as a reader of the file would find them; of the first seed."""
    (trial, *_) = source.trials_of(name)
    with trial.predictions(task, "report").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def texts_by_id(trial: TrialFiles, task: str) -> dict[str, tuple[str, ...]]:
    entry = trial.recipe.tasks[task]
    columns = [entry.text] if isinstance(entry.text, str) else list(entry.text)
    assert entry.validation
    with Path(entry.validation).open(encoding="utf-8", newline="") as file:
        return {row["id"]: tuple(row[name] for name in columns) for row in csv.DictReader(file)}


def test_who_is_compared(source: Source, found: dict[str, TaskErrors]) -> None:
    """The recommended, the baseline, the model per task, then the best of the others."""
    first = dict.fromkeys(
        [source.roles["recommended"], "shared", "separate", "hybrid:2", "frozen+shared"]
    )
    plans = list(source.compared_trials("sentiment", 4))
    assert plans == list(first) and list(found["sentiment"].candidates) == plans
    assert "seed 5" in found["sentiment"].note


@pytest.mark.parametrize("task", ["sentiment", "paraphrase", "similarity"])
def test_the_worst_are_those_with_the_largest_mean_loss(
    source: Source, found: dict[str, TaskErrors], task: str
) -> None:
    of = found[task]
    tables = [predictions(source, name, task) for name in of.candidates]
    losses = np.mean([[float(row["loss"]) for row in table] for table in tables], axis=0)
    expected = sorted(losses, reverse=True)[:30]
    assert [one.loss for one in of.worst] == pytest.approx(expected)
    loss_of = dict(zip((row["id"] for row in tables[0]), losses, strict=True))
    texts = texts_by_id(source.trials[0], task)
    for one in of.worst:
        assert one.loss == pytest.approx(loss_of[one.id])
        assert one.texts == texts[one.id]
        assert [name for name, _, _ in one.answers] == list(of.candidates)


def test_answers_stand_beside_the_label(source: Source, found: dict[str, TaskErrors]) -> None:
    for one in found["sentiment"].worst:
        for name, answer, is_right in one.answers:
            (row,) = (r for r in predictions(source, name, "sentiment") if r["id"] == one.id)
            assert (row["prediction"], row["label"]) == (answer, one.label)
            assert is_right == (answer == one.label)
    for one in found["similarity"].worst:
        for name, answer, is_right in one.answers:
            (row,) = (r for r in predictions(source, name, "similarity") if r["id"] == one.id)
            off = abs(float(row["prediction"]) - float(row["label"]))
            assert is_right == (off <= 1)  # a fifth of 0 to 5
            assert answer == f"{float(row['prediction']):.2f}"


def test_errors_that_one_alone_makes(source: Source, found: dict[str, TaskErrors]) -> None:
    of = found["paraphrase"]
    wrong: dict[str, list[str]] = {}
    for name in of.candidates:
        for row in predictions(source, name, "paraphrase"):
            if row["prediction"] != row["label"]:
                wrong.setdefault(row["id"], []).append(name)
    alone = {row: names[0] for row, names in wrong.items() if len(names) == 1}
    assert of.only
    for one in of.only:
        assert alone[one.id] == one.only
        assert [name for name, _, is_right in one.answers if not is_right] == [one.only]
    for name in of.candidates:
        shown = [one.id for one in of.only if one.only == name]
        assert len(shown) == min(10, sum(other == name for other in alone.values()))


def test_scores_by_label_and_length(source: Source, found: dict[str, TaskErrors]) -> None:
    of = found["sentiment"]
    by_length, by_label = of.tables
    texts = texts_by_id(source.trials[0], "sentiment")
    for place, name in enumerate(of.candidates, start=2):
        rows = predictions(source, name, "sentiment")
        for line in by_label.rows:
            here = [row for row in rows if row["label"] == line[0].text]
            assert line[1].value == len(here)
            right = accuracy_score(*([row[key] for row in here] for key in ("label", "prediction")))
            assert line[place].value == pytest.approx(right)
        seen = 0
        for line in by_length.rows:
            low, _, high = line[0].text.partition(" to ")
            bounds = range(int(low), int(high or low) + 1)
            here = [row for row in rows if len(texts[row["id"]][0].split()) in bounds]
            assert line[1].value == len(here)
            right = accuracy_score(*([row[key] for row in here] for key in ("label", "prediction")))
            assert line[place].value == pytest.approx(right)
            seen += len(here)
        assert seen == len(rows)
        spans = [line[0].text.partition(" to ") for line in by_length.rows]
        assert not any(low == high for low, _, high in spans)
    assert by_length.columns == ("words", "rows", *of.candidates)


def test_long_answers_have_a_line_of_their_own() -> None:
    for answer, is_long in (("3.25", False), ("anger, delivery", True), ((Piece("a", ""),), True)):
        one = Example("1", (), "x", 0.5, (("shared", "x", True), ("separate", answer, False)))
        assert one.has_long_answers == is_long


def test_a_similarity_is_measured_by_its_distance(
    source: Source, found: dict[str, TaskErrors]
) -> None:
    of = found["similarity"]
    rows = predictions(source, of.candidates[0], "similarity")
    for line in of.tables[1].rows:
        low, high = map(float, line[0].text.split(" to "))
        off = [
            abs(float(row["prediction"]) - float(row["label"]))
            for row in rows
            if low <= float(row["label"]) < high or float(row["label"]) == high == 5
        ]
        assert line[1].value == len(off)
        assert line[2].value == pytest.approx(sum(off) / len(off))


def break_nothing(file: Path) -> None:
    file.write_text(file.read_text("utf-8").replace("a", "b", 1), "utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [(Path.unlink, "no longer exists"), (break_nothing, "has changed since the training")],
)
def test_ids_where_a_file_is_gone_or_changed(tmp_path: Path, change: Any, words: str) -> None:
    folder = make_survey(tmp_path, ("shared", "separate"))
    change(folder / "data" / "sentiment-validation.csv")
    found = errors_in(read_source(folder))
    of = found["sentiment"]
    assert words in of.note and "Ids are shown instead of texts" in of.note
    assert of.worst and all(one.texts == () and one.id for one in of.worst)
    assert [table.name for table in of.tables] == ["sentiment-by-label"]
    assert found["paraphrase"].worst[0].texts


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the records of all trials, as a stranger can."""
    for path in folder.glob("trials/*/record.json"):
        record = json.loads(path.read_text("utf-8"))
        change(record)
        path.write_text(json.dumps(record), "utf-8")


def without_digests(record: dict[str, Any]) -> None:
    record["meta_info"]["data_sha256"] = {}


@pytest.mark.parametrize("is_known", [True, False])
def test_texts_of_another_file_are_not_shown(tmp_path: Path, is_known: bool) -> None:
    """A stranger's record names a file of mine, with its digest or without."""
    folder = make_survey(tmp_path / "survey", ("shared", "separate"))
    own = folder / "data" / "sentiment-validation.csv"
    secret = tmp_path / "secret.csv"
    secret.write_bytes(own.read_bytes().replace(b"a", b"secret"))

    def name(record: dict[str, Any]) -> None:
        record["run_info"]["recipe"]["tasks"]["sentiment"]["test"] = str(secret)
        record["run_info"]["recipe"]["tasks"]["sentiment"]["validation"] = str(secret)
        digest = file_digest(secret) if is_known else file_digest(own)
        record["meta_info"]["data_sha256"][str(secret)] = digest
        if is_known:  # and beside the training files by a link
            (folder / "data" / "link.csv").unlink(missing_ok=True)
            (folder / "data" / "link.csv").symlink_to(secret)
            record["run_info"]["recipe"]["tasks"]["sentiment"]["validation"] = str(
                folder / "data" / "link.csv"
            )
            record["meta_info"]["data_sha256"][str(folder / "data" / "link.csv")] = "0" * 64

    forge(folder, name)
    of = errors_in(read_source(folder))["sentiment"]
    assert "Ids are shown instead of texts" in of.note
    assert all(one.texts == () for one in of.worst)


def test_records_without_digests_show_ids(tmp_path: Path) -> None:
    folder = make_survey(tmp_path, ("shared", "separate"))
    forge(folder, without_digests)
    of = errors_in(read_source(folder))["sentiment"]
    assert "no digest of" in of.note and all(one.texts == () for one in of.worst)


def test_a_file_elsewhere_is_not_shown(tmp_path: Path) -> None:
    folder = make_survey(tmp_path / "survey", ("shared", "separate"), on="test")
    elsewhere = tmp_path / "elsewhere.csv"

    def move(record: dict[str, Any]) -> None:
        entry, digests = record["run_info"]["recipe"]["tasks"]["sentiment"], record["meta_info"]
        elsewhere.write_bytes(Path(entry["test"]).read_bytes())
        digests["data_sha256"][str(elsewhere)] = file_digest(elsewhere)
        entry["test"] = str(elsewhere)

    forge(folder, move)
    assert "outside the folder" in errors_in(read_source(folder))["sentiment"].note


def test_a_broken_file_of_predictions_is_named(tmp_path: Path) -> None:
    folder = make_survey(tmp_path, PLANS[:3])
    made = read_source(folder)
    (trial, *_) = made.trials_of("separate")
    trial.predictions("sentiment", "report").write_text("id,prediction\nx\n", "utf-8")
    found = errors_in(made)
    assert "separate" not in found["sentiment"].candidates
    assert "Left out: separate" in found["sentiment"].note
    assert "separate" in found["paraphrase"].candidates


def test_one_candidate_has_nobody_to_be_alone_among(tmp_path: Path) -> None:
    made = read_source(make_survey(tmp_path, ("shared",), on="test"))
    for of in errors_in(made).values():
        assert of.candidates == ("shared",) and of.worst and not of.only
        assert "test rows" in of.note


def test_validation_that_was_split_off_has_its_texts(tmp_path: Path) -> None:
    """Rows of a `split` are found again in the training file."""
    folder = make_survey(tmp_path, ("shared", "separate"), split=0.3, rows=60)
    of = errors_in(read_source(folder))["sentiment"]
    assert of.worst and all(one.texts for one in of.worst)
    assert {one.id.partition("-")[0] for one in of.worst} <= {"train", "twice", "leak"}
