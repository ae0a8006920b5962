"""The tasks of a table: which column is the text, which are labels and of what kind, and why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil, floor

from mops.data.columns import (
    MANY_CLASSES,
    MANY_VALUES,
    TEXTS,
    Column,
    is_label_name,
    is_named,
    is_text_name,
    json_list,
)
from mops.tasks import KINDS

Entry = dict[str, object]  # of a task in a recipe
Columns = Sequence[Column]
SIDES = re.compile(r"[_ -]?(1|2|a|b|left|right)$", re.IGNORECASE)
MANY_LABELS = 20
TWO_TEXTS = "two columns of texts"  # the reason for a pair that its names do not tell
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


def choose_texts(columns: Columns) -> tuple[list[Column], str, str]:
    """The column with the text, or the two of a pair; why; and what else it could be."""
    found = [c for c in columns if c.role == "text" and len(c.filled) >= 0.5 * len(c.values)]
    named = [c for c in columns if is_text_name(c.name) and c.role in ("class", "other", "text")]
    short = [c for c in columns if c.role == "other" and len(c.counts) > 0.5 * len(c.filled)]
    texts = found or named or [c for c in short if not is_named(c, "facts")]
    if not texts:
        return [], "", ""
    by_name = {c.name.lower(): c for c in (*named, *texts) if c.role != "class" or not found}
    pairs = [names.split("|") for names in TEXTS if "|" in names]
    for one, other in (pair for pair in pairs if set(pair) <= set(by_name)):
        return [by_name[one], by_name[other]], "a known pair of names", ""
    texts = without_versions(texts)
    for one, other in combinations(texts, 2):
        if one.name != other.name and SIDES.sub("", one.name) == SIDES.sub("", other.name):
            return [one, other], "names that differ by their side", f"{one.name} alone"
    main = max(texts, key=lambda c: (is_text_name(c.name), c.words))
    if len(texts) == 2:
        longest = max(texts, key=lambda c: c.words)
        return texts, TWO_TEXTS, f"{longest.name} alone"
    others = ", ".join(c.name for c in texts if c is not main)
    return [main], main.holds, others


def without_versions(texts: Columns) -> list[Column]:
    """Without columns that are another one's text in another form (sentence1_parse, clean_text)."""

    def words(column: Column) -> set[str]:
        return set(re.findall(r"[a-z]+|\d+", column.name.lower()))

    return [c for c in texts if not any(words(other) < words(c) for other in texts)]


def find_tags(columns: Columns) -> tuple[Column | None, list[Column], list[Column]]:
    """The words, the tags of words, and all columns that have as many items in every row.

    The words are the column with the most different items.
    """
    items = {
        c.name: [json_list(value) or value.split() for value in c.values]
        for c in columns
        if c.role not in ("object", "date") and c.is_sequence
    }
    variety = {name: len({item for row in rows for item in row}) for name, rows in items.items()}
    for words in sorted(columns, key=lambda c: -variety.get(c.name, 0)):
        lengths = [len(row) for row in items.get(words.name, ())]
        if words.role != "class" and len(set(lengths)) > 1:
            even = [c for c in columns if c.name in items and are_even(items[c.name], lengths)]
            most = min(MANY_CLASSES, variety[words.name] / 2, sum(lengths) / 5)
            tags = [c for c in even if 1 < variety[c.name] <= most and not is_counted(c, items)]
            if tags:
                return words, tags, even
    return None, [], []


def are_even(rows: Sequence[Sequence[str]], lengths: Sequence[int]) -> bool:
    even = sum(len(row) == length for row, length in zip(rows, lengths, strict=True))
    return even >= 0.98 * len(rows)


def is_counted(column: Column, items: Mapping[str, Sequence[Sequence[str]]]) -> bool:
    """Whether the items are numbers of words, as the heads of CoNLL-U are."""
    return column.role != "list" and all(x.isdigit() for row in items[column.name] for x in row)


def decide(columns: Columns, text: Sequence[str] = (), label: Sequence[str] = ()) -> list[Decision]:
    """The tasks of a table: one for every label over the same text.

    `text` and `label` name columns about which there is nothing to decide.
    """
    words, tags, even = find_tags(columns)
    if text and words and words.name not in text:
        words, tags, even = None, [], []
    rest = [c for c in columns if (c is words or c not in even) and c.name not in label]
    texts, why, also = choose_texts(rest)
    if text:
        texts, why, also = [c for name in text for c in columns if c.name == name], "", ""
    labels = choose_labels([c for c in rest if c not in texts])
    if label:
        tags = [c for c in tags if c.name in label]
        labels = [c for c in columns if c.name in label and c not in tags]
    labels = labels if texts else []
    flags = [c for c in labels if set(c.counts) <= {"0", "1", "0.0", "1.0"}]
    flags = flags if len(flags) >= min(FEW_FLAGS, len(label) or FEW_FLAGS) > 1 else []
    decisions = [tagging(words, column) for column in tags] if words else []
    relations = [c for c in labels if is_named(c, "relations")]
    for column in labels:
        if column not in flags:
            own = texts_of(column, texts, why, also, bool(relations or words))
            decisions.append(by_role(own[0], column, {"text": own[1]}))
    if flags:
        names = tuple(c.name for c in flags)
        about = f"{len(flags)} columns of 0 and 1"
        own = texts_of(flags[0], texts, why, also, bool(relations or words))
        reason = {"text": own[1], "label": f"{about}; could also be a classification of each"}
        decisions.append(Decision("multilabel", names_of(own[0]), names, about, why=reason))
    return decisions


