"""Tasks from a folder of files: known data sets (CS224N, GLUE and similar), or inferred ones.

A new known data set is a new line in known_data_sets.yaml.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mops.data.tables import DataTable, open_table
from mops.errors import DataError
from mops.kinds.classes import are_numbers, canonical_label
from mops.yaml_io import read_yaml

Entry = dict[str, object]  # of a task in a recipe
Files = dict[str, str]  # split -> path
Names = Sequence[str]  # of columns, the preferred one first; a pair is written "one|other"

KNOWN = read_yaml(Path(__file__).with_name("known_data_sets.yaml"))
TEXTS, LABELS = tuple(KNOWN["texts"]), tuple(KNOWN["labels"])
ENDINGS = (".tsv", ".csv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


def task_entry(text: list[str], label: str, files: Files, keys: Entry) -> Entry:
    """The entry of a task; without a validation file a part of the training rows is split off."""
    kind = "pair_classification" if len(text) == 2 else "classification"
    return {
        "type": "similarity" if "range" in keys else kind,
        "text": text[0] if len(text) == 1 else text,
        "label": label,
        **keys,
        **files,
        **({} if "validation" in files else {"split": 0.1}),
    }


def first_known(names: Names, columns: Names) -> list[str]:
    """The columns of the first known name, as the file spells them."""
    spelling = {column.lower(): column for column in columns}
    known = (name.split("|") for name in names)
    return next(([spelling[n] for n in pair] for pair in known if set(pair) <= set(spelling)), [])


@dataclass(frozen=True)
class KnownTask:
    """One known task: its number of texts, further keys of its entry, columns of its label."""

    task: str
    texts: int
    keys: Entry = field(default_factory=dict)
    labels: Names = LABELS

    def entry(self, files: Files) -> Entry:
        """The task's entry in a recipe; empty when the training file has other columns."""
        columns = open_table(files["train"]).columns
        texts = tuple(name for name in TEXTS if len(name.split("|")) == self.texts)
        text, label = first_known(texts, columns), first_known(self.labels, columns)
        return task_entry(text, label[0], files, self.keys) if text and label else {}


# Names of files up to the split, or of folders -> the tasks in them.
FILE_SETS, FOLDERS = (
    {name: [KnownTask(**task) for task in tasks] for name, tasks in KNOWN[kind].items()}
    for kind in ("files", "folders")
)


def recognise(folder: str | Path) -> dict[str, Entry]:
    """The entries for a recipe's `tasks` that a known folder gives; empty when it is unknown."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise DataError(
            f"data folder {folder} does not exist or is a file; allowed: a folder with data files; "
            "correct --data"
        )
    sets: list[tuple[Files, Sequence[KnownTask]]] = []
    for prefix, tasks in FILE_SETS.items():
        sets.append((_find_files(root, KNOWN["file_splits"], f"{prefix}-"), tasks))
    for place in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        tasks = FOLDERS.get(re.sub("[^a-z0-9]", "", place.name.lower()), [])
        sets.append((_find_files(place, KNOWN["folder_splits"]), tasks))
    entries = ((k.task, k.entry(files)) for files, tasks in sets for k in tasks if "train" in files)
    # Public sets hold a few broken rows (quora, QQP, CR) that their users cannot correct.
    return {name: {**entry, "on_bad_row": "skip"} for name, entry in entries if entry}


def _find_files(folder: Path, splits: Mapping[str, Iterable[str]], prefix: str = "") -> Files:
    """Split -> path of its file; a set of one file trains on it and splits it (QNLI's is dev)."""
    files = {}
    for split, stems in splits.items():
        candidates = (folder / f"{prefix}{stem}{ending}" for stem in stems for ending in ENDINGS)
        if path := next((path for path in candidates if path.is_file()), None):
            files[split] = str(path)
    return {"train": files["validation"]} if set(files) == {"validation"} else files


SPLIT_WORDS = {
    "train": "train", "training": "train", "test": "test",
    "dev": "validation", "val": "validation", "valid": "validation", "validation": "validation",
}  # fmt: skip
MANY_VALUES = 10


def infer_tasks(folder: str | Path) -> tuple[dict[str, Entry], list[str]]:
    """A task for every set of files (train, dev, test) in the folder and in its sub-folders.

    Also `file: reason` for every file that is left out. Hidden files are ignored.
    """
    root = Path(folder).resolve()
    paths = [path for pattern in ("*", "*/*") for path in sorted(root.glob(pattern))]
    names = {path: path.relative_to(root) for path in paths if path.is_file()}
    shown = [path for path, name in names.items() if not re.search(r"(^|/)\.", name.as_posix())]
    tasks: dict[str, Entry] = {}
    skipped = [
        f"{names[path]}: not a table; export it as csv, tsv, jsonl or parquet"
        for path in shown
        if path.suffix.lower() not in (*ENDINGS, ".md", ".yaml", ".yml")
    ]
    for stem, files in _sets_of_files(root, shown).items():
        try:
            tasks[_free_name(stem, tasks)] = _infer_entry(files)
        except DataError as error:
            skipped += [f"{names[Path(path)]}: {error}" for path in files.values()]
    return tasks, skipped


def _sets_of_files(root: Path, paths: Iterable[Path]) -> dict[str, Files]:
    """Name of the set -> split -> path: the split's word is removed from the file's name."""
    sets: dict[str, Files] = defaultdict(dict)
    for path in paths:
        if path.suffix.lower() in ENDINGS:
            words = re.split("[-_.]", path.stem)
            splits = [word for word in words if word.lower() in SPLIT_WORDS]
            rest = "-".join(word for word in words if word not in splits)
            inside = "" if path.parent == root else path.parent.name
            name = "-".join(filter(None, (inside, rest))) or root.name
            split = SPLIT_WORDS[splits[-1].lower()] if splits else "train"
            name = str(path.relative_to(root)) if split in sets[name] else name
            sets[name][split] = str(path)
    return sets


def _free_name(stem: str, taken: dict[str, Entry]) -> str:
    """The stem as a valid task name, with a number when it is taken."""
    name = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_") or "task"
    return name if name not in taken else _free_name(f"{name}-2", taken)


def _infer_entry(files: Files) -> Entry:
    train = files.get("train", files.get("validation"))
    if train is None:
        raise DataError("there is no training file beside it")
    others = {s: files[s] for s in ("validation", "test") if files.get(s, train) != train}
    table = open_table(train)
    text, label = first_known(TEXTS, table.columns), first_known(LABELS, table.columns)
    for kind, columns, known in (("text", text, TEXTS), ("label", label, LABELS)):
        if not columns:
            there = ", ".join(column or "(unnamed)" for column in table.columns)
            raise DataError(f"no {kind} column among {there}; known: {', '.join(known)}")
    keys = _range(table, label[0], is_pair=len(text) == 2)
    return task_entry(text, label[0], {"train": train, **others}, keys)


def _range(table: DataTable, label: str, *, is_pair: bool) -> Entry:
    """The range of a similarity; empty for classes."""
    values = {canonical_label(record.values.get(label, "")) for record in table.records()} - {""}
    if len(values) < 2:
        raise DataError(f"column {label!r} holds {len(values)} value(s); two are needed")
    numbers = [float(value) for value in values] if are_numbers(values) else []
    has_fractions = any(not number.is_integer() for number in numbers)
    if not is_pair and has_fractions and len(values) > MANY_VALUES:
        raise DataError(f"{label!r} is a number for a single text; mops has no such task")
    if is_pair and (has_fractions or len(numbers) > MANY_VALUES):
        return {"range": [math.floor(min(numbers)), math.ceil(max(numbers))]}
    return {}
