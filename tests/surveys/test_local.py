"""The local executor: trials finish, fail, are killed, and are shared with another survey."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from executing import RecordingWatcher, ledger_with, state_file, trial, wait_until

from mops.surveys.executors import MOST_DEATHS, LocalExecutor, plan_jobs, run_jobs
from mops.surveys.ledger import FAILED, FINISHED, Job, Ledger, Trial


def run(ledger: Ledger, *trials: Trial) -> RecordingWatcher:
    watcher = RecordingWatcher()
    LocalExecutor(ledger, watcher).run(plan_jobs(trials))
    return watcher


@pytest.mark.slow
def test_trials_are_trained_once_and_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    """One trial in its own process, two as a batch, one whose plan does not fit the encoder."""
    good = [trial("shared"), trial("frozen+late:SI"), trial("frozen+late:SI", 2)]
    bad = trial("layers:SSSSSSSS")
    ledger = ledger_with(tmp_path, bad, *good)
    watcher = run(ledger, bad, *good)
    assert [ledger.state(one.id) for one in (bad, *good)] == [FAILED, *[FINISHED] * 3]
    assert "8" in ledger.failure(bad.id)["reason"]
    assert ledger.record(good[1].id).train_info.batched == 2
    assert ledger.record(good[0].id).run_info.seed == 1
    assert len(watcher.ends) == 3 and watcher.fractions and max(watcher.fractions) <= 1.0
    written = [(ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns for one in good]
    run(ledger, bad, *good)
    again = [(ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns for one in good]
    assert written == again
    ledger.forget_failures()
    assert ledger.is_open(bad.id)


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_ends_with_the_same_scores(tmp_path: Path) -> None:
    one = trial("shared", training__max_steps=40, training__save_steps=5)
    calm, killed = (ledger_with(tmp_path / name, one) for name in ("calm", "killed"))
    run(calm, one)
    watcher = RecordingWatcher()
    executor = LocalExecutor(killed, watcher)

    def kill() -> None:
        wait_until(state_file(killed, one).is_file)
        for child in executor.children:
            os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    executor.run(plan_jobs([one]))
    killer.join()
    assert any("signal 9" in note for note in watcher.notes)
    assert calm.record(one.id).scores == killed.record(one.id).scores


def test_a_process_that_always_dies_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trial("shared")
    ledger = ledger_with(tmp_path, one)
    monkeypatch.setattr("sys.executable", "/bin/false")
    run(ledger, one)
    assert f"died {MOST_DEATHS} times" in ledger.failure(one.id)["reason"]


@pytest.mark.slow
def test_two_surveys_in_one_folder_train_each_trial_once(tmp_path: Path) -> None:
    trials = [trial("shared"), trial("separate")]
    ledger = ledger_with(tmp_path, *trials)
    other = threading.Thread(target=run, args=(ledger, *trials))
    other.start()
    run(ledger, *trials)
    other.join()
    assert [ledger.state(one.id) for one in trials] == [FINISHED] * 2
    for one in trials:  # a second training would have appended to the curve
        lines = (ledger.run_folder(one.id) / "curve.jsonl").read_text("utf-8").splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(steps)


def test_what_a_job_notes_elsewhere_reaches_the_watcher(tmp_path: Path) -> None:
    """A child that dies in a Ray worker is started again there; the survey hears of it."""
    one = trial()
    ledger, watcher = ledger_with(tmp_path, one), RecordingWatcher()

    def submit(job: Job) -> Future[Sequence[str]]:
        ledger.fail(one.id, "it is over")
        (done := Future[Sequence[str]]()).set_result(["its process died"])
        return done

    run_jobs(plan_jobs([one]), ledger, watcher, submit)
    assert watcher.notes == ["its process died"] and len(watcher.ends) == 1
