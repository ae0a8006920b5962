"""From one file to a report: five tasks of five kinds, without a line of editing."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from building import WORDS
from mops.surveys.results.results import read_results
from mops.yaml_io import read_yaml
from running import run_cli_with

KINDS = {
    "category": ("classification", "accuracy"),
    "topics": ("multilabel", "micro_f1"),
    "price": ("regression", "pearson"),
    "similarity": ("similarity", "pearson"),
    "ner_tags": ("tagging", "entity_f1"),
}
PLANS = ("shared", "hybrid:1", "lora:2", "separate")


def write_offers(path: Path, count: int) -> None:
    """Texts with words of one of four vowels; every column follows from the words."""
    draw = random.Random(0)
    known = {vowel: [word for word in WORDS if word[1] == vowel] for vowel in "aeio"}
    rows = []
    for number in range(count):
        first, second = draw.choice("aeio"), draw.choice("aeio")
        chosen = (first, second, first, first, second)[: 3 + number % 3]
        words = [draw.choice(known[v]) for v in chosen]
        reply = [draw.choice(known[second]) for _ in range(5)]
        rows.append({
            "id": f"offer-{number:04d}",
            "text": " ".join(words),
            "reply": " ".join(reply),
            "category": first,
            "topics": ";".join(sorted({first, second} - {"o"})),
            "price": 20.5 + 10 * words.count(words[0]) + 5 * (first == "a"),
            "similarity": round(draw.uniform(3, 5) if first == second else draw.uniform(0, 2), 2),
            "ner_tags": " ".join("B-A" if w[1] == "a" else "B-E" if w[1] == "e" else "O"
                                 for w in words),
        })  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.slow
def test_one_file_becomes_five_tasks_a_survey_and_a_report(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run, data, out = run_cli_with(monkeypatch, capsys), tmp_path / "offers.csv", tmp_path / "survey"
    write_offers(data, 120)
    code, _, err = run("init", str(data))
    recipe = read_yaml(tmp_path / "mops.yaml")
    assert code == 0 and "skipped" not in err
    assert {n: entry["type"] for n, entry in recipe["tasks"].items()} == {
        name: kind for name, (kind, _) in KINDS.items()
    }
    assert recipe["tasks"]["similarity"]["text"] == ["text", "reply"]
    assert {recipe["tasks"][name]["text"] for name in KINDS if name != "similarity"} == {"text"}
    words = ["survey", "--config", str(tmp_path / "mops.yaml"), "--encoder", str(encoder)]
    words += [word for plan in PLANS for word in ("--plan", plan)]
    words += ["--max-steps", "12", "--seeds", "1", "--set", "training.threads=1"]
    code, said, err = run(*words, "--out", str(out))
    assert code == 0, err
    assert all(plan in said for plan in PLANS)
    results = read_results(out)
    assert not results.missing and {c.name for c in results.candidates} == set(PLANS)
    assert results.tasks == {name: score for name, (_, score) in KINDS.items()}
    for candidate in results.candidates:
        assert all(math.isfinite(candidate.scores[name].mean) for name in KINDS)
    code, said, _ = run("report", str(out))
    page = (out / "report.html").read_text("utf-8")
    assert code == 0 and 'class="entity-' in page and "topics by label" in page
    figures = {path.stem for path in (out / "figures").iterdir()}
    assert figures >= {"answers-category", "answers-price", "answers-similarity"}
    assert json.loads((out / "summary.json").read_text("utf-8"))
