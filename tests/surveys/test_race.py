"""A race: who is trained next, pauses that continue, and the same choice after a kill."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executing import InProcess, KilledError, RecordingWatcher, ledger_with, trial

from mops.evaluate.joint import Joint, estimate_joint
from mops.surveys.budget import Estimator, TrialEstimate
from mops.surveys.design import Survey, to_survey
from mops.surveys.executors import train_trials
from mops.surveys.ledger import PAUSED, Ledger, Progress, Round
from mops.surveys.run import Standing, continued, idle_seconds, next_round, run_survey
from running import world

PLANS = [f"plan{n}" for n in range(8)]


def standing(
    left: float,
    rounds: Sequence[Round] = (),
    joint: Joint | None = None,
    scores: dict[str, float] | None = None,
) -> Standing:
    """Eight plans, each training costs one second; plan0 is the baseline."""
    return Standing(dict.fromkeys(PLANS, 1.0), left, "plan0", rounds, scores or {}, joint)


def estimate(means: Sequence[float], noise: float, seeds: int) -> Joint:
    draw = np.random.default_rng(1)
    values = {
        name: {s: float(mean + noise * draw.normal()) for s in range(1, seeds + 1)}
        for name, mean in zip(PLANS, means, strict=False)
    }
    return estimate_joint(values, np.zeros((len(values),) * 2), np.zeros(len(values)))


def highest(joint: Joint) -> str:
    return joint.names[int(joint.mean_C.argmax())]


def names(entry: Round | None) -> list[str]:
    return list(entry.candidates) if entry else []


def test_workers_that_wait_for_the_last_training_spend_time_too() -> None:
    costs = {"a": 4.0, "b": 4.0, "c": 4.0}
    rungs = [Round(candidates=("a", "b", "c"), seeds=(1,), until=part) for part in (0.25, 1.0)]
    assert idle_seconds(rungs, costs, 2) == 1.0 + 3.0
    seeds = Round(candidates=("a", "b"), seeds=(2, 3))
    assert idle_seconds([*rungs, seeds], costs, 2) == 4.0
    assert idle_seconds([*rungs, seeds], costs, 1) == 0.0


# ------------------------------------------------------------------ who is next


def test_all_candidates_first_with_as_many_seeds_as_rounds_allow() -> None:
    for left, seeds in ((16, 1), (48, 2)):  # three rounds
        first = next_round(standing(left), highest, 0.01)
        assert names(first) == PLANS and first and len(first.seeds) == seeds
        assert first.until == 1


def test_the_better_half_gets_new_seeds_and_the_baseline_where_time_is_plentiful() -> None:
    joint = estimate([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 0.3, 2)
    first = Round(candidates=tuple(PLANS), seeds=(1, 2))
    following = next_round(standing(8, [first], joint), highest, 0.01)
    assert following is not None and following.seeds == (3,)
    assert "plan0" not in following.candidates and len(following.candidates) == 4
    plenty = next_round(standing(30, [first], joint), highest, 0.01)
    assert plenty is not None and {*names(plenty)} == {*names(following), "plan0"}
    assert "dropped: " in following.why and highest(joint) in following.candidates


def test_a_race_ends_when_the_choice_is_settled_or_the_time_is_spent() -> None:
    rounds = [
        Round(candidates=tuple(PLANS), seeds=(1,)),
        Round(candidates=tuple(PLANS), seeds=(2,)),
    ]
    clear = estimate([0.1] * 7 + [0.9], 0.001, 2)
    assert next_round(standing(100, rounds, clear), highest, 0.01) is None
    assert next_round(standing(100, rounds[:1], clear), highest, 0.01) is not None  # one round
    unclear = estimate([0.5] * 8, 0.05, 2)
    assert next_round(standing(100, rounds, unclear), highest, 0.001) is not None
    assert next_round(standing(1, rounds, unclear), highest, 0.001) is None


def test_without_time_for_all_there_are_rungs() -> None:
    first = next_round(standing(10), highest, 0.01)
    assert first and first.until == 0.25 and names(first) == PLANS
    scores = {name: float(n) for n, name in enumerate(PLANS)}
    second = next_round(standing(8, [first], scores=scores), highest, 0.01)
    assert second and second.until == 0.5 and second.seeds == (1,)
    assert names(second) == ["plan0", "plan4", "plan5", "plan6", "plan7"]
    third = next_round(standing(6, [first, second], scores=scores), highest, 0.01)
    assert third and third.until == 1 and names(third) == ["plan0", "plan5", "plan6", "plan7"]


# ------------------------------------------------------------------ pauses


def test_a_paused_trial_continues_and_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    """Alone and in a batch: the same weights, bit for bit."""
    trials = [trial("hybrid:1"), trial("frozen+late:SI"), trial("frozen+late:IS")]
    whole, paused = (ledger_with(tmp_path / name, *trials) for name in ("whole", "paused"))
    for ids in ([trials[0].id], [one.id for one in trials[1:]]):
        train_trials(whole.folder, ids)
        for until in (0.5, 1.0):
            for trial_id in ids:
                paused.note_pause(trial_id, until=until)
            train_trials(paused.folder, ids)
            if until < 1:
                assert {paused.state(trial_id) for trial_id in ids} == {PAUSED}
                assert paused.open_ids(ids) == []
                facts = paused.pause(ids[0])
                assert facts.reached == until and 0 < facts.rank < 1 and facts.seconds > 0
    for one in trials:
        files = [
            ledger.run_folder(one.id) / "model/model.safetensors" for ledger in (whole, paused)
        ]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert whole.record(one.id).scores == paused.record(one.id).scores


# ------------------------------------------------------------------ the whole race


def small_race(budget: float) -> Survey:
    plans = ["shared", "separate", "hybrid:1", "frozen+shared", "frozen+late:SI"]
    data = {"name": "race", "axes": {"plan": plans}, "budget": budget}
    return to_survey(data, world().recipe(training__max_steps=8, training__eval_steps=2))


@pytest.fixture()
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cost pass, and times that do not depend on the machine."""
    monkeypatch.setattr("mops.surveys.run.measure_costs", lambda *_: {})
    measured = Ledger.progress

    def progress(ledger: Ledger, trial_id: str) -> Progress:
        facts = measured(ledger, trial_id)
        return replace(facts, seconds=float(facts.reached > 0))

    monkeypatch.setattr(Ledger, "progress", progress)
    even = TrialEstimate("", 8, 1, 1, 1.0, 0.0, 0.0, "", ())
    monkeypatch.setattr(Estimator, "estimate", lambda _, name, recipe: replace(even, name=name))


