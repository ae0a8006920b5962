"""KnownTask folders of data as tasks of a recipe: the CS224N files, GLUE and its neighbours.

What is known is a table: a new data set is a new line in FILE_SETS or FOLDERS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mops.data.tables import open_table
from mops.errors import DataError

Entry = dict[str, object]

ENDINGS = (".tsv", ".csv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")
SPLIT_WITHOUT_VALIDATION = 0.1

SENTENCE = (("sentence",), ("text",))
SENTENCES = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("text", "text_pair"))
QUESTIONS = (("question1", "question2"), ("sentence1", "sentence2"))
QUESTION_AND_SENTENCE = (("question", "sentence"), ("question1", "question2"))
# The names in the Microsoft Research corpus itself, which GLUE's MRPC files keep.
STRINGS = (("#1 String", "#2 String"), *SENTENCES)
LABEL = ("label", "gold_label", "labels")


@dataclass(frozen=True, kw_only=True)
class KnownTask:
    """One known task: which columns it may have, and what its entry says beside them."""

    task: str
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] = LABEL
    says: tuple[tuple[str, object], ...] = ()

    def entry(self, files: dict[str, str]) -> Entry | None:
        """The task's entry in a recipe; None when the training file has other columns."""
        columns = open_table(files["train"]).columns
        text = next((texts for texts in self.texts if set(texts) <= set(columns)), None)
        label = next((name for name in self.labels if name in columns), None)
        if text is None or label is None:
            return None
        says = dict(self.says)
        kind = "classification" if len(text) == 1 else "pair_classification"
        entry: Entry = {"type": "similarity" if "range" in says else kind}
        entry |= {"text": text[0] if len(text) == 1 else list(text), "label": label}
        # Public sets hold a few broken rows (quora, QQP, CR); their users cannot mend them.
        return entry | says | files | split_unless_validation(files) | {"on_bad_row": "skip"}


# CS224N: file name up to the split -> task.
FILE_SETS = {
    "ids-sst": KnownTask(
        task="sentiment",
        texts=SENTENCE,
        labels=("sentiment",),
        says=(("labels", [0, 1, 2, 3, 4]),),
    ),
    "quora": KnownTask(
        task="paraphrase",
        texts=SENTENCES,
        labels=("is_duplicate",),
        says=(("labels", [0, 1]),),
    ),
    "sts": KnownTask(
        task="similarity",
        texts=SENTENCES,
        labels=("similarity",),
        says=(("range", [0, 5]),),
    ),
    "ids-cfimdb": KnownTask(
        task="movies",
        texts=SENTENCE,
        labels=("sentiment",),
        says=(("labels", [0, 1]), ("optional", True)),
    ),
}
FILE_SET_SPLITS = {"train": ("train",), "validation": ("dev",), "test": ("test-student", "test")}

# Folder name without signs and capitals -> tasks.
FOLDERS = {
    "cola": (KnownTask(task="cola", texts=SENTENCE, says=(("score", "matthews"),)),),
    "cr": (KnownTask(task="cr", texts=SENTENCE),),
    "mnli": (KnownTask(task="mnli", texts=SENTENCES, labels=("gold_label", "label")),),
    "mpqa": (KnownTask(task="mpqa", texts=SENTENCE),),
    "mrpc": (KnownTask(task="mrpc", texts=STRINGS, labels=("Quality", *LABEL)),),
    "qnli": (KnownTask(task="qnli", texts=QUESTION_AND_SENTENCE),),
    "qqp": (KnownTask(task="qqp", texts=QUESTIONS, labels=("is_duplicate", "label")),),
    "rte": (KnownTask(task="rte", texts=SENTENCES),),
    "sick": (
        KnownTask(
            task="sick-relatedness",
            texts=SENTENCES,
            labels=("relatedness", "relatedness_score"),
            says=(("range", [1, 5]),),
        ),
        KnownTask(
            task="sick-entailment",
            texts=SENTENCES,
            labels=("entailment", "entailment_label", "entailment_judgment"),
        ),
    ),
    "snlicad": (KnownTask(task="snli-cad", texts=SENTENCES, labels=("gold_label", "label")),),
    "sst2": (KnownTask(task="sst2", texts=SENTENCE),),
    "stsb": (
        KnownTask(
            task="stsb",
            texts=SENTENCES,
            labels=("score", "similarity", "label"),
            says=(("range", [0, 5]),),
        ),
    ),
    "subj": (KnownTask(task="subj", texts=SENTENCE),),
    "trec": (KnownTask(task="trec", texts=SENTENCE),),
    "wnli": (KnownTask(task="wnli", texts=SENTENCES),),
}
# A set of one file trains on it and splits it; QNLI's is called dev.
FOLDER_SPLITS = {
    "train": ("train", "train_all", "all"),
    "validation": ("dev", "dev_all", "dev_matched", "validation", "validation_matched"),
    "test": ("test", "test_all", "test_matched"),
}


def recognise(folder: str | Path) -> dict[str, Entry]:
    """The entries for a recipe's `tasks` that a known folder gives; empty when it is unknown."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise DataError(
            f"data folder {folder} does not exist or is a file; allowed: a folder with data files; "
            "correct --data"
        )
    found: dict[str, Entry] = {}
    for prefix, known in FILE_SETS.items():
        splits = {name: [f"{prefix}-{w}" for w in words] for name, words in FILE_SET_SPLITS.items()}
        found |= _entries((known,), _find_files(root, splits))
    for place in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        tasks = FOLDERS.get(re.sub("[^a-z0-9]", "", place.name.lower()), ())
        found |= _entries(tasks, _find_files(place, FOLDER_SPLITS))
    return found


def split_unless_validation(files: dict[str, str]) -> Entry:
    return {} if "validation" in files else {"split": SPLIT_WITHOUT_VALIDATION}


def _entries(tasks: Iterable[KnownTask], files: dict[str, str]) -> dict[str, Entry]:
    if "train" not in files:
        return {}
    entries = {known.task: known.entry(files) for known in tasks}
    return {name: entry for name, entry in entries.items() if entry is not None}


def _find_files(folder: Path, splits: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Split -> path of its file."""
    files = {}
    for split, stems in splits.items():
        candidates = (folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS)
        if path := next((path for path in candidates if path.is_file()), None):
            files[split] = str(path)
    if set(files) == {"validation"}:
        return {"train": files["validation"]}
    return files
