"""Known folders of data as tasks of a recipe: the CS224N files, GLUE and similar sets.

The knowledge is a table: a new data set is a new line in FILE_SETS or FOLDERS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
GOLD = ("gold_label", "label")
RELATED = ("relatedness", "relatedness_score")
ENTAILED = ("entailment", "entailment_label", "entailment_judgment")


@dataclass(frozen=True)
class KnownTask:
    """One known task: the columns it may have, and further keys of its entry in a recipe."""

    task: str
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] = LABEL
    keys: Entry = field(default_factory=dict)

    def entry(self, files: dict[str, str]) -> Entry | None:
        """The task's entry in a recipe; None when the training file has other columns."""
        columns = open_table(files["train"]).columns
        text = next((texts for texts in self.texts if set(texts) <= set(columns)), None)
        label = next((name for name in self.labels if name in columns), None)
        if text is None or label is None:
            return None
        # Public sets hold a few broken rows (quora, QQP, CR) that their users cannot correct.
        skip: Entry = {"on_bad_row": "skip"}
        kind = task_type(len(text) == 2, "range" in self.keys)
        return kind | columns_entry(text, label) | self.keys | splits_entry(files) | skip


def task_type(is_pair: bool, has_range: bool) -> Entry:
    kind = "pair_classification" if is_pair else "classification"
    return {"type": "similarity" if has_range else kind}


def columns_entry(text: tuple[str, ...], label: str) -> Entry:
    return {"text": text[0] if len(text) == 1 else list(text), "label": label}


def splits_entry(files: dict[str, str]) -> Entry:
    """The files of a task; without a validation file a part of the training rows is split off."""
    return {**files, **({} if "validation" in files else {"split": SPLIT_WITHOUT_VALIDATION})}


# CS224N: file name up to the split -> task.
FILE_SETS = {
    "ids-sst": KnownTask("sentiment", SENTENCE, ("sentiment",), {"labels": [0, 1, 2, 3, 4]}),
    "quora": KnownTask("paraphrase", SENTENCES, ("is_duplicate",), {"labels": [0, 1]}),
    "sts": KnownTask("similarity", SENTENCES, ("similarity",), {"range": [0, 5]}),
    "ids-cfimdb": KnownTask(
        "movies", SENTENCE, ("sentiment",), {"labels": [0, 1], "optional": True}
    ),
}
FILE_SET_SPLITS = {"train": ("train",), "validation": ("dev",), "test": ("test-student", "test")}

# Folder name without signs and capitals -> tasks.
FOLDERS = {
    "cola": (KnownTask("cola", SENTENCE, keys={"score": "matthews"}),),
    "cr": (KnownTask("cr", SENTENCE),),
    "mnli": (KnownTask("mnli", SENTENCES, GOLD),),
    "mpqa": (KnownTask("mpqa", SENTENCE),),
    "mrpc": (KnownTask("mrpc", STRINGS, ("Quality", *LABEL)),),
    "qnli": (KnownTask("qnli", QUESTION_AND_SENTENCE),),
    "qqp": (KnownTask("qqp", QUESTIONS, ("is_duplicate", "label")),),
    "rte": (KnownTask("rte", SENTENCES),),
    "sick": (
        KnownTask("sick-relatedness", SENTENCES, RELATED, {"range": [1, 5]}),
        KnownTask("sick-entailment", SENTENCES, ENTAILED),
    ),
    "snlicad": (KnownTask("snli-cad", SENTENCES, GOLD),),
    "sst2": (KnownTask("sst2", SENTENCE),),
    "stsb": (KnownTask("stsb", SENTENCES, ("score", "similarity", "label"), {"range": [0, 5]}),),
    "subj": (KnownTask("subj", SENTENCE),),
    "trec": (KnownTask("trec", SENTENCE),),
    "wnli": (KnownTask("wnli", SENTENCES),),
}
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
    tasks: dict[str, Entry] = {}
    for prefix, known in FILE_SETS.items():
        splits = {name: [f"{prefix}-{w}" for w in words] for name, words in FILE_SET_SPLITS.items()}
        tasks |= _entries((known,), _find_files(root, splits))
    for place in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        known_tasks = FOLDERS.get(re.sub("[^a-z0-9]", "", place.name.lower()), ())
        tasks |= _entries(known_tasks, _find_files(place, FOLDER_SPLITS))
    return tasks


def _entries(tasks: Iterable[KnownTask], files: dict[str, str]) -> dict[str, Entry]:
    if "train" not in files:
        return {}
    entries = {known.task: known.entry(files) for known in tasks}
    return {name: entry for name, entry in entries.items() if entry is not None}


def _find_files(folder: Path, splits: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Split -> path of its file; a set of one file trains on it and splits it (QNLI's is dev)."""
    files = {}
    for split, stems in splits.items():
        candidates = (folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS)
        if path := next((path for path in candidates if path.is_file()), None):
            files[split] = str(path)
    return {"train": files["validation"]} if set(files) == {"validation"} else files
