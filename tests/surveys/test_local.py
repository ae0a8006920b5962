"""Jobs in processes of their own: finished, failed, killed, shared with another survey."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mops.surveys.ledger import (
    FAILED,
    FINISHED,
    RUNNING,
    STARTED,
    WAITING,
    Candidate,
    Ledger,
    Trial,
)
from mops.surveys.local import DEATHS, Job, Local, plan_jobs
from running import world


class Heard:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self.ends: list[str] = []
        self.notes: list[str] = []

    def started(self, job: Job) -> None:
        pass

    def moved(self, job: Job, share: float, what: str) -> None:
        self.shares.append(share)

    def ended(self, job: Job) -> None:
        self.ends.append(job.name)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, name: str) -> None:
        pass


def trial(plan: str, seed: int = 1, **settings: object) -> Trial:
    return Candidate(plan, {}, world().recipe(plan, **settings)).trial(seed)


def ledger_of(folder: Path, *trials: Trial) -> Ledger:
    ledger = Ledger(folder)
    ledger.enter(trials)
    return ledger


def scores(ledger: Ledger, one: Trial) -> object:
    return ledger.record(one.id).scores


def test_every_trial_is_trained_as_if_alone(tmp_path: Path) -> None:
    """One in its own process, two batched; a second time nothing is left to do."""
    trials = [trial("shared"), trial("frozen+late:SI"), trial("frozen+late:SI", 2)]
    ledger, heard = ledger_of(tmp_path, *trials), Heard()
    assert [ledger.state(one.id) for one in trials] == [WAITING] * 3
    Local(ledger, heard).run(plan_jobs(trials))
    assert [ledger.state(one.id) for one in trials] == [FINISHED] * 3
    assert ledger.record(trials[1].id).train_info.batched == 2
    assert ledger.record(trials[0].id).run_info.seed == 1
    assert len(heard.ends) == 2 and heard.shares and max(heard.shares) <= 1.0
    before = [(ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns for one in trials]
    Local(ledger, Heard()).run(plan_jobs(trials))
    after = [(ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns for one in trials]
    assert before == after


def test_a_failed_trial_is_recorded_and_stops_nobody(tmp_path: Path) -> None:
    good, bad = trial("shared"), trial("layers:SSSSSSSS")
    ledger = ledger_of(tmp_path, bad, good)
    Local(ledger, Heard()).run(plan_jobs([bad, good]))
    assert [ledger.state(one.id) for one in (bad, good)] == [FAILED, FINISHED]
    assert "8" in ledger.failure(bad.id)["reason"]
    ledger.forget_failures()
    assert ledger.is_open(bad.id)


def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    """The run goes on from its state; its scores are those of an undisturbed one."""
    calm, hunted = tmp_path / "calm", tmp_path / "hunted"
    one = trial("shared", training__max_steps=40, training__save_steps=5)
    for folder in (calm, hunted):
        ledger_of(folder, one)
    Local(Ledger(calm), Heard()).run(plan_jobs([one]))
    ledger, heard = Ledger(hunted), Heard()
    engine = Local(ledger, heard)
    killer = threading.Thread(target=kill_once, args=(engine, ledger, one))
    killer.start()
    engine.run(plan_jobs([one]))
    killer.join()
    assert any("signal 9" in note for note in heard.notes)
    assert scores(Ledger(calm), one) == scores(ledger, one)


def kill_once(engine: Local, ledger: Ledger, one: Trial) -> None:
    state = ledger.run_folder(one.id) / "state" / "state.safetensors"
    while not state.is_file():
        time.sleep(0.01)
    for child in engine.children:
        os.kill(child.pid, signal.SIGKILL)


def test_a_process_that_always_dies_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trial("shared")
    ledger = ledger_of(tmp_path, one)
    monkeypatch.setattr("sys.executable", "/bin/false")
    Local(ledger, Heard()).run(plan_jobs([one]))
    assert f"died {DEATHS} times" in ledger.failure(one.id)["reason"]


def test_two_surveys_in_one_folder_do_not_collide(tmp_path: Path) -> None:
    trials = [trial("shared"), trial("separate")]
    ledger = ledger_of(tmp_path, *trials)
    other = threading.Thread(target=quiet_run, args=(ledger, plan_jobs(trials)))
    other.start()
    quiet_run(ledger, plan_jobs(trials))
    other.join()
    assert [ledger.state(one.id) for one in trials] == [FINISHED] * 2
    for one in trials:  # trained once: a second training would have appended to the curve
        lines = (ledger.run_folder(one.id) / "curve.jsonl").read_text("utf-8").splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(steps)


def quiet_run(ledger: Ledger, jobs: list[Job]) -> None:
    Local(ledger, Heard()).run(jobs)


def test_who_works_on_a_trial_holds_it(tmp_path: Path) -> None:
    one = trial("shared")
    ledger = ledger_of(tmp_path, one)
    ledger.run_folder(one.id).mkdir(parents=True)
    assert ledger.state(one.id) == STARTED
    with ledger.claim([one.id]) as mine:
        assert mine == [one.id]
        assert Ledger(tmp_path).state(one.id) == RUNNING
        with Ledger(tmp_path).claim([one.id]) as theirs:
            assert theirs == []
    assert ledger.state(one.id) == STARTED
