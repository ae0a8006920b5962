"""The columns of a table: their role (text, class, number, list, id, ...) by what they hold."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from mops.kinds.classes import json_items
from mops.yaml_io import read_own_yaml

KNOWN = read_own_yaml(Path(__file__).with_name("known_data_sets.yaml"))
TEXTS, LABELS = tuple(KNOWN["texts"]), tuple(KNOWN["labels"])
SPLIT_WORDS: dict[str, str] = {
    word: split for split, words in KNOWN["split_words"].items() for word in words
}
MANY_VALUES = 10  # more whole numbers than this are a scale, not classes
MANY_CLASSES = 200
SEPARATORS = ("|", ";", ",", "/", " ")
NAN = "nan"  # how a missing value is written
MISSING = ("na", "n/a", NAN, "null", "none", "?", "-")  # among numbers
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")  # 2,5 or 1.234,56
NUMBER = re.compile(rf"[+-]?\d+([.,]\d+)?|{DECIMAL_COMMA.pattern}")
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?"
    r"|([A-Z][a-z]{2} )?[A-Z][a-z]{2,8} \d{1,2}\b.*\d{4}"
)
UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # Thai, Japanese, Chinese
LINK = re.compile(r"(https?://|www\.)\S+|[\w.+-]+@[\w-]+\.[\w.]+")
ID_NAME = re.compile(r"|i?dx|id|index|guid|uuid|(unnamed: \d+)|.*[_ -](id|idx|key)|.*[a-z]Id")
Parts = list[str]  # of a list


@dataclass(frozen=True)
class Column:
    """A column with its sampled values; "" is a missing one."""

    name: str
    values: tuple[str, ...]
    may_have_commas: bool = False  # whether numbers may have a decimal comma

    @cached_property
    def filled(self) -> Parts:
        """The values without NaN; among numbers, words like NA are missing ones too."""
        filled = [value for value in self.values if value and value.lower() != NAN]
        told = [value for value in filled if value.lower() not in MISSING]
        return told if len(told) < len(filled) and all(map(NUMBER.fullmatch, told)) else filled

    @cached_property
    def has_missing_words(self) -> bool:
        return len(self.filled) < sum(map(bool, self.values))

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(self.filled)

    @cached_property
    def words(self) -> float:
        """Words of a value, on average; two characters of a script without spaces are a word."""
        sizes = [max(len(v.split()), len(UNSPACED.findall(v)) / 2) for v in self.counts]
        return sum(sizes) / max(len(sizes), 1)

    @cached_property
    def numbers(self) -> list[float]:
        """The values as numbers; empty when some value is none."""
        try:
            numbers = list(map(self.number, self.counts))
        except ValueError:
            return []
        return numbers if all(map(math.isfinite, numbers)) else []

    def number(self, value: str) -> float:
        return float(with_point(value) if self.has_commas else value)

    @cached_property
    def has_commas(self) -> bool:
        """Whether its numbers are written with a decimal comma."""
        may = self.may_have_commas or is_named(self, "numbers")
        has_some = any("," in value for value in self.counts)
        return may and has_some and self.share(DECIMAL_COMMA.fullmatch) == 1

    @cached_property
    def is_whole(self) -> bool:
        return bool(self.numbers) and all(number.is_integer() for number in self.numbers)

    @cached_property
    def is_repeated(self) -> bool:
        """Whether few values occur again and again, as classes do."""
        n, different = len(self.filled), len(self.counts)
        often = n >= 2 * different if different <= 50 else n >= 10 * different
        return different <= MANY_CLASSES and (often or (n < 30 and different < n))

    @cached_property
    def separator(self) -> str:
        """What separates the items of a list in one field; empty for JSON and for no list."""
        marks = () if self.is_json else SEPARATORS
        return next((mark for mark in marks if separates(mark, self)), "")

    @cached_property
    def may_be_words(self) -> bool:
        """Whether its values are words that occur again in other combinations."""
        return has_reused_items(" ", self)

    @cached_property
    def is_json(self) -> bool:
        """Whether all its values are JSON lists."""
        return bool(self.counts) and self.share(lambda value: json_list(value) is not None) == 1

    @cached_property
    def items(self) -> list[Parts]:
        """The items of each filled value of a list."""
        if self.separator:
            return [split_list(value, self.separator) for value in self.filled]
        return [json_list(value) or [] for value in self.filled]

    @cached_property
    def is_sequence(self) -> bool:
        """Whether its values are two items or more on average, with blanks or commas between."""
        marks = sum(value.count(" ") + value.count(",") for value in self.filled)
        return marks >= len(self.filled) > 0

    @cached_property
    def role(self) -> str:
        return next((role for role, fits in ROLES if fits(self)), "other")

    @property
    def about(self) -> str:
        """Its name, and what it holds in a few words."""
        name = self.name if len(self.name) <= 40 else f"{self.name[:39]}…"
        return f"{name or '(unnamed)'} ({self.holds})"

    @property
    def holds(self) -> str:
        return ABOUT[self.role](self)

    def share(self, fits: Callable[[str], Any]) -> float:
        """The fraction of its different values that fit."""
        return sum(bool(fits(value)) for value in self.counts) / max(len(self.counts), 1)


def is_named(column: Column, kind: str) -> bool:
    """Whether the last word of its name is known to name such columns (numbers, facts, lists)."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", column.name).lower()
    return re.split(r"[^a-z]+", words.rstrip("0123456789_ "))[-1] in KNOWN[kind]


