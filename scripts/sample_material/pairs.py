"""Sentence pairs: paraphrase groups (0 or 1) and similarity ladders (0.0 to 5.0)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product

from sample_material.common import (
    SPLITS,
    Row,
    Rows,
    Split,
    capital,
    deal,
    lines_of,
    pick,
    sections,
)

NAMES = ("I", "I'd", "I'm", "Anna", "Ben", "Nora", "Tom", "Paul", "Lisbon", "Madrid", "Italian")
NO_OPENER = ("Help", "Tell", "Name", "Water", "Set", "Bake", "Plan", "Expect", "Please", "That")
EDITS = (
    ("How do I ", "How can I "),
    ("What is ", "What's "),
    (" does not ", " doesn't "),
    (" do not ", " don't "),
    ("cannot", "can't"),
    ("I would like", "I'd like"),
    ("There is ", "There's "),
    ("I am ", "I'm "),
)
OPENERS = {
    "?": ("A quick question: ", "Just wondering: ", "Could you help me? "),
    ".": ("By the way, ", "As you may know, ", "Just to be clear, "),
}


def instances(lines: Sequence[str]) -> list[list[str]]:
    """Fill the frames of a group: one list of equivalent sentences per filling."""
    frames = [line for line in lines if not line.startswith("- ")]
    fillings = [line[2:].split(" / ") for line in lines if line.startswith("- ")]
    filled = [dict(zip("abc", filling, strict=False)) for filling in fillings]
    return [[capital(frame.format(**words)) for frame in frames] for words in filled]


def edit(text: str, rng: random.Random) -> str:
    """Reword a sentence lightly without touching its meaning."""
    usable = [(old, new) for old, new in EDITS if old in text]
    if usable and rng.random() < 0.7:
        return text.replace(*rng.choice(usable), 1)
    plain = text[-1] in OPENERS and text.split(maxsplit=1)[0] not in NO_OPENER
    single = not any(mark in text[:-1] for mark in ".?!")
    opener = rng.choice(OPENERS[text[-1]]) if plain and single else "Hello! "
    keep = opener[-2] in "?!" or text.split(maxsplit=1)[0] in NAMES or not text[0].isalpha()
    return opener + (text if keep else text[0].lower() + text[1:])


def group_rows(group: list[list[str]], others: Sequence[str], rng: random.Random) -> list[Row]:
    """Return positive and negative pairs of one group of sentences."""
    alike = [pair for texts in group for pair in combinations(texts, 2)]
    facing = [pair for one, two in combinations(group, 2) for pair in zip(one, two, strict=True)]
    crossed = [
        (one[i], two[j])
        for one, two in combinations(group, 2)
        for i, j in product(range(len(one)), repeat=2)
        if i != j
    ]
    light = rng.choice(rng.choice(group))
    same = [*pick(alike, 4, rng), (light, edit(light, rng))]
    other = [*pick(facing, 2, rng), *pick(crossed, 2, rng)]
    other[0] = (other[0][0], edit(other[0][1], rng))
    other.append((rng.choice(rng.choice(group)), rng.choice(others)))
    rows: list[Row] = [(*pair, "1") for pair in same]
    return rows + [(*pair, "0") for pair in other]


def paraphrase(rng: random.Random) -> Rows:
    """Build the paraphrase rows; a group of sentences stays within one split."""
    strata: dict[tuple[str, str], list[tuple[str, list[list[str]]]]] = {}
    for stem, kind, lines in sections("paraphrase_*.txt"):
        strata.setdefault((stem, kind), []).append((stem, instances(lines)))
    rows: Rows = {split: [] for split in SPLITS}
    dealt: dict[Split, list[tuple[str, list[list[str]]]]] = {split: [] for split in SPLITS}
    offset = 0
    for groups in strata.values():
        for split, part in deal(groups, rng, offset).items():
            dealt[split].extend(part)
        offset += len(groups)
    for split, part in dealt.items():
        for stem, group in part:
            near = [t for name, g in part if name == stem and g is not group for x in g for t in x]
            rows[split].extend(group_rows(group, near, rng))
    return rows


def ladders() -> list[tuple[str, list[str], list[tuple[str, str]]]]:
    """Return (file stem, equivalent anchors, graded sentences) of every ladder."""
    found: list[tuple[str, list[str], list[tuple[str, str]]]] = []
    fresh = True
    for stem, line in lines_of("similarity_*.txt"):
        if line.startswith("= ") and fresh:
            found.append((stem, [], []))
        fresh = not line or not line.startswith("= ")
        if line.startswith("= "):
            found[-1][1].append(line[2:])
        elif line:
            score, text = line.split(" ", 1)
            found[-1][2].append((score, text))
    return found


def ladder_rows(
    anchors: Sequence[str],
    graded: Sequence[tuple[str, str]],
    far: Sequence[str],
    rng: random.Random,
) -> list[Row]:
    """Return the pairs of one ladder, from equal meaning to unrelated."""
    rows: list[Row] = [(one, two, "5.0") for one, two in combinations(anchors, 2)]
    for score, text in graded:
        count = 1 if score.startswith("0") else 2
        rows.extend((anchor, text, score) for anchor in pick(anchors, count, rng))
    rows.append((rng.choice(anchors), rng.choice(far), "0.0"))
    return rows


def similarity(rng: random.Random) -> Rows:
    """Build the similarity rows; a ladder stays within one split."""
    rows: Rows = {split: [] for split in SPLITS}
    for split, part in deal(ladders(), rng).items():
        for stem, anchors, graded in part:
            far = [text for name, texts, _ in part if name != stem for text in texts]
            rows[split].extend(ladder_rows(anchors, graded, far, rng))
    return rows
