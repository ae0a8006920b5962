"""Tasks told from the content of files: which column is the text, which are labels, and why."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from math import ceil, floor
from pathlib import Path

from mops.config.training import TaskEntry
from mops.data.columns import (
    KNOWN,
    MANY_VALUES,
    SPLIT_WORDS,
    TEXTS,
    Column,
    is_label_name,
    is_named,
    is_text_name,
    json_list,
)  # fmt: skip
from mops.data.dataset import SPLITS, first_problems, prepare_split, read_task, stream_rows
from mops.data.readers import open_text
from mops.data.tables import JSON_ENDINGS, open_table, words_width
from mops.errors import DataError, RecipeError, UsageError
from mops.tasks import TYPES
from mops.yaml_io import to_value

Entry = dict[str, object]  # of a task in a recipe
Files = dict[str, str]  # split -> path
Columns = Sequence[Column]
Reasons = list[tuple[str, str]]  # file, why it is left out
SAMPLE_ROWS = 5_000
SIDES = re.compile(r"[_ -]?(1|2|a|b|left|right)$", re.IGNORECASE)
MANY_LABELS = 20
RANGED = ("similarity", "regression")
FEW_FLAGS = 3  # so many columns of 0 and 1 are the labels of one task


@dataclass(frozen=True)
class Decision:
    """One task that a table seems to hold; `why` has a reason for each key of its entry."""

    kind: str
    text: tuple[str, ...]
    label: tuple[str, ...]
    about: str  # the label column
    keys: Entry = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    """The entry of a task in a recipe, and a comment on each of its keys ("" on the task)."""

    entry: Entry
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """The columns of a file by some of its rows; `names` are set where it has no header line."""

    columns: Columns
    names: tuple[str, ...]
    how: str  # which rows were read; empty when all
    twice: tuple[str, ...]  # names of several columns

    @cached_property
    def about(self) -> str:
        parts = [f"{c.name or '(unnamed)'} ({c.about})" for c in self.columns]
        return "; ".join([*parts, *(f"{name} (occurs twice in the header)" for name in self.twice)])


def read_sample(file: str) -> Sample:
    """The columns of a file by its first rows, or by rows from all of it."""
    path = Path(file)
    is_text = path.suffix.lower() not in (*JSON_ENDINGS, ".parquet")
    width = words_width(open_text(path)) if is_text and path.stat().st_size else 0
    if width and not path.suffix.lower().startswith((".conll", ".bio", ".iob")):
        return name_columns(take_rows(file, tuple(f"column{n + 1}" for n in range(width))))
    sample = take_rows(file)
    if width or not is_text or has_header(sample.columns):
        return sample
    return name_columns(
        take_rows(file, tuple(f"column{n + 1}" for n in range(len(sample.columns))))
    )


def take_rows(file: str, names: tuple[str, ...] = ()) -> Sample:
    table = open_table(file, names=names)
    rows, how = list(islice(table.records(), SAMPLE_ROWS + 1)), ""
    is_constant = any(len({row.values[n] for row in rows}) == 1 for n in table.columns)
    if len(rows) > SAMPLE_ROWS:
        count = table.count() or sum(1 for _ in table.records())
        how = f"the first {SAMPLE_ROWS:,} of about {count:,} rows"
        if (
            is_constant and (step := ceil(count / SAMPLE_ROWS)) > 1
        ):  # rows may be sorted by their label
            rows = list(islice(table.records(), 0, None, step))
            how = f"one row in {step:,} of about {count:,} rows"
    rows, times = rows[:SAMPLE_ROWS], Counter(table.columns)
    columns = [
        Column(n, tuple(row.values[n] for row in rows), table.form.startswith("semicolon"))
        for n in table.columns
        if times[n] == 1
    ]
    return Sample(columns, names, how, tuple(n for n in times if times[n] > 1))


def has_header(columns: Columns) -> bool:
    """Whether the first line names columns: it is none if its fields occur again below them."""
    names = [column.name for column in columns]
    if any(map(is_label_name, names)) or any(map(is_text_name, names)):
        return True
    if [n for n in names if n] == [str(n) for n in range(len([n for n in names if n]))]:
        return True  # the header that pandas writes for columns without names
    return not any(
        c.counts[c.name] > 1 or (c.numbers and re.fullmatch(r"-?\d+([.,]\d+)?", c.name))
        for c in columns
        if c.name
    )


def name_columns(sample: Sample) -> Sample:
    """The sample of a file without a header line, with names by what its columns hold."""
    columns = sample.columns
    for known in KNOWN["headerless"]:
        fits = dict(zip(known["columns"], columns, strict=False))
        if len(known["columns"]) == len(columns) and all(
            set(fits[name].counts) == set(values) for name, values in known["values"].items()
        ):
            return renamed(sample, known["columns"])
    (texts, *_), tags = choose_texts(columns), {tag.name for _, tag in find_tags(columns)}
    words = {word.name for word, _ in find_tags(columns)}
    labels = [c.name for c in columns if c.role in ("class", "number", "list") or c.name in tags]
    labels = [name for name in labels if name not in words]
    roles = {
        "text": [c.name for c in texts if c.name not in (*words, *tags)],
        "words": sorted(words),
        "label": [name for name in labels if name not in {c.name for c in texts} or name in tags],
    }
    names = {}
    for role, members in roles.items():
        for n, member in enumerate(members, start=1):
            names[member] = role if len(members) == 1 else f"{role}{n}"
    return renamed(sample, [names.get(column.name, column.name) for column in columns])


def renamed(sample: Sample, names: Iterable[str]) -> Sample:
    columns = [
        Column(name, column.values, column.may_have_commas)
        for name, column in zip(names, sample.columns, strict=True)
    ]
    return Sample(columns, tuple(column.name for column in columns), sample.how, ())


def choose_texts(columns: Columns) -> tuple[list[Column], str, str]:
    """The column with the text, or the two of a pair; why; and what else it could be."""
    found = [c for c in columns if c.role == "text" and len(c.filled) >= 0.5 * len(c.values)]
    named = [c for c in columns if is_text_name(c.name) and c.role in ("class", "other", "text")]
    short = [c for c in columns if c.role == "other" and len(c.counts) > 0.5 * len(c.filled)]
    texts = found or named or [c for c in short if not is_named(c, "facts")]
    if not texts:
        return [], "", ""
    by_name = {c.name.lower(): c for c in dict.fromkeys((*texts, *named))}
    pairs = [names.split("|") for names in TEXTS if "|" in names]
    for one, other in (pair for pair in pairs if set(pair) <= set(by_name)):
        return [by_name[one], by_name[other]], "a known pair of names", ""
    texts = without_versions(texts)
    for one, other in combinations(texts, 2):
        if one.name != other.name and SIDES.sub("", one.name) == SIDES.sub("", other.name):
            return [one, other], "names that differ by their side", f"{one.name} alone"
    main = max(texts, key=lambda c: (is_text_name(c.name), c.words))
    if len(texts) == 2:
        return texts, "two columns of texts", f"{main.name} alone"
    others = ", ".join(c.name for c in texts if c is not main)
    return [main], main.about, f"{others}" if others else ""


def without_versions(texts: Columns) -> list[Column]:
    """Without columns that are another one's text in another form (sentence1_parse, clean_text)."""

    def words(column: Column) -> set[str]:
        return set(re.findall(r"[a-z]+|\d+", column.name.lower()))

    kept = [c for c in texts if not any(words(other) < words(c) for other in texts)]
    return kept if len(texts) > 2 or len(kept) < len(texts) else list(texts)


