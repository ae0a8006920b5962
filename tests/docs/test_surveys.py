"""The worked example of docs/surveys.md, recomputed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mops.evaluate.joint import estimate_joint
from mops.evaluate.posterior import posterior

PAGE = Path(__file__).parents[2] / "docs" / "surveys.md"


def test_the_worked_example() -> None:
    text = PAGE.read_text("utf-8")
    example = text[text.index("<!-- example") : text.index("<!-- end of example")]
    lines = [line.strip("| ").split(" | ") for line in example.splitlines() if line[:1] == "|"]
    rows = {name: cells for name, *cells in lines[2:]}
    values = {name: {s: float(cells[s - 1]) for s in (1, 2, 3)} for name, cells in rows.items()}
    shared_CC = 0.012**2 + 0.002**2 * np.eye(len(rows))
    joint = estimate_joint(values, shared_CC, np.full(len(rows), 0.007**2))
    chances = posterior(joint)
    near, nearer, regret = chances.within(0.01), chances.within(0.02), chances.regret()
    for number, (name, cells) in enumerate(rows.items()):
        assert cells[3] == f"{joint.mean_C[number]:.3f}"
        for cell, wanted in ((cells[4], near[name]), (cells[5], nearer[name])):
            assert float(cell.split()[0]) / 100 == pytest.approx(wanted, abs=0.006)
        assert float(cells[6]) == pytest.approx(regret[name], abs=0.0006)
    gain = joint.against("shared")["hybrid:3"]
    for number in (
        f"standard error of {joint.covariance_CC[0, 0] ** 0.5:.3f}",
        f"error of a difference is {joint.errors_CC[0, 1]:.3f}",
        f"{joint.freedom:.1f} degrees of freedom",
        f"gains {gain.mean:.3f} ({gain.low:.3f} to {gain.high:.3f})",
    ):
        assert number in example
    assert joint.best_set() == ("hybrid:3", "separate")
