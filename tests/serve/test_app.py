"""The server's answers: those of the predictor, and clear refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from building import THREE_TASKS, VOCABULARY, build_network, tiny_tokenizer
from mops.errors import RunError
from mops.plans.shapes import Reading
from mops.predict.bundle import Bundle, Predictor
from mops.serve.app import Limits, Service, build_app
from mops.serve.batching import predict_items
from mops.serve.workers import JsonLines

SENTIMENT, PARAPHRASE, SIMILARITY = (task.name for task in THREE_TASKS)
LIMITS = Limits(max_items=8, max_characters=200, max_body=4000, max_waiting=10, timeout=300.0)


@pytest.fixture
def predictor(encoder_folder: Any) -> Predictor:
    folder = encoder_folder("bert")
    network = build_network("hybrid:2", folder, reading=Reading(max_length=24))
    return Predictor(Bundle(folder, network, tiny_tokenizer(), {}, {}))


@pytest.fixture
def service(predictor: Predictor) -> Service:
    return Service(predictor, LIMITS)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(build_app(service)) as client:
        yield client


def ask(client: TestClient, *items: dict[str, Any], **more: Any) -> Any:
    return client.post("/predict", json={"items": list(items), **more})


def test_the_answers_are_the_predictor_s(client: TestClient, predictor: Predictor) -> None:
    answers = ask(client, {"id": 7, "text": "a film", "text_pair": "a movie"}).json()["answers"]
    texts = {SENTIMENT: ("a film",), PARAPHRASE: ("a film", "a movie")}
    texts[SIMILARITY] = texts[PARAPHRASE]
    [expected] = predict_items(predictor, [texts])
    assert isinstance(expected, dict)
    assert answers == [{"id": 7, **expected}]
    shares = answers[0][SENTIMENT]["probabilities"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert answers[0][SENTIMENT]["prediction"] == max(shares, key=shares.get)


def test_tasks_are_chosen_by_name_or_by_the_texts(client: TestClient) -> None:
    found = ask(client, {"text": "a"}, {"text": "a", "text_pair": "b"}).json()["answers"]
    assert set(found[0]) == {"id", SENTIMENT}
    assert set(found[1]) == {"id", SENTIMENT, PARAPHRASE, SIMILARITY}
    found = ask(client, {"text": "a", "text_pair": "b"}, tasks=[SIMILARITY]).json()["answers"]
    assert set(found[0]) == {"id", SIMILARITY}


def test_an_error_belongs_to_its_item(client: TestClient) -> None:
    items = ({"text": "good"}, {"text": "x" * 201}, {"text": "good"})
    found = ask(client, *items, tasks=[SENTIMENT]).json()["answers"]
    assert found[0] == found[2]
    assert found[1]["error"] == "a text has 201 characters; at most 200"
    assert (
        "send text_pair" in ask(client, items[0], tasks=[SIMILARITY]).json()["answers"][0]["error"]
    )
    assert "no task 'x'" in ask(client, items[0], tasks=["x"]).json()["answers"][0]["error"]
    assert ask(client).json()["answers"] == []


def test_texts_that_are_empty_or_cut_are_warned_of(client: TestClient) -> None:
    """Each item on its own, also where others are computed with it."""
    exact, longer = "a " * 22, "a " * 23  # of 24 tokens, with [CLS] and [SEP]
    items = [
        {"text": "a film", "text_pair": "a movie"},
        {"text": " \n"},
        {"text": "a film", "text_pair": ""},
        {"text": exact},
        {"text": longer},
        {"text": "a " * 11, "text_pair": "a " * 11},
    ]
    found = ask(client, *items).json()["answers"]
    cut = "longer than 24 tokens, the rest is not read: "
    assert [answer.get("warnings") for answer in found] == [
        None,
        ["text is empty"],
        ["text_pair is empty"],
        None,
        [f"{cut}{SENTIMENT}"],
        [f"{cut}{PARAPHRASE}, {SIMILARITY}"],
    ]
    assert all("prediction" in answer[SENTIMENT] for answer in found)
    alone = ask(client, items[2], tasks=[SENTIMENT]).json()["answers"]
    assert "warnings" not in alone[0]  # the task does not read the second text


def break_word(predictor: Predictor, word: str) -> None:
    """Every output for a text with the word is NaN."""
    with torch.no_grad():
        embeddings = predictor.bundle.network.bank["embeddings"]  # type: ignore[attr-defined]
        embeddings.word.weight[VOCABULARY.index(word)] = np.nan


def test_an_output_that_is_no_number_is_an_error_of_its_item(
    client: TestClient, predictor: Predictor, caplog: pytest.LogCaptureFixture
) -> None:
    items = [{"text": first, "text_pair": second} for first in ("bat", "don") for second in "a,"]
    items += [{"text": "bat"}, {"text": "don"}]
    before = ask(client, *items).json()["answers"]
    break_word(predictor, "a")
    break_word(predictor, "don")
    response = ask(client, *items)
    assert response.status_code == 200
    found = response.json()["answers"]
    assert [n for n, answer in enumerate(found) if "error" in answer] == [0, 2, 3, 5]
    assert [found[1], found[4]] == [before[1], before[4]]
    assert set(found[0]) == {"id", "error"}
    assert found[0]["error"].startswith("task 'paraphrase': the output for a text is not a finite")
    assert found[5]["error"].startswith("task 'sentiment': the output for a text is not a finite")
    assert {record.getMessage() for record in caplog.records} >= {found[n]["error"] for n in (0, 5)}


def test_a_server_without_a_finite_output_does_not_start(predictor: Predictor) -> None:
    break_word(predictor, "[CLS]")
    refused = pytest.raises(RunError, match=r"^task 'sentiment': the output for a text is not a")
    with refused, TestClient(build_app(Service(predictor, LIMITS))):
        raise AssertionError("it has started")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 422, "the body must be a JSON object"),
        (b"{", 422, "the body must be a JSON object"),
        (b"3", 422, "the body must be a JSON object"),
        (b'{"items": [{}]}', 422, "items.0.text: Field required"),
        (b'{"items": [{"text": 3}]}', 422, "valid string"),
        (b'{"items": [], "more": 1}', 422, "more: Extra inputs"),
        (b'{"items": [], "tasks": []}', 422, "tasks: List should have at least 1 item"),
        (b'{"items": [' + b", ".join([b'{"text": "a"}'] * 9) + b"]}", 413, "9 items; at most 8"),
        (b" " * 4001, 413, "over 4000 bytes"),
        (b'{"items": [{"text": "\\ud800"}]}', 422, ""),
    ],
)
def test_refusals(client: TestClient, body: bytes, status: int, words: str) -> None:
    answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]


def test_a_body_of_another_type(client: TestClient) -> None:
    answer = client.post("/predict", content=b'{"items": []}', headers={"content-type": "text/x"})
    assert answer.status_code == 422
    assert "content-type: application/json" in answer.json()["error"]


def test_a_large_body_is_counted_too(client: TestClient) -> None:
    assert client.post("/predict", content=b" " * 5000).status_code == 413
    assert 'mops_requests_total{path="other",status="413"} 1.0' in client.get("/metrics").text


def test_a_large_body_without_a_length(client: TestClient) -> None:
    parts = iter([b" " * 1000] * 5)
    answer = client.post("/predict", content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_a_full_queue_and_a_slow_answer(service: Service, client: TestClient) -> None:
    gate = Event()
    compute = service.batcher.compute

    def wait(items: Any) -> Any:
        gate.wait(300)
        return compute(items)

    service.batcher.compute = wait
    service.limits = replace(LIMITS, timeout=5.0)
    item = {"text": "a"}
    with ThreadPoolExecutor(8) as pool:
        slow = [pool.submit(ask, client, *[item] * 8) for _ in range(4)]
        refused = [future.result() for future in slow]
        assert {answer.status_code for answer in refused} == {503}
        assert all(answer.headers["retry-after"] in ("1", "5") for answer in refused)
        gate.set()
    service.limits = LIMITS
    assert ask(client, item).status_code == 200


def test_what_nobody_waits_for_is_not_computed(service: Service, client: TestClient) -> None:
    """A request that has timed out, or whose client is gone, gives its place to others."""
    gate, batches = Event(), list[int]()
    compute = service.batcher.compute

    def wait(items: Any) -> Any:
        batches.append(len(items))
        gate.wait(300)
        return compute(items)

    service.batcher.compute = wait
    service.limits = replace(LIMITS, timeout=0.2)
    for _ in range(4):  # ten items may wait
        assert ask(client, *[{"text": "a"}] * 8).status_code == 503
    assert service.batcher.waiting_items == 0
    assert asyncio.run(ask_and_leave(service)) == [499]
    assert service.batcher.waiting_items == 0
    gate.set()
    service.limits = LIMITS
    assert ask(client, {"text": "a"}).status_code == 200
    assert batches == [8, 1]


def test_requests_that_were_given_up_are_not_counted_for_ever(service: Service) -> None:
    service.metrics.waiting.set(5)
    service.rest()
    assert b"mops_waiting_items 0.0" in service.metrics.show()


async def ask_and_leave(service: Service) -> list[Any]:
    """The status of the answer to a client that closes the connection after its request."""
    body = b'{"items": [{"text": "a"}]}'
    arrives = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])
    sent = list[Any]()

    async def receive() -> Any:
        return next(arrives)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": headers}
    await build_app(service)({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)
    return [message["status"] for message in sent if "status" in message]


def test_a_body_that_does_not_arrive(service: Service) -> None:
    service.limits = replace(LIMITS, timeout=0.05)
    sent = list[Any]()

    async def receive() -> Any:
        await asyncio.sleep(20)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
    asyncio.run(build_app(service)(scope, receive, send))
    assert sent[0]["status"] == 408


def test_the_log_has_facts_but_no_text_and_no_key(predictor: Predictor) -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("mops")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with TestClient(build_app(Service(predictor, LIMITS, api_key="hidden"))) as client:
            headers = {"Authorization": "Bearer hidden"}
            body = {"items": [{"text": "private words"}]}
            assert client.post("/predict", json=body, headers=headers).status_code == 200
            client.post("/predict", content=b"private words", headers=headers)
            client.get("/private-words?key=hidden")
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    facts = [(line["method"], line["path"], line["status"]) for line in lines]
    assert facts == [("POST", "/predict", 200), ("POST", "/predict", 422), ("GET", "other", 404)]
    assert not re.search("private|hidden", stream.getvalue())


def test_the_description_for_people(client: TestClient) -> None:
    page = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "text_pair" in page
    assert "$ref" not in page
    assert not re.search(r"https?://|<script", page)


def test_no_connection_is_kept_at_the_end(service: Service) -> None:
    app = build_app(service)
    with TestClient(app) as client:
        assert "connection" not in client.get("/health").headers
        app.state.is_ending = lambda: True
        assert client.get("/health").headers["connection"] == "close"


def test_an_unexpected_error_says_nothing(service: Service, client: TestClient) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("/secret/path")

    service.batcher.compute = fail
    answer = ask(client, {"text": "a"})
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})


def test_what_it_says_of_itself(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"ready": True}
    assert client.get("/tasks").json()[SIMILARITY]["range"] == [0, 5]
    assert client.get("/plan").json()["plan"] == "hybrid:2"
    assert client.get("/nothing").json() == {"error": "Not Found"}
    ask(client, {"text": "a"})
    page = client.get("/metrics").text
    assert 'mops_requests_total{path="/predict",status="200"} 1.0' in page
    assert "mops_waiting_items 0.0" in page
    assert set(client.get("/openapi.json").json()["paths"]) >= {"/predict", "/tasks", "/plan"}


def test_the_api_key(predictor: Predictor) -> None:
    with TestClient(build_app(Service(predictor, LIMITS, api_key="käse"))) as client:
        assert client.get("/health").status_code == 200
        assert ask(client, {"text": "a"}).status_code == 401
        for words, status in (
            ("Bearer wrong", 401), ("käse", 401), ("Basic käse", 401), ("Bearer käse", 200),
            ("bearer käse", 200),
        ):  # fmt: skip
            answer = client.get("/tasks", headers={"Authorization": words.encode()})
            assert answer.status_code == status
            assert answer.headers.get("www-authenticate") == (None if status == 200 else "Bearer")


def test_the_page_loads_only_what_is_here(client: TestClient) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    links = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
    assert len(links) == 3
    for address in (*links, "plan.svg"):
        assert client.get(f"/{address}").status_code == 200
    assert not re.findall(
        r"https?://(?!www.w3.org/2000/svg)", page.text + client.get("/page/try.js").text
    )