def texts_of(
    label: Column, texts: Columns, why: str, also: str, has_relation: bool
) -> tuple[Columns, str]:
    """The texts that a label is about, and why.

    Of two texts that are no known pair it is the longer one, if another column says how they
    relate or is about the words of one.
    """
    if why != TWO_TEXTS or not has_relation or is_named(label, "relations"):
        return texts, why + (f"; could also be {also}" if also else "")
    main = max(texts, key=lambda column: column.words)
    other = next(column for column in texts if column is not main)
    return [main], f"{main.holds}, the longer text; could also be a pair with {other.name}"


def names_of(columns: Columns) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def choose_labels(columns: Columns) -> list[Column]:
    """The columns to predict; facts about a text, and numbers, only where there is nothing else."""
    labels = [c for c in columns if c.role in ("class", "number", "list") and c.name]
    told = [c for c in labels if not is_named(c, "facts") or is_label_name(c.name)]
    told = without_copies(told)
    named = [c for c in told if is_label_name(c.name) or names_a_scale(c)]
    main = [c for c in told if c.role != "number" or c in named]
    return main or told or labels


def names_a_scale(column: Column) -> bool:
    return is_named(column, "numbers") or is_named(column, "relations")


def without_copies(labels: Columns) -> list[Column]:
    """Without columns that write the classes of another one in other words (label, label_text)."""
    kept: list[Column] = []
    for column in sorted(labels, key=lambda c: not is_label_name(c.name)):
        if not any(has_same_classes(column, other) for other in kept):
            kept.append(column)
    return [column for column in labels if column in kept]


def has_same_classes(one: Column, other: Column) -> bool:
    pairs = {pair for pair in zip(one.values, other.values, strict=True) if all(pair)}
    are_classes = one.role == other.role == "class" and len(one.filled) >= 20
    return are_classes and len(pairs) == len(one.counts) == len(other.counts)


def tagging(words: Column, tags: Column) -> Decision:
    rows = [json_list(value) or value.split() for value in tags.values]
    shown = sorted({tag for row in rows for tag in row})
    about = f"as many tags as words in every row, {len(shown)} different: {', '.join(shown[:5])}"
    why = {"text": f"words, {sum(map(len, rows)):,} in {len(rows):,} rows", "label": about}
    return Decision("tagging", (words.name,), (tags.name,), about, why=why)


def by_role(texts: Columns, column: Column, reasons: Mapping[str, str]) -> Decision:
    """The task of a class, a number or a list over one text or a pair."""
    kind, others = kind_of(column, is_pair=len(texts) == 2)
    keys = Entry()
    if column.role == "class" and column.has_missing_words:
        keys["labels"] = [f"{number:g}" for number in sorted(set(column.numbers))]
    if column.role == "list" and column.separator:
        keys["separator"] = column.separator
    if column.role != "list" and column.has_commas:
        keys["decimal"] = ","
    could = f"; could also be {' or '.join(others)}" if others else ""
    missing = len(column.values) - len(column.filled)
    gaps = f"; {missing:,} of {len(column.values):,} rows have none" if missing else ""
    why = {
        **reasons,
        "label": f"{column.holds}{gaps}{could}",
        "decimal": "numbers like 2,5",
        "labels": "other values mean that there is none",
    }
    return Decision(kind, names_of(texts), (column.name,), column.holds, keys, why)


def kind_of(column: Column, *, is_pair: bool) -> tuple[str, list[str]]:
    """The kind of task, and what it could be instead."""
    classes = "pair_classification" if is_pair else "classification"
    scale, different = "similarity" if is_pair else "regression", len(column.counts)
    if column.role == "list":
        return "multilabel", ["a classification of the whole field"] if column.is_repeated else []
    if not column.numbers or different <= 2:
        return classes, []
    if column.role == "number" or (is_pair and different > MANY_VALUES):
        return scale, [f"a {classes}"] if different <= MANY_LABELS else []
    low, high = floor(min(column.numbers)), ceil(max(column.numbers))
    measured = [f"{scale} with range: [{low}, {high}]"] if scale in KINDS else []
    return classes, [*measured, "these classes with loss: ordinal"]
