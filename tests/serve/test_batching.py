"""Batches of requests: every answer to its own question, small requests first served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from mops.serve import batching
from mops.serve.batching import Answer, Batcher, Item, QueueFullError

PATIENCE = 300.0  # seconds; a machine may be busy


class Echo:
    """Answers with the text; notes the batches; computes when it is allowed to."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.gate = Event()
        if is_open:
            self.gate.set()

    def __call__(self, items: Sequence[Item]) -> list[Answer]:
        self.batches.append([item["a"][0] for item in items])
        assert self.gate.wait(PATIENCE)
        if any(item["a"][0] == "fail" for item in items):
            raise RuntimeError("no")
        return [{"a": {"prediction": item["a"][0]}} for item in items]


def batcher(echo: Echo, **given: Any) -> Batcher:
    settings = {"max_tokens": 40, "max_waiting": 100, "wait": 0.01, "longest": 32}
    return Batcher(echo, **{**settings, **given})


def items(*texts: str) -> list[Item]:
    return [{"a": (text,)} for text in texts]


def texts_of(answers: list[Answer]) -> list[str]:
    return [answer["a"]["prediction"] for answer in answers]


def wait_for(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_every_request_gets_its_own_answers_in_order() -> None:
    with batcher(Echo()) as one, ThreadPoolExecutor(16) as pool:
        asked = [[f"{n}-{k}" * (1 + n % 7) for k in range(n % 5)] for n in range(300)]
        found = pool.map(lambda texts: one.submit(items(*texts)).result(PATIENCE), asked)
        assert [texts_of(answers) for answers in found] == asked


def test_what_arrives_together_is_computed_together() -> None:
    echo = Echo(is_open=False)
    with batcher(echo) as one:
        first = one.submit(items("first"))
        wait_for(lambda: echo.batches)
        others = [one.submit(items(f"n{n}")) for n in range(8)]
        echo.gate.set()
        assert [texts_of(other.result(PATIENCE)) for other in (first, *others)]
    assert echo.batches == [["first"], [f"n{n}" for n in range(8)]]


def test_a_large_request_does_not_hold_up_a_small_one() -> None:
    echo = Echo(is_open=False)
    with batcher(echo) as one:
        long = one.submit(items(*["x" * 1000] * 5))  # one item fills a batch
        wait_for(lambda: echo.batches)
        short = one.submit(items("short"))
        echo.gate.set()
        assert texts_of(short.result(PATIENCE)) == ["short"]
        assert len(long.result(PATIENCE)) == 5
    sizes = [[len(text) for text in batch] for batch in echo.batches]
    assert sizes == [[1000], [1000, 5], [1000], [1000], [1000]]


def test_a_text_longer_than_a_batch_is_computed_alone() -> None:
    echo = Echo()
    with batcher(echo, max_tokens=10) as one:
        assert texts_of(one.submit(items("y" * 500, "z")).result(PATIENCE)) == ["y" * 500, "z"]
    assert [len(batch) for batch in echo.batches] == [1, 1]


def test_a_full_queue_refuses_and_recovers() -> None:
    echo = Echo(is_open=False)
    with batcher(echo, max_waiting=3) as one:
        running = one.submit(items("running"))
        wait_for(lambda: echo.batches)
        waiting = one.submit(items("a", "b", "c"))
        with pytest.raises(QueueFullError):
            one.submit(items("one too many"))
        echo.gate.set()
        assert len(waiting.result(PATIENCE)) == 3
        assert running.result(PATIENCE)
        assert texts_of(one.submit(items("later")).result(PATIENCE)) == ["later"]


def test_a_failure_is_the_answer_of_its_batch_alone() -> None:
    with batcher(Echo()) as one:
        with pytest.raises(RuntimeError, match="no"):
            one.submit(items("fail", "x" * 1000, "x" * 1000)).result(PATIENCE)
        assert texts_of(one.submit(items("next")).result(PATIENCE)) == ["next"]


def test_cancelled_requests_are_not_computed() -> None:
    echo = Echo(is_open=False)
    with batcher(echo) as one:
        first = one.submit(items("first"))
        wait_for(lambda: echo.batches)
        assert one.submit(items("given up")).cancel()
        last = one.submit(items("last"))
        echo.gate.set()
        assert first.result(PATIENCE)
        assert last.result(PATIENCE)
    assert echo.batches == [["first"], ["last"]]


def test_what_was_accepted_is_answered_before_the_end() -> None:
    echo = Echo(is_open=False)
    with batcher(echo, max_tokens=5) as one:
        futures = [one.submit(items(f"n{n}")) for n in range(6)]
        echo.gate.set()
    assert [texts_of(future.result(0)) for future in futures] == [[f"n{n}"] for n in range(6)]
    with pytest.raises(QueueFullError):
        one.submit(items("too late"))


def test_short_texts_do_not_wait_for_many_long_ones() -> None:
    """Each batch has one item of the request that waits longest, then the shortest ones."""
    echo = Echo(is_open=False)
    with batcher(echo, max_tokens=66) as one:
        first = one.submit(items("first"))
        wait_for(lambda: echo.batches)
        long = [one.submit(items("x" * 1000)) for _ in range(6)]  # two of them fill a batch
        short = [one.submit(items(f"n{n}")) for n in range(2)]
        echo.gate.set()
        assert [len(request.result(PATIENCE)) for request in (first, *long, *short)] == [1] * 9
    sizes = [[len(text) for text in batch] for batch in echo.batches]
    assert sizes == [[5], [1000, 2, 2], [1000, 1000], [1000, 1000], [1000]]


def test_a_request_that_is_given_up_leaves_the_queue() -> None:
    """Its other items are not computed, though the first ones were, and they take no place."""
    echo = Echo(is_open=False)
    with batcher(echo, max_waiting=3) as one:
        long = one.submit(items(*["x" * 1000] * 3))
        wait_for(lambda: echo.batches)
        assert one.waiting_items == 2
        assert long.cancel()
        assert one.waiting_items == 0
        others = one.submit(items("a", "b", "c"))
        echo.gate.set()
        assert texts_of(others.result(PATIENCE)) == ["a", "b", "c"]
    assert [len(batch) for batch in echo.batches] == [1, 3]


def test_it_rests_once_when_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "IDLE", 0.01)
    rested = list[int]()
    with batcher(Echo(), rest=lambda: rested.append(1)) as one:
        wait_for(lambda: rested)
        assert texts_of(one.submit(items("a")).result(PATIENCE)) == ["a"]
        wait_for(lambda: len(rested) == 2)
        time.sleep(0.1)
    assert len(rested) == 2
