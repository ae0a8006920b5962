"""What one process trains."""

from __future__ import annotations

from typing import Any

from mops.surveys.ledger import Candidate, Trial
from mops.surveys.local import is_small, plan_jobs
from running import world


def trial(plan: str, seed: int = 1, **settings: Any) -> Trial:
    return Candidate(plan, {}, world().recipe(plan, **settings)).trial(seed)


def test_small_networks_on_one_frozen_encoder_go_together() -> None:
    trials = [trial(plan, seed) for plan in ("shared", "frozen+late:SI", "frozen+shared")
              for seed in (1, 2)]  # fmt: skip
    jobs = plan_jobs(trials)
    assert [len(job.trials) for job in jobs] == [1, 1, 4]
    assert sorted(i for job in jobs for i in job.ids) == sorted(trial.id for trial in trials)
    assert [len(job.trials) for job in plan_jobs(trials, workers=2)] == [1, 1, 2, 2]


def test_another_reading_is_another_family() -> None:
    cross, bi = trial("frozen+shared"), trial("frozen+shared", training__pair="bi")
    assert len(plan_jobs([cross, bi])) == 2


def test_what_learns_in_the_encoder_is_trained_alone() -> None:
    assert is_small(world().recipe("frozen+late:SS"))
    assert is_small(world().recipe("frozen+late:SS", training__loss_weights={"sentiment": 2.0}))
    for plan in ("shared", "frozen+pals:parallel", "progressive", "layers:FFS"):
        assert not is_small(world().recipe(plan))
    for setting in ({"training__gradients": "pcgrad"}, {"training__loss_weights": "uncertainty"}):
        assert not is_small(world().recipe("frozen+late:SS", **setting))
