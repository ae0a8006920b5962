"""What the server says of a survey: the ledger's states, the judged results, nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient
from serving import RunningSurvey

from mops.record import read_curve
from mops.serve import survey as serving_survey
from mops.serve.survey import LiveSurvey, LiveTrial, SurveyService, build_survey_app, seconds_left
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import recommend
from running import run_cli_with, run_python


@pytest.fixture
def running(tmp_path: Path) -> RunningSurvey:
    return RunningSurvey(tmp_path)


def look(service: SurveyService, until: Callable[[LiveSurvey], bool]) -> LiveSurvey:
    """What it shows as soon as a comparison that is being made is there."""
    end = time.monotonic() + 600
    while not until(shown := service.show()):
        assert time.monotonic() < end, shown
        time.sleep(0.05)
    return shown


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_survey_is_shown_as_it_was_judged(running: RunningSurvey) -> None:
    before = files(running.folder)
    shown = look(SurveyService(running.folder), lambda now: now.state == "finished")
    results = judge_survey(running.survey, running.folder)
    odds = {one.name: one for one in recommend(results).odds}
    for one in shown.candidates:
        judged = results[one.name]
        assert (one.score, one.stderr) == (judged.overall.mean, judged.overall.stderr)
        assert (one.within, one.cost) == (odds[one.name].within, odds[one.name].cost)
        assert [trial.seed for trial in one.trials] == sorted(t.seed for t in judged.trials)
        assert {(t.state, t.step, t.steps) for t in one.trials} == {("finished", 8, 8)}
    assert shown.seconds_left == 0
    assert files(running.folder) == before


def test_a_survey_while_it_trains(running: RunningSurvey) -> None:
    now, later = running.trials[-2:]
    running.take_away(now, later)
    running.write_curve(now, count=2)
    with running.ledger.claim([now.id]):
        shown = look(SurveyService(running.folder), lambda now: bool(now.decision))
    states = [t.state for one in shown.candidates for t in one.trials]
    assert shown.state == "training"
    assert [states.count(name) for name in ("finished", "running", "waiting")] == [4, 1, 1]
    (trial,) = (t for one in shown.candidates for t in one.trials if t.state == "running")
    lines = list(map(json.loads, running.lines(now)[:2]))
    assert (trial.step, trial.steps) == (lines[-1]["step"], 8)
    assert trial.curve == tuple((x["step"], x["overall"]) for x in lines if "selection" in x)
    assert shown.seconds_left and shown.seconds_left > 0
    stopped = SurveyService(running.folder).show()
    assert stopped.state == "idle"


def test_it_judges_again_only_when_a_record_has_come(
    running: RunningSurvey, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def judge(*given: Any) -> Any:
        calls.append(given)
        return judge_survey(*given)

    monkeypatch.setattr(serving_survey, "judge_survey", judge)
    (trial,) = running.trials[-1:]
    running.take_away(trial)
    service = SurveyService(running.folder)
    first = look(service, lambda now: bool(now.decision))
    running.write_curve(trial, count=1)
    assert service.show().decision == first.decision
    assert len(calls) == 1
    running.bring_back(trial)
    look(service, lambda now: now.state == "finished")
    assert len(calls) == 2


def made_trial(state: str, step: int, seconds: float, until: float = 1.0) -> LiveTrial:
    return LiveTrial(
        seed=1, state=state, step=step, steps=100, until=until, seconds=seconds, curve=()
    )


def test_the_time_left_follows_from_the_measured_times() -> None:
    """100 s for a training of the first; the second is as fast as the first until it has begun."""
    first = [made_trial("finished", 100, 100), made_trial("running", 40, 40)]
    waiting = [made_trial("waiting", 0, 0, until=0.25)]
    assert seconds_left([first]) == pytest.approx(60)
    assert seconds_left([first, waiting]) == pytest.approx(60 + 25)
    slow = [made_trial("paused", 25, 50, until=0.25), made_trial("waiting", 0, 0)]
    assert seconds_left([first, slow]) == pytest.approx(60 + 200)
    assert seconds_left([[made_trial("failed", 30, 30)]]) == 0
    assert seconds_left([waiting]) is None


def test_a_torn_curve_and_a_torn_record(running: RunningSurvey) -> None:
    """Both are left out; the rest is shown."""
    torn, *_ = running.trials
    path = running.ledger.run_folder(torn.id) / "curve.jsonl"
    path.write_text(path.read_text("utf-8")[:-30], "utf-8")
    shown = look(SurveyService(running.folder), lambda now: now.state == "finished")
    points = [line for line in read_curve(path) if "selection" in line]
    (own,) = (one for one in shown.candidates if one.name == torn.candidate.name)
    assert len(own.trials[0].curve) == len(points) < len(own.trials[1].curve)


def test_over_http(running: RunningSurvey) -> None:
    app = build_survey_app(SurveyService(running.folder), api_key="cheese")
    with TestClient(app) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/survey").status_code == 401
        answer = client.get("/survey", headers={"Authorization": "Bearer cheese"})
        assert answer.json()["name"] == "fixture"
        assert str(running.folder.parent) not in answer.text
        assert client.post("/survey").status_code == 405
        page = client.get("/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for address in re.findall(r'(?:src|href)="(page/[^"]+)"', page.text):
            assert client.get(f"/{address}").status_code == 200
        (running.folder / "survey.yaml").write_text("name: [", "utf-8")
        broken = client.get("/survey", headers={"Authorization": "Bearer cheese"})
        assert broken.status_code == 503
        assert str(running.folder) not in broken.text


@pytest.mark.slow
def test_a_survey_is_shown_without_torch() -> None:
    check = "import sys, mops.serve.survey; sys.exit('torch' in sys.modules)"
    assert run_python("-c", check).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "one of both, found neither"),
        (("model", "--survey", "dir"), "one of both, found both"),
        (("--survey", "nowhere"), "nowhere holds no survey: there is no survey.yaml"),
        (
            ("--survey", "x", "--workers", "3", "--backend", "onnx", "--max-items", "1"),
            "--workers, --max-items, --backend: without effect with --survey",
        ),
        (("--survey", "x", "--wait=2ms", "--device=cpu"), "--wait, --device: without effect"),
    ],
)
def test_wrong_use(
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = run_cli_with(monkeypatch, capsys)("serve", *words, "--port", "0")
    assert code == 2
    assert message in err
