"""Dynamic batching: requests that arrive together are computed together.

One thread computes. A batch starts with an item of the request that waits longest and goes on with
the shortest items of the others, one of each request in turn, until it has enough tokens. So many
items or long texts do not hold up a short one, and an item of any length is computed. A request
whose future is cancelled leaves the queue.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Self

from mops.errors import OutputError

if TYPE_CHECKING:
    from mops.predict.bundle import Predictor

Item = Mapping[str, tuple[str, ...]]  # task -> the texts that it reads
Answer = dict[str, Any] | str  # task -> its prediction, and `warnings`; or why there is none
Compute = Callable[[Sequence[Item]], Sequence[Answer]]
TEXTS = ("text", "text_pair")  # of an item, by name
CHARACTERS_OF_A_TOKEN = 4  # of English text, about
IDLE = 1.0  # seconds without a request until it rests
log = logging.getLogger("mops.serve")


class QueueFullError(Exception):
    """More items are waiting than the server is willing to hold."""


@dataclass(eq=False)
class Waiting:
    """A request, some of whose items may have been computed."""

    items: Sequence[Item]
    tokens: Sequence[int]  # of each item
    future: Future[list[Answer]] = field(default_factory=Future)
    answers: dict[int, Answer] = field(default_factory=dict)
    taken: int = 0  # the first items are computed or being computed

    @property
    def left(self) -> int:
        """Items that nobody has taken; none if nobody waits for the answers any more."""
        return 0 if self.future.done() else len(self.items) - self.taken

    def answer(self, number: int, answer: Answer) -> None:
        self.answers[number] = answer
        if len(self.answers) == len(self.items):
            with suppress(InvalidStateError):  # cancelled a moment ago
                self.future.set_result([self.answers[n] for n in range(len(self.items))])

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class Batcher:
    """A queue of requests and the thread that computes them."""

    def __init__(
        self,
        compute: Compute,
        *,
        max_tokens: int,
        max_waiting: int,
        wait: float,
        longest: int,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self.compute, self.rest = compute, rest
        self.max_tokens, self.max_waiting = max_tokens, max_waiting
        self.wait, self.longest = wait, longest
        self.requests: deque[Waiting] = deque()
        self.is_closed = False
        self.changed = Condition()  # its lock may be taken again by who has it
        self.thread = Thread(target=self.run, name="mops-batches", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Compute what was accepted, then stop."""
        with self.changed:
            self.is_closed = True
            self.changed.notify()
        self.thread.join()

    @property
    def waiting_items(self) -> int:
        with self.changed:
            return sum(request.left for request in self.requests)

    def submit(self, items: Sequence[Item]) -> Future[list[Answer]]:
        """The answers to all items, once they are computed."""
        request = Waiting(items, [self.tokens(item) for item in items])
        if not items:
            request.future.set_result([])
            return request.future
        with self.changed:
            if self.is_closed or self.waiting_items + len(items) > self.max_waiting:
                raise QueueFullError
            self.requests.append(request)
            self.changed.notify()
        return request.future

    def run(self) -> None:
        while batch := self.next_batch():
            try:
                answers = self.compute([request.items[number] for request, number in batch])
            except Exception as error:  # whatever it is, the next request is to be answered
                log.exception("a batch of %d items failed", len(batch))
                for request, _ in batch:
                    request.fail(error)
                continue
            for (request, number), answer in zip(batch, answers, strict=True):
                request.answer(number, answer)

    def next_batch(self) -> list[tuple[Waiting, int]]:
        """Items of all waiting requests, waiting for more for a moment; none: closed."""
        with self.changed:
            while True:
                is_idle = not self.requests
                if not self.changed.wait_for(self.has_work, IDLE):
                    self.rest()
                    self.changed.wait_for(self.has_work)
                if is_idle and not self.is_closed:
                    self.changed.wait_for(self.has_enough, self.wait)
                batch = self.take_items()
                if batch or self.is_closed:  # none: all that were waiting have been cancelled
                    return batch

    def take_items(self) -> list[tuple[Waiting, int]]:
        """The next item of the request that waits longest, then the shortest of the others."""
        waiting = [request for request in self.requests if request.left]
        served = dict[int, Waiting]()  # in the order in which they were served first
        batch, room = list[tuple[Waiting, int]](), self.max_tokens
        turns = [(min(n, 1), one.tokens[one.taken], n) for n, one in enumerate(waiting)]
        heapify(turns)  # (turn, tokens of the next item, place in the queue)
        while turns and (not batch or turns[0][1] <= room):
            turn, size, place = heappop(turns)
            request = served.setdefault(place, waiting[place])
            batch.append((request, request.taken))
            room, request.taken = room - size, request.taken + 1
            if request.left:
                heappush(turns, (turn + 1, request.tokens[request.taken], place))
        others = [request for n, request in enumerate(waiting) if n not in served]
        self.requests = deque(r for r in (*others, *served.values()) if r.left)
        return batch

    def has_work(self) -> bool:
        return bool(self.requests) or self.is_closed

    def has_enough(self) -> bool:
        return self.is_closed or sum(sum(one.tokens) for one in self.requests) >= self.max_tokens

    def tokens(self, item: Item) -> int:
        """About how many tokens an item has; a text that several tasks read counts once."""
        texts = set(item.values())
        lengths = (sum(map(len, own)) // CHARACTERS_OF_A_TOKEN + 3 for own in texts)
        return sum(min(length, self.longest) for length in lengths)


def predict_items(predictor: "Predictor", items: Sequence[Item]) -> Sequence[Answer]:
    """The answers of all tasks to their items, in one pass; no answer without finite outputs."""
    places: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        for task in item:
            places.setdefault(task, []).append(number)
    texts = {task: [items[number][task] for number in own] for task, own in places.items()}
    tables = predictor.tokenise(texts)
    try:
        predictions = predictor.predict_tables(tables)
    except OutputError as error:
        problem = str(OutputError(error.task, (), "a text"))
        log.error(problem)
        wrong = {places[error.task][row] for row in error.rows}
        sound = [item for number, item in enumerate(items) if number not in wrong]
        rest = iter(predict_items(predictor, sound))
        return [problem if number in wrong else next(rest) for number in range(len(items))]
    answers, cut = [dict[str, Any]() for _ in items], dict[int, list[str]]()
    for task, found in predictions.items():
        for number, answer in zip(places[task], found.as_data(), strict=True):
            answers[number][task] = answer
        for row in predictor.find_cut(task, texts[task], tables[task]):
            cut.setdefault(places[task][row], []).append(task)
    most = predictor.bundle.layout.reading.max_length
    return [
        with_warnings(answer, list_warnings(item, cut.get(number, ()), most))
        for number, (item, answer) in enumerate(zip(items, answers, strict=True))
    ]


def with_warnings(answer: dict[str, Any], warnings: Iterable[str]) -> dict[str, Any]:
    """A task of the name `warnings` keeps its place."""
    found = list(warnings)
    return {**({"warnings": found} if found else {}), **answer}


def list_warnings(item: Item, cut: Sequence[str], most: int) -> Iterator[str]:
    """What a client should know of an item that was answered; `cut` names tasks."""
    read = max(item.values(), key=len)
    texts = zip(TEXTS, read, strict=False)
    yield from (f"{name} is empty" for name, text in texts if not text.strip())
    if cut:
        yield f"longer than {most} tokens, the rest is not read: {', '.join(cut)}"