def is_label_name(name: str) -> bool:
    return name.lower().split(".")[-1] in LABELS


def is_text_name(name: str) -> bool:
    return name.lower().split(".")[-1] in {part for names in TEXTS for part in names.split("|")}


def json_list(value: str) -> Parts | None:
    """The items of a JSON list of words or numbers."""
    items, wrong = json_items(value)
    return None if wrong else items


def split_list(value: str, mark: str) -> Parts:
    return [item.strip() for item in value.split(mark) if item.strip()]


def separates(mark: str, column: Column) -> bool:
    """Whether the mark separates labels: a blank does in hashtags, or in a column of lists."""
    if is_named(column, "lists"):
        return has_sets(mark, column, 1) and (mark in "|;," or has_reused_items(mark, column))
    are_tags = all(word.startswith("#") for value in column.counts for word in value.split())
    return (mark != " " or are_tags) and has_reused_items(mark, column)


def has_sets(mark: str, column: Column, least: int = 2) -> bool:
    """Whether `least` values or more are several different short items with the mark between."""
    lists = [split_list(value, mark) for value in column.counts]
    several = [items for items in lists if len(items) > 1]
    if column.numbers or len(several) < max(least, 0.1 * len(lists)):
        return False
    found = {item for items in lists for item in items}
    is_set = all(len(set(items)) == len(items) for items in several)
    return is_set and len(found) <= MANY_CLASSES and max(map(len, found)) <= 40


def has_reused_items(mark: str, column: Column) -> bool:
    """Whether such items occur again in other combinations."""
    if column.words > 6 or not has_sets(mark, column, 2 - is_named(column, "lists")):
        return False
    lists = [split_list(value, mark) for value in column.counts]
    found = Counter(item for items in lists for item in items)
    several = [item for items in lists if len(items) > 1 for item in items]
    return sum(found[item] > 1 for item in several) >= 0.5 * len(several)


def is_id(column: Column) -> bool:
    """Different whole numbers or words with digits; or any such values under the name of an id."""
    if is_label_name(column.name) or column.share(lambda v: not re.search(r"\s", v)) < 0.98:
        return False
    numbers, n, different = column.numbers, len(column.filled), len(column.counts)
    names = column.name, column.name.lower()
    has_name, is_unique = any(map(ID_NAME.fullmatch, names)), different == n
    if numbers and not column.is_whole:
        return False
    if has_name and (is_unique or different > 50 or not column.name):
        return True
    if numbers:
        is_series = n > 2 and len({b - a for a, b in pairwise(numbers)}) == 1
        return is_unique and (is_series or n >= 50) and not is_named(column, "numbers")
    return is_unique and column.share(re.compile(r"\d").search) >= 0.9


