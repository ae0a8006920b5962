"""Requests that nobody would send: no answer is a failure of the server, and none costs memory."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from benchmarks.resident import MIB, resident

pytest.importorskip("fastapi")
from fastapi import FastAPI
from fastapi.testclient import TestClient

from building import build_network, tiny_tokenizer
from mops.plans.shapes import Reading
from mops.predict.bundle import Bundle, Predictor
from mops.serve.app import Limits, Service, build_app

pytestmark = pytest.mark.slow
BODIES = 10_000
WORDS = ("a film", "", " ", "\0", "é", "ﷺ" * 30, "\u202e", "🤷🏽", "[SEP]", "x" * 5000, "-1", "NaN")
VALUES = (None, True, 0, -1, 10**400, 1.5, 1e308, float("nan"), float("inf"), *WORDS)
KEYS = ("id", "text", "text_pair", "items", "tasks", "", "\ud800", "__class__")


@pytest.fixture
def app(encoder_folder: Any) -> FastAPI:
    folder = encoder_folder("bert")
    network = build_network("hybrid:2", folder, reading=Reading(max_length=24))
    predictor = Predictor(Bundle(folder, network, tiny_tokenizer(), {}, {}))
    limits = Limits(max_items=8, max_characters=2000, max_body=40_000, max_waiting=100)
    return build_app(Service(predictor, limits))


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON, with the names of the description in it."""
    kind = chance.randrange(6 if depth < 4 else 4)
    if kind == 4:
        return [value(chance, depth + 1) for _ in range(chance.randrange(5))]
    if kind == 5:
        keys = chance.sample(KEYS, chance.randrange(4))
        return {key: value(chance, depth + 1) for key in keys}
    return chance.choice(VALUES)


def question(chance: random.Random) -> Any:
    """Nearly right: some of these are answered."""
    items = [
        {"text": chance.choice(WORDS), "text_pair": chance.choice((None, *WORDS))}
        for _ in range(chance.randrange(10))
    ]
    if items and chance.random() < 0.3:
        chance.choice(items)[chance.choice(KEYS)] = value(chance, 3)
    tasks = chance.choice((None, [], ["sentiment"], ["similarity", "none"], [3], "sentiment"))
    return {"items": items, "tasks": tasks}


def body(chance: random.Random) -> bytes:
    """A question, any JSON, or something that is damaged."""
    text = json.dumps(chance.choice((question, question, value))(chance))
    data = bytearray(text.encode())
    kind = chance.randrange(8)
    if kind == 0 and data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        del data[chance.randrange(len(data) + 1) :]
    elif kind == 2:
        return chance.choice((b"[" * 30_000, b"\xff\xfe", b"", b" " * 50_000, chance.randbytes(50)))
    return bytes(data)


def answers(client: TestClient, count: int, seed: int) -> Iterator[int]:
    chance = random.Random(seed)
    kinds = ["application/json"] * 6 + ["text/plain", "multipart/form-data", ""]
    for _ in range(count):
        headers = {"content-type": chance.choice(kinds)}
        yield client.post("/predict", content=body(chance), headers=headers).status_code


def test_ten_thousand_bodies(app: FastAPI) -> None:
    with TestClient(app, raise_server_exceptions=False) as client:
        warm = set(answers(client, BODIES // 5, 1))  # allocators, caches, lazy imports
        before = resident()
        found = {*warm, *answers(client, BODIES, 2)}
        assert client.post("/predict", json={"items": [{"text": "a"}]}).status_code == 200
    assert found == {200, 400, 413, 422}
    assert (resident() - before) / MIB < 24


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    """The application on a free port of this machine."""
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = Thread(target=server.run)
    thread.start()
    end = time.monotonic() + 300
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_requests_that_follow_the_description(address: str) -> None:
    """Schemathesis reads the description and invents requests to all addresses."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error

    asked = set[str]()
    for found in schemathesis.openapi.from_url(f"{address}/openapi.json").get_all_operations():

        @settings(
            max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=found.ok().as_strategy())
        def ask(case: Any) -> None:
            asked.add(case.path)
            case.call_and_validate(checks=[not_a_server_error])

        ask()
    assert asked == {"/predict", "/tasks", "/plan", "/plan.svg", "/health", "/ready", "/metrics"}