def find_tags(columns: Columns) -> list[tuple[Column, Column]]:
    """(words, tags) of columns with as many items in every row."""
    items = {
        c.name: [json_list(value) or value.split() for value in c.values]
        for c in columns
        if c.role not in ("empty", "split", "object", "date", "link", "id")
    }
    by_name = {column.name: column for column in columns}
    kinds = {name: len({item for row in rows for item in row}) for name, rows in items.items()}
    pairs = []
    for words, tags in ((a, b) for a in items for b in items if kinds[a] > kinds[b] > 1):
        rows = list(zip(items[words], items[tags], strict=True))
        total = sum(len(b) for _, b in rows)
        is_even = sum(len(a) == len(b) for a, b in rows) >= 0.98 * len(rows)
        if is_even and total >= 2 * max(len(rows), kinds[tags]) and kinds[tags] <= 200:
            pairs.append((by_name[words], by_name[tags]))
    most = max((kinds[words.name] for words, _ in pairs), default=0)
    numeric = {n for n in items if all(i.isdigit() for row in items[n] for i in row)}
    is_json = {c.name for c in columns if c.role == "list"}
    return [
        (words, tags)
        for words, tags in pairs
        if kinds[words.name] == most and tags.name not in numeric - is_json
    ]


def decide(columns: Columns) -> list[Decision]:
    """The tasks of a table: one for every label over the same text."""
    taggings = find_tags(columns)
    tagged = {c.name for _, c in taggings}
    rest = [c for c in columns if c.name not in tagged]
    texts, why, also = choose_texts(rest)
    labels = choose_labels([c for c in rest if c not in texts]) if texts else []
    flags = [c for c in labels if set(c.counts) <= {"0", "1", "0.0", "1.0", "0,0", "1,0"}]
    flags = flags if len(flags) >= FEW_FLAGS else []
    reasons = {"text": why + (f"; could also be {also}" if also else "")}
    decisions = [tagging(words, tags) for words, tags in taggings]
    for column in labels:
        if column not in flags:
            decisions.append(by_role(texts, column, reasons))
    if flags:
        names = tuple(c.name for c in flags)
        about = f"{len(flags)} columns of 0 and 1"
        reason = reasons | {"label": f"{about}; could also be a classification of each"}
        decisions.append(Decision("multilabel", names_of(texts), names, about, why=reason))
    return decisions


