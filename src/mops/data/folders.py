"""Tasks from a folder of files: known data sets (CS224N, GLUE and similar), or inferred ones.

A new known data set is a new line in known_data_sets.yaml.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mops.data.columns import KNOWN, LABELS, SPLIT_WORDS, TEXTS
from mops.data.dataset import SPLITS
from mops.data.decisions import Entry
from mops.data.inference import Files, Proposal, infer_set, to_name
from mops.data.tables import TAGGED_ENDINGS, is_table, open_table
from mops.errors import DataError, UsageError

Names = Sequence[str]  # of columns, the preferred one first; a pair is written "one|other"

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


def recognise(folder: str | Path, unusable: list[str] | None = None) -> dict[str, Entry]:
    """The entries for a recipe's `tasks` that a known folder gives; empty when it is unknown.

    Files with the name of a known task that cannot be used are an error, or listed in `unusable`.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise DataError(
            f"data folder {folder} does not exist; allowed: a folder with data files, or a data "
            "file; correct its name"
        )
    sets: list[tuple[Files, Sequence[KnownTask]]] = []
    for prefix, tasks in FILE_SETS.items():
        sets.append((_find_files(root, KNOWN["file_splits"], f"{prefix}-"), tasks))
    for place in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        sets.append((_find_files(place, KNOWN["folder_splits"]), known_folder(place)))
    entries: dict[str, Entry] = {}
    for files, known in ((files, known) for files, known in sets if files and known):
        own = {k.task: k.entry(files) for k in known if "train" in files}
        # Public sets hold a few broken rows (quora, QQP, CR) that their users cannot correct.
        entries |= {name: {**entry, "on_bad_row": "skip"} for name, entry in own.items() if entry}
        if not any(own.values()):
            problem = describe_unusable(files, [k.task for k in known])
            if unusable is None:
                raise DataError(problem)
            unusable.append(problem)
    return entries


def describe_unusable(files: Files, tasks: Names) -> str:
    path = files.get("train") or next(iter(files.values()))
    found = "there is no training file beside it"
    if "train" in files:
        found = f"its columns are {', '.join(open_table(path).columns)}"
    return (
        f"{path} has the name of the known task {' or '.join(tasks)} and cannot be used: {found}; "
        "correct the header, add the file or move it to another folder; `mops init` reads "
        "files of any columns"
    )


def known_folder(folder: Path) -> Sequence[KnownTask]:
    """The tasks of a folder with the name of a known data set."""
    return FOLDERS.get(re.sub("[^a-z0-9]", "", folder.name.lower()), ())


def _find_files(folder: Path, splits: Mapping[str, Iterable[str]], prefix: str = "") -> Files:
    """Split -> path of its file; a set of one file trains on it and splits it (QNLI's is dev)."""
    files = {}
    for split, stems in splits.items():
        candidates = (folder / f"{prefix}{stem}{ending}" for stem in stems for ending in ENDINGS)
        if path := next((path for path in candidates if path.is_file()), None):
            files[split] = str(path)
    return {"train": files["validation"]} if set(files) == {"validation"} else files


TABLES = (*ENDINGS, *TAGGED_ENDINGS)
PART = re.compile(r"[-_.]?(part|shard|chunk)[-_.]?\d+$|[-_.]\d+-of-\d+(-[0-9a-f]{16})?$")
FEW_TEXTS = 3  # files of a folder that are looked into
NO_DATA = (".md", ".yaml", ".yml")  # what describes a folder
Skipped = list[tuple[Path, str]]  # what is left out, and why


def infer_tasks(source: str | Path) -> tuple[dict[str, Proposal], list[str]]:
    """The tasks of a data file, or those of a folder: the known ones, and one or more for every
    other set of files in it.

    Files and sub-folders are read; a set is train, dev and test. Also `file: reason` for everything
    that is left out. Hidden files are ignored.
    """
    path = Path(source).resolve()
    if path.is_file():
        return _infer_sets(path.parent, {path.stem: {"train": str(path)}}, {}, {}, [])
    known = recognise(source, unusable=[])
    tasks = {name: Proposal(entry, {"": "a known data set"}) for name, entry in known.items()}
    read = {Path(str(e[split])): n for n, e in known.items() for split in SPLITS if split in e}
    paths = [each for pattern in ("*", "*/*") for each in sorted(path.glob(pattern))]
    shown = [each for each in paths if not re.search(r"(^|/)\.", str(each.relative_to(path)))]
    lone = _folders_of_texts(shown)
    skipped = [(each, reason) for each in shown if (reason := _no_table(each, path, read, lone))]
    left = [each for each in shown if each.is_file() and each.suffix.lower() not in NO_DATA]
    left = [each for each in left if each not in {*read, *(each for each, _ in skipped)}]
    sets, parts = _sets_of_files(path, left)
    return _infer_sets(path, _complete(sets, skipped), parts, tasks, skipped)


def _infer_sets(
    root: Path,
    sets: Mapping[str, Files],
    parts: Mapping[str, list[str]],
    tasks: dict[str, Proposal],
    skipped: Skipped,
) -> tuple[dict[str, Proposal], list[str]]:
    """The tasks with those of further sets of files, and all that is left out."""
    for stem, files in sets.items():
        try:
            proposals, reasons = infer_set(stem, files, parts)
            skipped += [(Path(file), reason) for file, reason in reasons]
            for name, proposal in proposals:
                long_name = name if name == stem or name not in tasks else f"{stem}-{name}"
                why = {key: text.replace(f"{root}/", "") for key, text in proposal.why.items()}
                tasks[free_name(long_name, tasks)] = replace(proposal, why=why)
        except (UsageError, OSError) as error:
            whole = [part for path in files.values() for part in (path, *parts.get(path, ()))]
            skipped += [(Path(path), str(error)) for path in whole]
    return tasks, _grouped(root, skipped)


