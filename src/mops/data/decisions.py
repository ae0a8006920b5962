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
from mops.data.doubts import describe_skew
from mops.tasks import KINDS

Entry = dict[str, object]  # of a task in a recipe
Columns = Sequence[Column]
SIDES = re.compile(r"[_ -]?(1|2|a|b|left|right)$", re.IGNORECASE)
MANY_LABELS = 20
TWO_TEXTS = "two columns of texts"  # the reason for a pair that its names do not tell
FEW_FLAGS = 3  # so many columns of 0 and 1 are the labels of one task
FEW_EMPTY = 0.05  # of the cells of a list; more of them mean that there is no label
LABEL_ROLES = ("class", "number", "list")
FACT = "a fact that comes with a text, by its name"
COUNTS = "whole numbers, which may count something"
LeftOut = list[tuple[Column, str]]  # why a column that could be a label is none


@dataclass(frozen=True)
class Decision:
    """One task that a table seems to hold; `why` has a reason for each key of its entry.

    `maybe` has keys that may help, with their reasons.
    """

    kind: str
    text: tuple[str, ...]
    label: tuple[str, ...]
    about: str  # the label column
    keys: Entry = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    maybe: Mapping[str, tuple[object, str]] = field(default_factory=dict)


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


def decide(
    columns: Columns, text: Sequence[str] = (), label: Sequence[str] = ()
) -> tuple[list[Decision], LeftOut]:
    """The tasks of a table, one for every label over the same text, and labels that are none.

    `text` and `label` name columns about which there is nothing to decide.
    """
    words, tags, even = find_tags(columns)
    if text and words and words.name not in text:
        words, tags, even = None, [], []
    rest = [c for c in columns if (c is words or c not in even) and c.name not in label]
    texts, why, also = choose_texts(rest)
    if text:
        texts, why, also = [c for name in text for c in columns if c.name == name], "", ""
    labels, left_out = choose_labels([c for c in rest if c not in texts])
    if label:
        tags = [c for c in tags if c.name in label]
        labels, left_out = [c for c in columns if c.name in label and c not in tags], []
    labels = labels if texts else []
    main, reason = main_text(columns, texts, words) if why == TWO_TEXTS else (None, "")

    def own_texts(column: Column) -> tuple[Columns, str]:
        if main and not is_named(column, "relations"):
            return [main], reason
        return texts, why + (f"; could also be {also}" if also else "")

    flags = [c for c in labels if set(c.counts) <= {"0", "1", "0.0", "1.0"}]
    flags = flags if len(flags) >= min(FEW_FLAGS, len(label) or FEW_FLAGS) > 1 else []
    decisions = [tagging(words, column) for column in tags] if words else []
    decisions += [by_role(*own_texts(column), column) for column in labels if column not in flags]
    if flags:
        about, (own, reason) = f"{len(flags)} columns of 0 and 1", own_texts(flags[0])
        reasons = {"text": reason, "label": f"{about}; could also be a classification of each"}
        decisions.append(Decision("multilabel", names_of(own), names_of(flags), about, why=reasons))
    return decisions, left_out if decisions else []


def main_text(columns: Columns, texts: Columns, words: Column | None) -> tuple[Column | None, str]:
    """Which of two texts most labels are about, and why; none where they are about both.

    Two texts that are no known pair are read apart if another column says how they relate or is
    about the words of one.
    """
    if not words and not any(is_named(c, "relations") for c in columns if c.role in LABEL_ROLES):
        return None, ""
    main = max(texts, key=lambda c: (c is words, is_text_name(c.name), c.words))
    other = next(column for column in texts if column is not main)
    is_told = is_text_name(main.name) and not is_text_name(other.name)
    how = "named as texts are" if is_told else "the longer text"
    how = "whose words have tags" if main is words else how
    return main, f"{main.holds}, {how}; could also be a pair with {other.name}"


def names_of(columns: Columns) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def choose_labels(columns: Columns) -> tuple[list[Column], LeftOut]:
    """The columns to predict, and why others are left out.

    Facts about a text, and whole numbers that count something, only where there is nothing else.
    """
    labels = [c for c in columns if c.role in LABEL_ROLES and c.name]
    told = without_copies([c for c in labels if not is_fact(c)])
    main = [c for c in told if not may_count(c)]
    chosen = main or told or labels
    left_out = LeftOut()
    for column in (c for c in labels if c not in chosen):
        twin = next((c.name for c in chosen if has_same_classes(c, column)), "")
        reason = FACT if is_fact(column) else COUNTS
        left_out.append((column, f"the classes of {twin} in other words" if twin else reason))
    return chosen, left_out


def is_fact(column: Column) -> bool:
    return is_named(column, "facts") and not is_label_name(column.name)


def may_count(column: Column) -> bool:
    """Whether its values are many whole numbers, with no name that says what they measure."""
    has_name = is_label_name(column.name) or names_a_scale(column)
    return column.role == "number" and column.is_whole and not has_name


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


def by_role(texts: Columns, reason: str, column: Column) -> Decision:
    """The task of a class, a number or a list over one text or a pair."""
    kind, others = kind_of(column, is_pair=len(texts) == 2)
    keys, maybe = Entry(), dict[str, tuple[object, str]]()
    missing = len(column.values) - len(column.filled)
    share = f"{missing:,} of {len(column.values):,}"
    if column.role == "list":
        keys |= {"separator": column.separator} if column.separator else {}
        keys |= {"empty": "no_labels"} if empty_means_none(column) else {}
    elif column.has_commas:
        keys["decimal"] = ","
    if column.role == "class" and column.numbers and column.has_missing_words:
        keys["labels"] = [f"{number:g}" for number in sorted(set(column.numbers))]
    if column.role == "class" and (skew := describe_skew(column.counts)):
        maybe["class_weights"] = "balanced", f"{skew}; this makes classes count alike in the loss"
    if column.role == "list" and missing and "empty" not in keys:
        maybe["empty"] = "no_labels", "where an empty cell means that there is none of the labels"
    could = f"; could also be {' or '.join(others)}" if others else ""
    gaps = f"; {share} rows have none" if missing and "empty" not in keys else ""
    why = {
        "text": reason,
        "label": f"{column.holds}{gaps}{could}",
        "empty": f"{share} cells are empty: none of the labels; `missing` leaves these rows out",
        "decimal": "numbers like 2,5 or 1.234,56",
        "labels": "other values mean that there is none",
    }
    return Decision(kind, names_of(texts), (column.name,), column.holds, keys, why, maybe)


def empty_means_none(column: Column) -> bool:
    """Whether an empty cell of a list says that there is no label: many are, and no list is."""
    empty = len(column.values) - len(column.filled)
    return empty >= max(1, FEW_EMPTY * len(column.values)) and all(column.items)


def kind_of(column: Column, *, is_pair: bool) -> tuple[str, list[str]]:
    """The kind of task, and what it could be instead."""
    classes = "pair_classification" if is_pair else "classification"
    scale, different = "similarity" if is_pair else "regression", len(column.counts)
    if column.role == "list":
        return "multilabel", ["a classification of the whole field"] if column.is_repeated else []
    if not column.numbers or different <= 2:
        return classes, ["a multilabel with separator: ' '"] if column.may_be_words else []
    if column.role == "number" or (is_pair and different > MANY_VALUES):
        return scale, [f"a {classes}"] if different <= MANY_LABELS else []
    low, high = floor(min(column.numbers)), ceil(max(column.numbers))
    measured = [f"{scale} with range: [{low}, {high}]"] if scale in KINDS else []
    return classes, [*measured, "these classes with loss: ordinal"]
