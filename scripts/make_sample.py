"""Write the embedded sample data (three small text tasks) from hand-written material.

python scripts/make_sample.py           write the CSV files
python scripts/make_sample.py --check   exit 1 if the files on disk differ
python scripts/make_sample.py --stats   print sizes, label balance and overlap baselines

The material and the code that combines it are in scripts/sample_material.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import correlation

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sample_material.common import SPLITS, Row, Rows
from sample_material.pairs import paraphrase, similarity
from sample_material.sentiment import sentiment

TARGET = Path(__file__).resolve().parent.parent / "src" / "mops" / "data" / "sample"
SEED = 20240229
HEADERS = {
    "sentiment": ("id", "sentence", "sentiment"),
    "paraphrase": ("id", "sentence1", "sentence2", "is_duplicate"),
    "similarity": ("id", "sentence1", "sentence2", "similarity"),
}
BUILDERS: dict[str, Callable[[random.Random], Rows]] = {
    "sentiment": sentiment,
    "paraphrase": paraphrase,
    "similarity": similarity,
}


def mixed(rows: Sequence[Row], rng: random.Random) -> list[Row]:
    """Drop repeated pairs, turn every second pair round by chance and shuffle the rows."""
    unique: dict[frozenset[str], Row] = {}
    for *texts, label in rows:
        rng.shuffle(texts)
        unique.setdefault(frozenset(texts), (*texts, label))
    result = list(unique.values())
    rng.shuffle(result)
    return result


def build() -> dict[str, dict[str, list[Row]]]:
    """Return the rows without ids, by task and split."""
    tables: dict[str, dict[str, list[Row]]] = {}
    for task, builder in BUILDERS.items():
        rng = random.Random(f"{SEED}-{task}")
        rows = builder(rng)
        tables[task] = {split: mixed(rows[split], rng) for split in SPLITS}
    return tables


def render() -> dict[str, str]:
    """Return the text of every CSV file by its name."""
    files: dict[str, str] = {}
    for task, splits in build().items():
        for split, rows in splits.items():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(HEADERS[task])
            for number, row in enumerate(rows, start=1):
                writer.writerow((f"{task}-{split}-{number:04d}", *row))
            files[f"{task}-{split}.csv"] = text.getvalue()
    return files


def differences(directory: Path = TARGET) -> list[str]:
    """Return the names of the files that are missing or not as they would be written."""
    return [
        name
        for name, text in render().items()
        if not (directory / name).is_file() or (directory / name).read_bytes() != text.encode()
    ]


def write(directory: Path = TARGET) -> None:
    """Write all CSV files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (directory / name).write_bytes(text.encode())


def overlap(one: str, two: str) -> float:
    """Return the Jaccard overlap of the two sets of words."""
    first, second = (set(re.findall(r"[a-z0-9']+", text.lower())) for text in (one, two))
    return len(first & second) / len(first | second)


def rule_accuracy(rows: Sequence[Row], cut: float, *, upward: bool) -> float:
    """Return the accuracy of "same meaning if the overlap is at least (or below) the cut"."""
    hits = sum(((overlap(a, b) >= cut) == upward) == (label == "1") for a, b, label in rows)
    return hits / len(rows)


def baseline(task: str, splits: dict[str, list[Row]]) -> list[str]:
    """Return the lines on how far word overlap alone gets."""
    if task == "similarity":
        return [
            f"  overlap, Pearson, {split}: "
            f"{correlation([overlap(a, b) for a, b, _ in rows], [float(x) for *_, x in rows]):.3f}"
            for split, rows in splits.items()
        ]
    lines = []
    for upward, name in ((True, "at least"), (False, "below")):
        cuts = [step / 100 for step in range(102)]
        best = max(cuts, key=lambda cut: rule_accuracy(splits["train"], cut, upward=upward))
        for split, rows in splits.items():
            score = rule_accuracy(rows, best, upward=upward)
            lines.append(f"  overlap {name} {best:.2f}, accuracy, {split}: {score:.3f}")
    return lines


def stats() -> list[str]:
    """Return the lines of the statistics: sizes, label balance, overlap baselines."""
    lines: list[str] = []
    for task, splits in build().items():
        lines.append(f"{task}:")
        for split, rows in splits.items():
            labels = Counter(row[-1].split(".")[0] for row in rows)
            balance = ", ".join(f"{key}: {labels[key] / len(rows):.1%}" for key in sorted(labels))
            lines.append(f"  {split}: {len(rows)} rows; {balance}")
        if task != "sentiment":
            lines.extend(baseline(task, splits))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, check or describe the sample data."""
    parser = argparse.ArgumentParser(description="Make the embedded sample data.")
    parser.add_argument("--check", action="store_true", help="only compare with the files on disk")
    parser.add_argument("--stats", action="store_true", help="only print sizes and baselines")
    options = parser.parse_args(arguments)
    if options.stats:
        print("\n".join(stats()))
    elif options.check:
        changed = differences()
        if changed:
            print(f"sample data out of date: {', '.join(changed)}; run scripts/make_sample.py")
        return 1 if changed else 0
    else:
        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
