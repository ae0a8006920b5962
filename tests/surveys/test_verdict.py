"""The winner of a search beside the default; hand-made records where the answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mops.errors import RunError
from mops.evaluate.compare import Difference
from mops.surveys.ledger import STOPPED, Candidate, Ledger, Trial
from mops.surveys.tuning.search import close, evaluations, train_trial
from mops.surveys.tuning.verdict import look_up, pick_winner, warn
from running import world


def trials(*plans: str) -> list[Trial]:
    return [Candidate(plan, {}, world().recipe(plan)).trial(1) for plan in plans]


def difference(mean: float, *, is_real: bool = False, seeds: int = 3) -> Difference:
    return Difference(mean, 0.01, mean - 0.02, mean + 0.02, 0.5, 0.5, is_real, seeds)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (difference(-0.01), "worse than the default"),
        (difference(0.0), "worse than the default"),
        (difference(-0.3, is_real=True), "worse than the default"),
        (difference(0.01), "cannot be told from the default"),
        (difference(0.5, seeds=1), "one seed cannot tell"),
        (None, "has not finished"),
    ],
)
def test_a_winner_that_is_none_is_named(found: Difference | None, said: str) -> None:
    default, winner = (one.candidate for one in trials("shared", "separate"))
    assert said in warn(winner, default, found)


def test_a_real_gain_has_no_warning_and_the_default_may_win() -> None:
    default, winner = (one.candidate for one in trials("shared", "separate"))
    assert warn(winner, default, difference(0.1, is_real=True)) == ""
    assert "keep it" in warn(default, default, None)


def test_what_was_stopped_is_noted_with_its_step(tmp_path: Path) -> None:
    ledger, (one, other) = Ledger(tmp_path), trials("shared", "separate")
    ledger.register([one, other])
    close(ledger, one.id, {"step": 12, "score": 0.5}, None)
    assert ledger.state(one.id) == STOPPED
    assert (look_up(one, ledger).step, look_up(one, ledger).selection) == (12, 0.5)
    close(ledger, other.id, {}, RuntimeError("gone"))
    assert "gone" in ledger.failure(other.id)["reason"]
    with pytest.raises(RunError, match="no trial of the search has finished"):
        pick_winner([one, other], ledger)


def test_evaluations_are_read_back_from_a_curve_that_was_cut_off(tmp_path: Path) -> None:
    curve = tmp_path / "curve.jsonl"
    assert evaluations(curve, "overall") == []
    lines = ['{"step": 1, "loss": 2.0}', '{"step": 5, "overall": 0.25}', '{"step": 10, "over']
    curve.write_text("\n".join(lines), "utf-8")
    assert evaluations(curve, "overall") == [(5, 0.25)]


def test_a_trial_tells_each_evaluation_once_and_again_when_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best score so far, after 4 and 8 steps; a finished or stopped trial is not trained."""
    tune = pytest.importorskip(
        "ray.tune", reason="ray is not installed: pip install 'mops-nlp[ray]'"
    )
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(tune, "report", told.append)
    ledger, (one, other) = Ledger(tmp_path), trials("shared", "frozen+shared")
    ledger.register([one, other])
    train_trial({"folder": str(tmp_path), "trial": one.id, "best_by": "overall"})
    assert [(line["step"], line["evaluations"]) for line in told] == [(4, 1), (8, 2)]
    assert told[1]["score"] == ledger.record(one.id).train_info.best_score
    written = (ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns
    train_trial({"folder": str(tmp_path), "trial": one.id, "best_by": "overall"})
    assert told[2:] == told[:2]
    assert (ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns == written
    close(ledger, other.id, {"step": 4, "score": 0.5}, None)
    train_trial({"folder": str(tmp_path), "trial": other.id, "best_by": "overall"})
    assert ledger.state(other.id) == STOPPED and not ledger.run_folder(other.id).exists()
