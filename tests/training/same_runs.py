"""When two runs are the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mops


def curve(run: Path) -> list[dict[str, Any]]:
    """All but the seconds, which are measured."""
    lines = [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same_model(run: Path, whole: Path) -> None:
    """Weights and predictions byte for byte, the curve but for its seconds, the same scores."""
    weights = "model/model.safetensors"
    assert (run / weights).read_bytes() == (whole / weights).read_bytes()
    assert curve(run) == curve(whole)
    for file in (whole / "predictions").iterdir():
        assert (run / "predictions" / file.name).read_bytes() == file.read_bytes()
    mine, theirs = (mops.read_record(folder / "record.json") for folder in (run, whole))
    assert mine.scores == theirs.scores and mine.warnings == theirs.warnings
