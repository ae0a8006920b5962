"""`mops pretrain` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from running import run_cli_with, world


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made = world()
    monkeypatch.setenv("COLUMNS", "250")
    cli = run_cli_with(monkeypatch, capsys)
    out = tmp_path / "encoder"
    words = ["pretrain", "--data", str(made.data), "--encoder", str(made.encoder), "--tasks",
             "sentiment,similarity", "--set", "training.threads=1", "--max-steps", "3",
             "--batch-size", "8", "--out", str(out)]  # fmt: skip
    code, printed, _ = cli(*words, "--dry-run")
    assert code == 0 and "max_steps: 3" in printed and "batch_size: 8" in printed
    assert not out.exists()
    code, printed, said = cli(*words)
    assert code == 0, said
    for word in ("start", "baseline", "end", "left out: ", str(out / "pretrain.json")):
        assert word in printed
    assert "control, step 3: held-out perplexity" in said
    code, printed, _ = cli(*words)
    assert code == 0 and "already holds this encoder" in printed
    code, printed, _ = cli(*words, "--json")
    assert json.loads(printed)["settings"]["tasks"].keys() == {"sentiment", "similarity"}
    code, printed, said = cli(*words, "--seed", "5")
    assert (code, printed) == (2, "") and "training.seed" in said and said.count("\n") == 1
