"""The server as a process: its answers over the network, and its end under load."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from running import one_core, run_cli_with, run_python, world

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")


class Server:
    """`mops serve` as a process; its log goes to a file."""

    def __init__(self, folder: Path, *words: str, workers: int = 1) -> None:
        with one_core():
            model = str(world().run / "model")
        command = [sys.executable, "-m", "mops", "serve", model, "--port", "0", *words]
        self.path, self.workers = folder / "log", list[int]()
        with self.path.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file)
        while len(self.workers) < workers:
            assert self.process.poll() is None, self.path.read_text("utf-8")
            time.sleep(0.05)
            events = [(line["event"], line["process"]) for line in self.log()]
            self.workers = [process for event, process in events if "startup complete" in event]
        while not (found := re.search(r"running on (\S+)", self.path.read_text("utf-8"))):
            time.sleep(0.05)
        self.address = found[1]

    def log(self) -> list[dict[str, Any]]:
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def ask(self, client: Any, **body: Any) -> Any:
        return client.post(f"{self.address}/predict", json=body, timeout=60)


@contextmanager
def running(folder: Path, *words: str, workers: int = 1) -> Iterator[Server]:
    server = Server(folder, *words, workers=workers)
    try:
        yield server
    finally:
        server.process.terminate()
        try:
            server.process.wait(60)
        finally:
            server.process.kill()


# Seconds that a client on a busy machine may take from its note of the time to its request.
UNSURE = 4.0
ITEMS = [{"text": "a lovely film", "text_pair": "a fine movie"}] * 20


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_every_accepted_request_is_answered_at_the_end(tmp_path: Path, workers: int) -> None:
    """A request on an open connection before the signal is answered; a later one, or refused."""
    words = ["--workers", str(workers), "--batch-tokens", "64"]  # many batches are waiting
    with running(tmp_path, *words, workers=workers) as server:
        ended, asked = Event(), list[tuple[float, Any]]()
        first = server.ask(httpx, items=ITEMS).json()["answers"]

        def ask_on() -> None:
            with httpx.Client() as client:
                client.get(f"{server.address}/health")  # the connection is open
                while not ended.is_set():
                    sent, outcome = time.monotonic(), None
                    with suppress(httpx.TransportError):
                        outcome = server.ask(client, items=ITEMS)
                    asked.append((sent, outcome))
                    if outcome is None:  # it no longer listens
                        return

        with ThreadPoolExecutor(16) as pool:
            waiting = [pool.submit(ask_on) for _ in range(16)]
            until = time.monotonic() + 1.5 * UNSURE
            while len(asked) < 32 or time.monotonic() < until:
                time.sleep(0.01)
            signalled = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            code = server.process.wait(180)  # a busy machine
            ended.set()
            for future in waiting:
                future.result()
    assert code == 0
    before = [answer for sent, answer in asked if sent < signalled - UNSURE]
    assert len(before) >= 16
    assert None not in before
    answered = [answer for _, answer in asked if answer is not None]
    assert {answer.status_code for answer in answered} == {200}
    assert all(answer.json()["answers"] == first for answer in answered)
    logged = [line["status"] for line in server.log() if line.get("path") == "/predict"]
    assert logged == [200] * (1 + len(answered))  # none was begun and lost


@pytest.mark.slow
def test_workers_map_the_same_weights(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "2", workers=2) as server:
        answers = [server.ask(httpx, items=ITEMS).json()["answers"] for _ in range(30)]
        assert all(answer == answers[0] for answer in answers)
        metrics = httpx.get(f"{server.address}/metrics").text
        assert 'mops_requests_total{path="/predict",status="200"} 30.0' in metrics
        if not Path("/proc/self/smaps").is_file():
            return
        for process in server.workers:
            copies = Path(f"/proc/{process}/smaps").read_text("utf-8").split("VmFlags")
            [weights] = [each for each in copies if "model.safetensors" in each]
            assert re.search(r"Private_Dirty: +0 kB", weights)
            assert re.search(r"Anonymous: +0 kB", weights)
            assert re.search(r"Rss: +[1-9]", weights)
            whole = Path(f"/proc/{process}/smaps_rollup").read_text("utf-8")
            own, resident = (kilobytes(key, whole) for key in ("Private_Dirty", "Rss"))
            assert own < resident / 3  # libraries and model are the parent's


def kilobytes(key: str, status: str) -> int:
    return int(re.findall(rf"(?m)^{key}: +(\d+) kB", status)[0])


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "2", workers=2) as server:
        first = server.ask(httpx, items=ITEMS).json()["answers"]
        os.kill(server.workers[0], signal.SIGKILL)
        while len({line["process"] for line in server.log() if "complete" in line["event"]}) < 3:
            time.sleep(0.05)
        answers = [server.ask(httpx, items=ITEMS).json()["answers"] for _ in range(10)]
        assert all(answer == first for answer in answers)
        events = [line["event"] for line in server.log() if line["level"] == "error"]
        assert events == [f"worker {server.workers[0]} has died: -9"]


FAILS = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from mops.serve.workers import serve

@asynccontextmanager
async def fail(_):
    raise ValueError("no model")
    yield

serve(FastAPI(lifespan=fail), workers=2, port=0)
"""


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_server() -> None:
    done = run_python("-c", FAILS, timeout=120)
    assert done.returncode == 1
    assert "the server could not start; the log says why" in done.stderr
    assert "no model" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "last"), [("1", "task 'sentiment'"), ("2", "the log says why")]
)
def test_weights_that_are_not_finite_end_the_start(tmp_path: Path, workers: str, last: str) -> None:
    with one_core():
        model = shutil.copytree(world().run / "model", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    weights["head/sentiment.output.bias"][1] = np.nan
    save_file(weights, model / "model.safetensors")
    (model / "manifest.json").unlink()  # as one of an earlier version
    words = ("serve", str(model), "--port", "0", "--workers", workers)
    done = run_python("-m", "mops", *words, timeout=120)
    *events, error = done.stderr.splitlines()
    assert done.returncode == 1
    assert error.startswith(f"mops: error: the server could not start; {last}")
    logged = [json.loads(line)["event"] for line in events]
    assert any(event.startswith("task 'sentiment': the output for a text") for event in logged)


def test_a_port_that_is_taken_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run_cli_with(monkeypatch, capsys)("serve", "nowhere", "--port", str(port))
    assert code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in err


@pytest.mark.parametrize(("platform", "device"), [("darwin", "cpu"), ("linux", "meta")])
def test_workers_need_a_process_that_can_be_forked(
    platform: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    words = ("--port=0", "--workers=2", f"--device={device}")
    code, _, err = run_cli_with(monkeypatch, capsys)("serve", "nowhere", *words)
    assert code == 2
    assert f"found {platform} and {device}" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not a bundle"),
        (["nowhere", "--max-items", "9", "--max-waiting", "8"], "would never be answered"),
        (["nowhere", "--timeout", "soon"], "--timeout 'soon'"),
    ],
)
def test_wrong_use(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = run_cli_with(monkeypatch, capsys)("serve", *words, "--port", "0")
    assert code == 2
    assert message in err