def names_of(columns: Columns) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def choose_labels(columns: Columns) -> list[Column]:
    """The columns to predict; facts about a text, and numbers, only where there is nothing else."""
    labels = [c for c in columns if c.role in ("class", "number", "list") and c.name]
    told = [c for c in labels if not is_named(c, "facts") or is_label_name(c.name)]
    main = [
        c for c in told if c.role != "number" or is_label_name(c.name) or is_named(c, "numbers")
    ]
    return main or told or labels


def tagging(words: Column, tags: Column) -> Decision:
    rows = [json_list(value) or value.split() for value in tags.values]
    shown = sorted({tag for row in rows for tag in row})
    about = f"as many tags as words in every row, {len(shown)} different: {', '.join(shown[:5])}"
    why = {"text": f"words, {sum(map(len, rows)):,} in {len(rows):,} rows", "label": about}
    return Decision("tagging", (words.name,), (tags.name,), about, why=why)


def by_role(texts: Columns, column: Column, reasons: Mapping[str, str]) -> Decision:
    """The task of a class, a number or a list over one text or a pair."""
    is_pair, keys, also = len(texts) == 2, Entry(), list[str]()
    kind = "pair_classification" if is_pair else "classification"
    scale = "similarity" if is_pair else "regression"
    if column.numbers and len(column.counts) > 2:
        if column.role == "number" or (is_pair and len(column.counts) > MANY_VALUES):
            also = [f"a {kind}"] if len(column.counts) <= MANY_LABELS else []
            kind = scale
        else:
            low, high = floor(min(column.numbers)), ceil(max(column.numbers))
            also = [f"{scale} with range: [{low}, {high}]"] if scale in TYPES else []
            also.append("these classes with loss: ordinal")
    if column.role == "list":
        kind = "multilabel"
        keys = {"separator": column.separator} if column.separator else {}
        also = ["a classification of the whole field"] if column.is_repeated else []
    if column.role != "list" and column.has_commas:
        keys["decimal"] = ","
    could = f"; could also be {' or '.join(also)}" if also else ""
    missing = len(column.values) - len(column.filled)
    gaps = f"; {missing:,} of {len(column.values):,} rows have none" if missing else ""
    why = {**reasons, "label": f"{column.about}{gaps}{could}", "decimal": "numbers like 2,5"}
    return Decision(kind, names_of(texts), (column.name,), column.about, keys, why)


def to_entry(decision: Decision) -> Entry:
    """The decision in the words of a recipe; an error names the kind that mops does not have."""
    if decision.kind not in TYPES:
        raise DataError(f"{decision.about}: {decision.kind}, which mops does not train")

    def one_or_all(names: tuple[str, ...]) -> object:
        return names[0] if len(names) == 1 else list(names)

    text, label = one_or_all(decision.text), one_or_all(decision.label)
    return {"type": decision.kind, "text": text, "label": label, **decision.keys}


def infer_set(name: str, files: Files) -> tuple[list[tuple[str, Proposal]], Reasons]:
    """(name, entry) of the tasks in a set of files, and the reason for every file left out."""
    train = files.get("train", files.get("validation"))
    if train is None:
        raise DataError("there is no training file beside it")
    sample = read_sample(train)
    decisions = decide(sample.columns)
    if not decisions:
        texts = choose_texts(sample.columns)[0]
        missing = f"no label column beside {texts[0].name}" if texts else "no text column"
        raise DataError(f"{missing}; its columns: {sample.about}")
    keys, why = file_keys(sample, files, train)
    others, skipped = other_files(sample, decisions, files, train)
    keys = others | keys if "split_column" not in keys else keys
    proposals = []
    for decision in decisions:
        column = "+".join(decision.label)
        try:
            entry = to_entry(decision) | keys | {"train": train}
            proposal = finish(entry, {**why, **decision.why}, sample, decision.kind in RANGED)
            proposals.append((name if len(decisions) == 1 else column, proposal))
        except UsageError as error:
            skipped.append((train, f"column {column}: {error}"))
    return proposals, skipped


