"""The server as a process: its answers over the network, and its end under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from running import one_core, run_cli_with, world

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")


@pytest.fixture
def server() -> Iterator[tuple[Any, str]]:
    with one_core():
        model = str(world().run / "model")
    words = [sys.executable, "-m", "mops", "serve", model, "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = next(line for line in process.stderr if "running on" in line)
    yield process, next(word for word in line.split() if word.startswith("http"))
    process.kill()
    process.wait()
    process.stderr.close()


@pytest.mark.slow
def test_every_accepted_request_is_answered_at_the_end(server: tuple[Any, str]) -> None:
    process, address = server
    body = {"items": [{"text": "a lovely film", "text_pair": "a fine movie"}] * 20}
    first = httpx.post(f"{address}/predict", json=body, timeout=60).json()["answers"]
    accepted: list[Any] = []

    def ask(_: int) -> None:
        try:
            answer = httpx.post(f"{address}/predict", json=body, timeout=60)
        except httpx.ConnectError:  # it no longer listens: not accepted
            return
        accepted.append(answer)

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ask, n) for n in range(64)]
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        for future in waiting:
            future.result()
    assert process.wait(60) in (0, -signal.SIGTERM)  # uvicorn passes the signal on at the end
    assert accepted
    assert all(answer.json()["answers"] == first for answer in accepted)


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
    code, _, err = run_cli_with(monkeypatch, capsys)("serve", *words)
    assert code == 2
    assert message in err
