"""Known folders need no recipe; for unknown ones a first recipe is inferred."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.data.folders import infer_tasks, recognise
from mops.data.starter import starter
from mops.errors import DataError
from mops.tasks import NAME


def write(path: Path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path.resolve())


def cs224n(root: Path) -> None:
    one, two = "\tid\tsentence\tsentiment", "\tid\tsentence1\tsentence2\t"
    for prefix, header, row in (
        ("ids-sst", one, "0\ta\tgood\t3"),
        ("ids-cfimdb", one, "0\ta\tgood\t1"),
        ("quora", two + "is_duplicate", "0\ta\tx\ty\t1.0"),
        ("sts", two + "similarity", "0\ta\tx\ty\t3.8"),
    ):
        write(root / f"{prefix}-train.csv", header, row)
        write(root / f"{prefix}-dev.csv", header, row)
        write(root / f"{prefix}-test-student.csv", header, row)


def test_cs224n_files_are_four_tasks(tmp_path: Path) -> None:
    cs224n(tmp_path)
    tasks = recognise(tmp_path)
    assert list(tasks) == ["sentiment", "paraphrase", "similarity", "movies"]
    assert tasks["sentiment"] == {
        "type": "classification",
        "text": "sentence",
        "label": "sentiment",
        "labels": [0, 1, 2, 3, 4],
        "train": str(tmp_path / "ids-sst-train.csv"),
        "validation": str(tmp_path / "ids-sst-dev.csv"),
        "test": str(tmp_path / "ids-sst-test-student.csv"),
        "on_bad_row": "skip",
    }
    assert tasks["paraphrase"]["type"] == "pair_classification"
    assert tasks["similarity"]["range"] == [0, 5]
    assert [name for name, entry in tasks.items() if "optional" in entry] == ["movies"]


PAIR = "sentence1\tsentence2\tlabel"
MNLI = "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label"


@pytest.mark.parametrize(
    ("file", "header", "task", "expected"),
    [
        ("CoLA/train.tsv", "sentence\tlabel", "cola", {"score": "matthews", "text": "sentence"}),
        ("CR/all.tsv", "sentence\tlabel", "cr", {"split": 0.1}),
        ("MNLI/train.tsv", MNLI, "mnli", {"label": "gold_label"}),
        ("MRPC/train.tsv", PAIR, "mrpc", {"label": "label", "split": 0.1}),
        ("MRPC/train.tsv", "Quality\t#1 String\t#2 String", "mrpc", {"label": "Quality"}),
        ("QNLI/dev.tsv", "question\tsentence\tlabel", "qnli", {"text": ["question", "sentence"]}),
        ("QQP/train.tsv", "question1\tquestion2\tis_duplicate", "qqp", {"label": "is_duplicate"}),
        ("RTE/train.tsv", "premise\thypothesis\tlabel", "rte", {"text": ["premise", "hypothesis"]}),
        ("SNLI-CAD/train_all.tsv", PAIR, "snli-cad", {"type": "pair_classification"}),
        ("SST-2/train.tsv", "sentence\tlabel", "sst2", {"type": "classification"}),
        ("STS-B/train.tsv", "sentence1\tsentence2\tscore", "stsb", {"range": [0, 5]}),
        ("stsb/train.tsv", PAIR, "stsb", {"type": "similarity", "label": "label"}),
        ("SUBJ/all.tsv", "sentence\tlabel", "subj", {}),
        ("MPQA/all.tsv", "sentence\tlabel", "mpqa", {}),
        ("TREC/train.tsv", "text\tlabel", "trec", {"text": "text"}),
        ("WNLI/train.tsv", PAIR, "wnli", {}),
    ],
)
def test_glue_folders_are_tasks(
    tmp_path: Path, file: str, header: str, task: str, expected: dict[str, object]
) -> None:
    train = write(tmp_path / file, header, "\t".join("1" for _ in header.split("\t")))
    for folder in (tmp_path, (tmp_path / file).parent):
        found = recognise(folder)
        assert list(found) == [task]
        assert found[task] | expected | {"train": train} == found[task]


def test_glue_splits_go_by_their_names(tmp_path: Path) -> None:
    rows = ("sentence1\tsentence2\tgold_label", "a\tb\tneutral")
    names = ("train", "dev_matched", "dev_mismatched", "test_matched")
    train, matched, _, test = (write(tmp_path / "MNLI" / f"{name}.tsv", *rows) for name in names)
    entry = recognise(tmp_path)["mnli"]
    assert (entry["train"], entry["validation"], entry["test"]) == (train, matched, test)
    assert "split" not in entry


def test_sick_is_two_tasks(tmp_path: Path) -> None:
    write(
        tmp_path / "SICK/train.tsv", "sentence1\tsentence2\trelatedness\tentailment", "a\tb\t1\tN"
    )
    tasks = recognise(tmp_path)
    assert tasks["sick-relatedness"]["range"] == [1, 5]
    assert tasks["sick-entailment"]["type"] == "pair_classification"


def test_what_is_unknown_is_not_recognised(tmp_path: Path) -> None:
    write(tmp_path / "mine/train.csv", "text,label", "a,1")
    write(tmp_path / "RTE/other.tsv", PAIR, "a\tb\t1")
    assert recognise(tmp_path) == {}
    with pytest.raises(DataError, match="does not exist"):
        recognise(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "header", "found"),
    [
        ("quora-train.csv", "\tid\tfirst\tsecond\tis_duplicate", "paraphrase.*first, second"),
        ("CoLA/train.tsv", "gj04\t1\t\tno header here", "cola.*gj04, 1"),
        ("sts-dev.csv", "\tid\tsentence1\tsentence2\tsimilarity", "similarity.*no training file"),
        ("SICK/train.tsv", "sentence1\tsentence2\tother", "sick-relatedness or sick-entailment"),
    ],
)
def test_a_known_file_that_cannot_be_used_does_not_vanish(
    tmp_path: Path, file: str, header: str, found: str
) -> None:
    """With its task the overall score would change, without a word."""
    cs224n(tmp_path)
    (tmp_path / file.replace("dev", "train")).unlink(missing_ok=True)
    path = write(tmp_path / file, header, "\t".join("1" for _ in header.split("\t")))
    with pytest.raises(DataError, match=found) as caught:
        recognise(tmp_path)
    assert path in str(caught.value) and "\n" not in str(caught.value)
    assert "sentiment" in infer_tasks(tmp_path)[0]  # `mops init` decides by the content


def test_own_files_are_grouped_by_name(tmp_path: Path) -> None:
    rows = ("Review,Stars", "good one,5", "bad one,1", "so so,3")
    train = write(tmp_path / "My Shop.training.csv", *rows)
    valid = write(tmp_path / "My Shop.valid.csv", *rows)
    test = write(tmp_path / "test_My Shop.csv", *rows)
    tasks, skipped = infer_tasks(tmp_path)
    assert skipped == []
    assert {name: proposal.entry for name, proposal in tasks.items()} == {
        "my-shop": {
            "type": "classification",
            "text": "Review",
            "label": "Stars",
            "train": train,
            "validation": valid,
            "test": test,
        }
    }


def test_own_sub_folders_are_tasks(tmp_path: Path) -> None:
    rows = (f'{{"text": "row {n}", "label": "{"xy"[n % 2]}"}}' for n in range(9))
    train = write(tmp_path / "topics" / "train.jsonl", *rows)
    write(tmp_path / ".hidden" / "train.csv", "text,label", "a,1")
    write(tmp_path / "nli" / "dev.csv", "premise,hypothesis,label", "a,b,1", "c,d,0", "e,f,0")
    tasks = infer_tasks(tmp_path)[0]
    assert list(tasks) == ["nli", "topics"]
    assert tasks["topics"].entry == {
        "type": "classification",
        "text": "text",
        "label": "label",
        "train": train,
        "split": 0.1,
    }
    assert tasks["nli"].entry["type"] == "pair_classification"
    assert list(infer_tasks(tmp_path / "topics")[0]) == ["topics"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["0.5", "4.2", "3"], {"type": "similarity", "range": [0, 5]}),
        ([str(n) for n in range(11)], {"type": "similarity", "range": [0, 10]}),
        (["1.0", "0.0", ""], {"type": "pair_classification"}),
        (["1.5", "no"], {"type": "pair_classification"}),
        (["1", "2", "nan"], {"type": "pair_classification", "labels": ["1", "2"]}),
    ],
)
def test_type_of_pairs_follows_from_their_labels(
    tmp_path: Path, labels: list[str], expected: dict[str, object]
) -> None:
    rows = [f"a {n},b {n},{label}" for n, label in enumerate(labels * 2)]
    write(tmp_path / "pairs.csv", "question1,question2,target", *rows)
    entry = infer_tasks(tmp_path)[0]["pairs"].entry
    assert entry | expected == entry
    assert ("range" in entry) == ("range" in expected)


def test_files_not_understood_are_listed_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "notes.md", "not worth a word")
    write(tmp_path / "sheet.xlsx", "PK")
    write(tmp_path / "empty.csv", "")
    write(tmp_path / "lonely_test.csv", "text,label", "a,1", "b,0")
    write(tmp_path / "odd.csv", ",verse", "0,a", "1,b")
    write(tmp_path / "plain.csv", "text,x", "a,1")
    write(tmp_path / "same.csv", "text,label", "a,1", "b,1.0")
    tasks, skipped = infer_tasks(tmp_path)
    assert tasks == {}
    reasons = dict(line.split(": ", 1) for line in skipped)
    assert "not a table" in reasons["sheet.xlsx"]
    assert "no rows" in reasons["empty.csv"]
    assert "no training file" in reasons["lonely_test.csv"]
    assert "no label column; its columns: (unnamed)" in reasons["odd.csv"]
    assert "x (only the value '1')" in reasons["plain.csv"]
    assert "have the label '1'" in reasons["same.csv"]
    assert len(reasons) == 6


def test_one_file_is_enough(tmp_path: Path) -> None:
    train = write(
        tmp_path / "My mood-dev.csv", "text,label", *(f"a {n},{n % 2}" for n in range(40))
    )
    write(tmp_path / "other.csv", "text,label", "a,1", "b,0", "c,1")
    tasks, skipped = infer_tasks(train)
    assert skipped == [] and list(tasks) == ["my-mood-dev"]
    assert tasks["my-mood-dev"].entry["train"] == train
    path = write(tmp_path / "odd.csv", "x,y", "1,1", "1,1")
    assert infer_tasks(path) == ({}, ["odd.csv: no text column; its columns: x (only the value "
                                      "'1'); y (only the value '1')"])  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "rare", "comments"),
    [
        (400, 40, ()),
        (400, 1, ("# class_weights: \"balanced\"  # 399 rows are 'no', 1 'yes'",)),
        (300, 40, ("#   folds: 5                 # for few rows (mood has 300)",)),
    ],
)
def test_rare_classes_and_few_rows_have_a_proposal(
    tmp_path: Path, rows: int, rare: int, comments: tuple[str, ...]
) -> None:
    lines = [f"a {n},{'yes' if n < rare else 'no'}" for n in range(rows)]
    write(tmp_path / "mood.csv", "text,mood", *lines)
    text = starter(*infer_tasks(tmp_path), tmp_path)
    assert [line in text for line in comments] == [True] * len(comments)
    assert ("class_weights" in text) + ("folds" in text) == len(comments)


def test_long_files_are_sampled_and_read_whole_before_they_are_written(tmp_path: Path) -> None:
    """The first rows all have one label, the range ends in the last row, and one row is bad."""
    rows = [f"a {n},b {n},{n // 5500},{n % 40 / 10}" for n in range(7000)]
    path = write(tmp_path / "long.csv", "one,other,mood,score", *rows, "x,y,1,9.5", "x,,0,1")
    tasks, skipped = infer_tasks(tmp_path)
    assert skipped == [] and list(tasks) == ["mood", "score"]
    assert tasks["mood"].why["train"] == "decided by one row in 2 of about 7,003 rows"
    assert tasks["score"].entry["range"] == [0, 10]
    assert tasks["score"].entry["on_bad_row"] == "skip"
    assert "long.csv: 1 rows cannot be used: long.csv:7003 other" in tasks["mood"].why["on_bad_row"]
    Path(path).write_text("text,label\n" + "".join(f"a {n},{n % 2}\n" for n in range(5001)))
    assert infer_tasks(tmp_path)[0]["long"].why["train"].startswith("decided by the first 5,000 of")


def test_own_files_beside_known_ones_are_tasks_too(tmp_path: Path) -> None:
    cs224n(tmp_path)
    rows = ("text,label", "a,1", "b,0", "c,1")
    write(tmp_path / "own.csv", *rows)
    write(tmp_path / "CoLA/train.tsv", "sentence\tlabel", "a\t1")
    write(tmp_path / "CoLA/dev_ood.tsv", "sentence\tlabel", "a\t1")
    tasks, skipped = infer_tasks(tmp_path)
    assert list(tasks) == ["sentiment", "paraphrase", "similarity", "movies", "cola", "own"]
    assert tasks["cola"].entry == recognise(tmp_path)["cola"]
    assert skipped == ["CoLA/dev_ood.tsv: not one of the files of the known cola"]


def test_proposed_names_are_valid_and_differ(tmp_path: Path) -> None:
    rows = ("text,label", "a,1", "b,0", "c,1")
    for name in ("A b", "a-b", "a_b", "ä", "train-x", "x.train"):
        write(tmp_path / f"{name}.csv", *rows)
    tasks = infer_tasks(tmp_path)[0]
    assert len(tasks) == 6
    assert all(NAME.fullmatch(name) for name in tasks)
