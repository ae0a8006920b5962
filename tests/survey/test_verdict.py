"""The winner of a search beside the default; hand-made records where the answer is known."""

from __future__ import annotations

import pytest

from mops.errors import RunError
from mops.judge.differences import Difference
from mops.survey.ledger import STOPPED, Ledger
from mops.survey.search import close, evaluations
from mops.survey.trials import Candidate, Trial
from mops.survey.verdict import look_up, pick_winner, warn
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


def test_what_was_stopped_is_noted_with_its_step(tmp_path) -> None:
    ledger, (one, other) = Ledger(tmp_path), trials("shared", "separate")
    ledger.enter([one, other])
    close(ledger, one.id, {"step": 12, "score": 0.5}, None)
    assert ledger.state(one.id) == STOPPED
    assert (look_up(one, ledger).step, look_up(one, ledger).selection) == (12, 0.5)
    close(ledger, other.id, {}, RuntimeError("gone"))
    assert "gone" in ledger.failure(other.id)["reason"]
    with pytest.raises(RunError, match="no trial of the search has finished"):
        pick_winner([one, other], ledger)


def test_evaluations_are_read_back_from_a_curve_that_was_cut_off(tmp_path) -> None:
    curve = tmp_path / "curve.jsonl"
    assert evaluations(curve, "overall") == []
    lines = ['{"step": 1, "loss": 2.0}', '{"step": 5, "overall": 0.25}', '{"step": 10, "over']
    curve.write_text("\n".join(lines), "utf-8")
    assert evaluations(curve, "overall") == [(5, 0.25)]
