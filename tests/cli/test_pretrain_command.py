"""`mops pretrain` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from running import World


def test_the_command(made: World, run_cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "encoder"
    words = ["pretrain", "--data", str(made.data), "--encoder", str(made.encoder), "--tasks",
             "sentiment,similarity", "--set", "training.threads=1", "--max-steps", "3",
             "--batch-size", "8", "--out", str(out)]  # fmt: skip
    code, printed, _ = run_cli(*words, "--dry-run")
    assert code == 0 and "max_steps: 3" in printed and "batch_size: 8" in printed
    assert not out.exists()
    code, printed, said = run_cli(*words)
    assert code == 0, said
    for word in ("start", "end", "left out: ", str(out / "pretrain.json")):
        assert word in printed
    assert "step 3: held-out perplexity" in said
    code, printed, _ = run_cli(*words)
    assert code == 0 and "already holds this encoder" in printed
    code, printed, _ = run_cli(*words, "--json")
    assert json.loads(printed)["settings"]["tasks"].keys() == {"sentiment", "similarity"}
    code, printed, said = run_cli(*words, "--seed", "5")
    assert (code, printed) == (2, "") and "training.seed" in said and said.count("\n") == 1