def is_number(column: Column) -> bool:
    """Fractions, or more whole numbers than classes are likely to have."""
    if not column.is_whole or len(column.counts) <= MANY_VALUES:
        return bool(column.numbers) and not column.is_whole
    numbers = sorted(column.numbers)
    are_in_turn = numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1
    classes = is_named(column, "classes") or (are_in_turn and not is_named(column, "numbers"))
    return not (classes and column.is_repeated)


def is_class(column: Column) -> bool:
    """Few short values; under the name of a label they need not occur again."""
    if is_text_name(column.name) and column.words >= 2 and not column.numbers:
        return False
    n, different = len(column.filled), len(column.counts)
    is_short = column.share(lambda value: len(value) <= 60) == 1 and column.words <= 4
    is_frequent = n >= 10 * different and column.share(lambda value: len(value) <= 120) == 1
    is_few = column.is_repeated or is_label_name(column.name) or column.is_whole
    return (is_short or is_frequent) and is_few and 2 <= different <= MANY_CLASSES


def is_text(column: Column) -> bool:
    """Several words in many different values."""
    return column.words >= 3 or is_text_name(column.name)


def is_split(column: Column) -> bool:
    splits = {SPLIT_WORDS.get(value.lower(), "") for value in column.counts}
    return len(splits) > 1 and "train" in splits and "" not in splits


# The first that fits.
ROLES: tuple[tuple[str, Callable[[Column], bool]], ...] = (
    ("empty", lambda c: not c.counts),
    ("constant", lambda c: len(c.counts) == 1),
    ("split", is_split),
    ("object", lambda c: c.share(lambda v: v.startswith("{") and v.endswith("}")) == 1),
    ("list", lambda c: c.is_json),
    ("date", lambda c: c.share(DATE.fullmatch) >= 0.95),
    ("link", lambda c: c.share(LINK.fullmatch) >= 0.95),
    ("id", is_id),
    ("number", is_number),
    ("list", lambda c: bool(c.separator)),
    ("class", is_class),
    ("text", is_text),
)


def with_point(text: str) -> str:
    """A number that is written as 2,5 or 1.234,56 with a decimal point; others unchanged."""
    is_number = DECIMAL_COMMA.fullmatch(text)
    return text.replace(".", "").replace(",", ".") if is_number else text


def about_class(column: Column) -> str:
    shown = sorted(column.counts, key=column.number if column.numbers else str)
    order = ", ordered numbers" if len(shown) > 2 and column.numbers else ""
    more = ", ..." if len(shown) > 5 else ""
    return f"{len(shown)} values{order}: {', '.join(shown[:5])}{more}"


def about_number(column: Column) -> str:
    low, high = min(column.numbers), max(column.numbers)
    return f"{len(column.counts)} values, ordered numbers from {low:g} to {high:g}"


def about_list(column: Column) -> str:
    found = Counter(item for items in column.items for item in items)
    how = f" separated by {column.separator!r}" if column.separator else ", JSON"
    shown = ", ".join(sorted(found)[:5]) + (", ..." if len(found) > 5 else "")
    return f"lists{how}, {len(found)} different items: {shown}"


ABOUT: dict[str, Callable[[Column], str]] = {
    "empty": lambda c: "empty",
    "constant": lambda c: f"only the value {c.filled[0][:40]!r}",
    "split": lambda c: f"names the split of a row: {', '.join(sorted(c.counts))}",
    "object": lambda c: "JSON objects",
    "list": about_list,
    "date": lambda c: "dates",
    "link": lambda c: "addresses",
    "id": lambda c: f"ids, {len(c.counts)} different",
    "number": about_number,
    "class": about_class,
    "text": lambda c: f"{c.words:.0f} words on average, {len(c.counts)} different texts",
    "other": lambda c: f"{len(c.counts)} different short values",
}