def rounds_of(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())["rounds"]


@pytest.mark.usefixtures("steady")
def test_killed_and_continued_a_race_ends_the_same(tmp_path: Path) -> None:
    calm = run_survey(small_race(16), tmp_path / "calm", RecordingWatcher(), executor=InProcess)
    assert len(calm.rounds) > 1 and names(calm.rounds[0]) != names(calm.rounds[-1])
    killed = tmp_path / "killed"
    for jobs in (2, 5, 10**6):
        InProcess.jobs = jobs
        survey = continued(small_race(16), killed)
        try:
            run_survey(survey, killed, RecordingWatcher(), executor=InProcess)
        except KilledError:
            continue
    assert rounds_of(killed) == rounds_of(tmp_path / "calm")
    again = json.loads((killed / "summary.json").read_text())
    scores = {c["name"]: c["scores"]["overall"]["mean"] for c in again["candidates"]}
    assert scores == {c.name: c.overall.mean for c in calm.candidates}
    counts = {c.name: len(c.trials) for c in calm.candidates}
    assert max(counts.values()) > min(counts.values())


@pytest.mark.usefixtures("steady")
def test_a_poor_race_drops_candidates_before_their_end(tmp_path: Path) -> None:
    results = run_survey(small_race(6), tmp_path, RecordingWatcher(), executor=InProcess)
    assert [entry.until for entry in results.rounds[:3]] == [0.25, 0.5, 1.0]
    assert len(results.candidates) < 5 and results.baseline in results


@pytest.mark.usefixtures("steady")
def test_seeds_are_added_to_some_candidates(tmp_path: Path) -> None:
    survey = small_race(16).model_copy(update={"budget": None, "seeds": (1, 2)})
    run_survey(survey, tmp_path, RecordingWatcher(), executor=InProcess)
    more = continued(survey, tmp_path).with_more_seeds(2, ["hybrid:1"])
    results = run_survey(more, tmp_path, RecordingWatcher(), executor=InProcess)
    assert [trial.seed for trial in results["hybrid:1"].trials] == [1, 2, 3, 4]
    assert [trial.seed for trial in results["shared"].trials] == [1, 2]
