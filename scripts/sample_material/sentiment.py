"""Sentiment rows: whole sentences, framed aspects and joined clauses, labels 0 to 4."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import product

from sample_material.common import SPLITS, Rows, Split, capital, deal, lines_of, sections

PER_CLASS = {"train": 144, "validation": 48, "test": 48}


def expand(text: str) -> list[str]:
    """Write out every choice of the "{one/two}" places of a text."""
    parts = re.split(r"\{([^}]*)\}", text)
    choices = [part.split("/") if at % 2 else [part] for at, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def sentences(rng: random.Random) -> dict[Split, dict[str, list[str]]]:
    """Deal the whole hand-written sentences, label by label."""
    kernels: dict[str, list[list[str]]] = {}
    for name in ("negative", "neutral", "positive"):
        for _, line in lines_of(f"sentiment_{name}.txt"):
            kernels.setdefault(line[0], []).append(expand(line[2:]))
    result: dict[Split, dict[str, list[str]]] = {split: {} for split in SPLITS}
    for label in sorted(kernels):
        for split, dealt in deal(kernels[label], rng).items():
            result[split][label] = [text for kernel in dealt for text in kernel]
    return result


def aspects(rng: random.Random) -> dict[Split, list[list[dict[str, str]]]]:
    """Deal the aspects of each domain and return them per split and domain."""
    more = dict(line.split(": ") for _, line in lines_of("sentiment_comparatives.txt"))
    result: dict[Split, list[list[dict[str, str]]]] = {split: [] for split in SPLITS}
    for _, _, lines in sections("sentiment_aspects.txt"):
        for split, dealt in deal(lines, rng).items():
            parts = ("s", "be", "good", "bad")
            words = [dict(zip(parts, line.split("|"), strict=True)) for line in dealt]
            for word in words:
                for kind in ("good", "bad"):
                    word[f"more_{kind}"] = more.get(word[kind], f"more {word[kind]}")
            result[split].append(words)
    return result


def clauses(rng: random.Random) -> dict[Split, list[dict[str, list[str]]]]:
    """Deal the clauses of each domain and kind, half to training and a quarter to the others."""
    result: dict[Split, list[dict[str, list[str]]]] = {split: [] for split in SPLITS}
    for _, _, lines in sections("sentiment_clauses_*.txt"):
        kinds: dict[str, list[str]] = {}
        for line in lines:
            kind, text = line.split(" ", 1)
            kinds.setdefault(kind, []).append(text)
        for texts in kinds.values():
            rng.shuffle(texts)
        cuts = {"train": slice(0, 4), "validation": slice(4, 6), "test": slice(6, 8)}
        for split, cut in cuts.items():
            result[split].append({kind: texts[cut] for kind, texts in kinds.items()})
    return result


def framed(
    frames: Sequence[str], domains: list[list[dict[str, str]]], rng: random.Random
) -> Iterator[str]:
    """Yield endless sentences about aspects, the frames taken in turn."""
    while True:
        for frame in frames:
            first, second = rng.sample(rng.choice(domains), 2)
            yield frame.format(**first, **{f"{key}2": text for key, text in second.items()})


def joined(
    joins: Sequence[str], domains: list[dict[str, list[str]]], rng: random.Random
) -> Iterator[str]:
    """Yield endless sentences of two clauses, the joins taken in turn."""
    while True:
        for join in joins:
            kinds, frame = join.split(" | ")
            one, two = kinds.split()
            domain = rng.choice(domains)
            first = rng.choice(domain[one])
            second = rng.choice([text for text in domain[two] if text != first])
            yield frame.format(a=first, b=second)


def frames_by_label(name: str, rng: random.Random) -> dict[Split, dict[str, list[str]]]:
    """Deal the frames of a file; mirrored frames of two labels go to the same split.

    Two thirds of the frames of validation and test are training frames (with other fillers),
    one third occurs there only.
    """
    frames: dict[str, list[str]] = {}
    for _, line in lines_of(name):
        frames.setdefault(line[0], []).append(line[2:])
    places = {
        size: deal(range(size), rng) for size in sorted({len(part) for part in frames.values()})
    }
    result: dict[Split, dict[str, list[str]]] = {split: {} for split in SPLITS}
    for label, part in frames.items():
        dealt = places[len(part)]
        for split in SPLITS:
            seen = [] if split == "train" else dealt["train"][: 2 * len(dealt[split])]
            result[split][label] = [part[place] for place in (*dealt[split], *seen)]
    return result


def sentiment(rng: random.Random) -> Rows:
    """Build the sentiment rows: whole sentences first, then both kinds of composed ones."""
    whole, by_aspect, by_clause = sentences(rng), aspects(rng), clauses(rng)
    frames = frames_by_label("sentiment_frames.txt", rng)
    joins = frames_by_label("sentiment_joins.txt", rng)
    rows: Rows = {split: [] for split in SPLITS}
    for split, label in product(SPLITS, "01234"):
        texts = dict.fromkeys(capital(text) for text in whole[split][label])
        sources = (
            framed(frames[split][label], by_aspect[split], rng),
            joined(joins[split][label], by_clause[split], rng),
        )
        while len(texts) < PER_CLASS[split]:
            for source in sources:
                texts[capital(next(source))] = None
        rows[split].extend((text, label) for text in list(texts)[: PER_CLASS[split]])
    return rows
