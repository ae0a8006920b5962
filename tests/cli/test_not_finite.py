"""Weights that are not finite give no answer, and JSON never has NaN."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mops
from mops.cli.screen import respond
from mops.predict.inference import OutputError, refuse_not_finite
from running import World


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_damaged_weights_give_no_answer(
    made: World, tmp_path: Path, run_cli: Any, value: float
) -> None:
    """It would be a label like any other, with the probability NaN."""
    model = shutil.copytree(made.run / "model", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    weights["head/sentiment.output.bias"][1] = value
    save_file(weights, model / "model.safetensors")
    (model / "manifest.json").unlink()  # as one of an earlier version
    predictor = mops.load(model)
    with pytest.raises(mops.MopsError, match=r"'sentiment': the output for row 1 is not a finite"):
        predictor.predict("sentiment", ["bat bin", "bet"])
    assert len(predictor.predict("paraphrase", [("bat", "bin")])) == 1  # its weights are sound
    path = tmp_path / "rows.csv"
    path.write_text("sentence\nbat bin\nbet\n")
    for more in ([], ["--json"]):
        code, out, err = run_cli("predict", str(model), str(path), "--task", "sentiment", *more)
        assert code == 1 and "an" not in out.lower()
        assert "for rows.csv:2 is not a finite number" in err and err.count("\n") == 1


def test_words_without_a_number_give_no_tags() -> None:
    fine, broken = np.zeros((3, 2)), np.array([[0.0, 1.0], [np.nan, 0.0]])
    refuse_not_finite("tags", [fine, fine])
    with pytest.raises(OutputError, match="row 2"):
        refuse_not_finite("tags", [fine, broken])


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    respond(True, {"scores": [1.5, float("nan")], "most": (float("inf"),)}, print)
    assert json.loads(capsys.readouterr().out) == {"scores": [1.5, None], "most": [None]}