def _folders_of_texts(paths: Iterable[Path]) -> set[Path]:
    """Folders whose files are texts without columns, as one folder for each class has them."""
    files: dict[Path, list[Path]] = defaultdict(list)
    for path in filter(Path.is_file, paths):
        files[path.parent].append(path)

    def are_texts(own: Sequence[Path]) -> bool:
        words = {word.lower() for path in own for word in re.split("[-_.]", path.stem)}
        is_plain = all(path.suffix.lower() == ".txt" for path in own)
        return is_plain and len(own) >= FEW_TEXTS and words.isdisjoint(SPLIT_WORDS)

    return {
        folder
        for folder, own in files.items()
        if are_texts(own) and not any(map(is_table, own[:FEW_TEXTS]))
    }


def _no_table(path: Path, root: Path, read: Mapping[Path, str], texts: Collection[Path]) -> str:
    """Why a path is left out before its columns are looked at; empty for others."""
    if path.is_dir():
        is_deep = path.parent != root and any(path.iterdir())
        return "a folder in a sub-folder; run mops init on it" if is_deep else ""
    if path in read or path.suffix.lower() in NO_DATA:
        return ""
    if path.parent in texts:
        return (
            "a file for each text; write them into one csv with a column for the text and one for "
            "its class, for example the name of the folder"
        )
    if path.suffix.lower() not in TABLES and not is_table(path):
        return "not a table; unpack it or export it as csv, tsv, jsonl or parquet"
    is_set = path.parent != root or bool(known_folder(root))
    beside = {name for file, name in read.items() if file.parent == path.parent and is_set}
    return f"not one of the files of the known {', '.join(sorted(beside))}" if beside else ""


def _grouped(root: Path, skipped: Skipped) -> list[str]:
    """`file: reason`; many files of a folder with one reason are one line."""
    groups: dict[tuple[Path, str], list[tuple[Path, str]]] = defaultdict(list)
    crowded = {p for p, count in Counter(path.parent for path, _ in skipped).items() if count > 50}
    for path, reason in skipped:
        told = reason.replace(f"{path}: ", "").replace(f"{root}/", "")
        kind = told.partition(";")[0] if path.parent in crowded else told
        groups[path.parent, kind].append((path, told))
    return [
        f"{path.relative_to(root)}{f' and {len(more):,} more' if more else ''}: {told}"
        for (path, told), *more in groups.values()
    ]


def _complete(sets: Mapping[str, Files], skipped: Skipped) -> dict[str, Files]:
    """Sets without training file join the only set of their folder that has their columns.

    out_of_domain_dev.tsv beside in_domain_train.tsv is such a file; names decide between several.
    """
    done = {name: dict(files) for name, files in sets.items() if "train" in files}
    for name, files in sets.items():
        if name in done:
            continue
        fitting = {n: f for n, f in done.items() if "train" in f and _fit(f["train"], files)}
        hosts = [f for n, f in fitting.items() if len(fitting) == 1 or name.startswith(n)]
        if len(hosts) != 1:
            done[name] = files
            continue
        for split, file in files.items():
            if split in hosts[0]:
                train = Path(hosts[0]["train"]).name
                skipped.append((Path(file), f"a further {split} file of {train}, which has one"))
            else:
                hosts[0][split] = file
    return {name: done[name] for name in sets if name in done}


def _fit(train: str, files: Files) -> bool:
    """Whether files in the folder of a training file have as many columns, or those that it has."""
    try:
        known = set(open_table(train).columns)
        return all(
            Path(file).parent == Path(train).parent
            and (len(there := open_table(file).columns) == len(known) or known > set(there))
            for file in files.values()
        )
    except DataError:
        return False


def _sets_of_files(
    root: Path, paths: Iterable[Path]
) -> tuple[dict[str, Files], dict[str, list[str]]]:
    """Name of the set -> split -> path: the split's word is removed from the file's name.

    Also the further parts of a file that was written in several (train-00001-of-00003).
    """
    sets: dict[str, Files] = defaultdict(dict)
    parts: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        is_named = path.suffix.lower() in TABLES  # else its ending may be a split: eng.train
        name_left = path.stem if is_named else path.name
        stem = PART.sub("", name_left)
        words = re.split("[-_.]", stem if path.parent == root else f"{path.parent.name}-{stem}")
        splits = [word for word in words if word.lower() in SPLIT_WORDS]
        name = "-".join(word for word in words if word not in splits) or root.name
        split = SPLIT_WORDS[splits[-1].lower()] if splits else "train"
        if split in sets[name] and stem != name_left:
            parts[sets[name][split]].append(str(path))
            continue
        name = str(path.relative_to(root)) if split in sets[name] else name
        sets[name][split] = str(path)
    return sets, parts


def free_name(stem: str, taken: Mapping[str, Proposal]) -> str:
    """The stem as a valid task name, with a number when it is taken."""
    name = to_name(stem)
    return name if name not in taken else free_name(f"{name}-2", taken)