def file_keys(sample: Sample, files: Files, train: str) -> tuple[Entry, dict[str, str]]:
    """The keys of an entry that say how its file is read."""
    keys, why = Entry(), {"train": f"decided by {sample.how}" if sample.how else ""}
    if sample.names:
        keys["columns"] = list(sample.names)
        why["columns"] = "no header line: names for its columns, in their order"
    column = next((c for c in sample.columns if c.role == "split"), None)
    if column and set(files.values()) == {train}:
        splits = {SPLIT_WORDS[value.lower()] for value in column.counts}
        keys |= {
            "split_column": column.name,
            **dict.fromkeys(sorted(splits, key=SPLITS.index), train),
        }
        why["split_column"] = column.about
    return keys, why


def other_files(
    sample: Sample, decisions: Sequence[Decision], files: Files, train: str
) -> tuple[Entry, Reasons]:
    """The validation and test files that have the columns of the tasks, and why others have not."""
    kept, skipped = Entry(), Reasons()
    texts = {name for decision in decisions for name in decision.text}
    labels = {name for decision in decisions for name in decision.label}
    for split in ("validation", "test"):
        file = files.get(split, train)
        if file == train:
            continue
        try:
            columns = set(open_table(file, names=sample.names).columns)
            needed = texts | labels if split == "validation" else texts
            if sample.names and len(read_sample(file).columns) != len(sample.names):
                raise DataError("it has other columns than the training file")
            if missing := sorted(needed - columns):
                raise DataError(f"it has no column {', '.join(missing)} as the training file")
            kept[split] = file
        except DataError as error:
            skipped.append((file, str(error)))
    return kept, skipped


def finish(entry: Entry, why: Mapping[str, str], sample: Sample, needs_range: bool) -> Proposal:
    """The entry with its range and splits, after its rows were read as `mops check` reads them."""
    entry, why = dict(entry), dict(why)
    if needs_range:
        entry["range"] = find_range(entry)
        why["range"] = "the lowest and the highest value, rounded"
    if "validation" not in entry:
        entry["split"] = 0.1
        why["split"] = "no validation file"
    used = {
        str(name) for key in ("text", "label", "split_column") for name in listed(entry.get(key))
    }
    unused = [f"{c.name or '(unnamed)'} ({c.about})" for c in sample.columns if c.name not in used]
    why[""] = f"other columns: {'; '.join(unused)}" if unused else ""
    try:
        read_all(entry, sample)
        problem = ""
    except DataError as error:
        problem = str(error)
    if problem:
        entry["on_bad_row"] = "skip"
        read_all(entry, sample)
        why["on_bad_row"] = problem.partition(";")[0]
    order = {key: n for n, key in enumerate(TaskEntry.model_fields)}
    return Proposal(dict(sorted(entry.items(), key=lambda item: order[item[0]])), why)


def listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def read_all(entry: Entry, sample: Sample) -> None:
    """Read all rows of the task; an error says what is wrong with them."""
    value = to_value(TaskEntry, entry, where="entry", error=RecipeError)
    task = value.task("task")
    if not sample.how:
        read_task(value, task, SPLITS)
        return
    for split, file in value.files().items():  # too many to be kept
        table = prepare_split(open_table(file, names=value.columns), value, split)
        rows = stream_rows(table, task, needs_label=split != "test")
        bad = [f"{row.where} {row.problem}" for row in rows if row.problem]
        if bad and value.on_bad_row == "error":
            raise DataError(f"{file}: {len(bad)} rows cannot be used: {first_problems(bad)}")


def find_range(entry: Entry) -> list[int]:
    """The lowest and the highest number in the label column of all files, as whole numbers."""
    value = to_value(TaskEntry, entry | {"range": (0, 1)}, where="entry", error=RecipeError)
    numbers = []
    for split, file in value.files().items():
        table = prepare_split(open_table(file, names=value.columns), value, split)
        for record in table.records():
            try:
                numbers.append(float(record.values.get(value.label, "")))
            except ValueError:
                continue  # such rows are counted where the entry is tried
    return [floor(min(numbers)), ceil(max(numbers))]
