"""The server: what it answers at which address, its limits, and what it says about itself."""

import asyncio
import hmac
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mops import __version__
from mops.errors import RunError, nearest
from mops.plans.picture import draw
from mops.serve.batching import Answer, Batcher, Item, QueueFullError, predict_items
from mops.serve.docs import describe
from mops.serve.page import HEADERS, picture_of, static_files
from mops.tasks import Task

if TYPE_CHECKING:  # the page of a survey needs no torch
    from mops.predict.bundle import Predictor

log = logging.getLogger("mops.serve")
TRIM_SECONDS = 1.0  # between returns of the memory that batches of other sizes left
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server accepts; each has an option of its name."""

    max_items: int = 1000  # of a request
    max_characters: int = 20_000  # of a text
    max_body: int = 4 * 2**20  # bytes of a request
    max_waiting: int = 4000  # items that wait, over all requests
    timeout: float = 60.0  # seconds for a request
    batch_tokens: int = 2048  # computed together
    wait: float = 0.002  # seconds to wait for further requests when idle


def check_unicode(text: str) -> str:
    """JSON can hold halves of characters that no text has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("not valid Unicode: half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(check_unicode)]


class Texts(BaseModel):
    """One or two texts; tasks on a single text read the first."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: Text | int | None = Field(None, description="comes back with the answer")
    text: Text
    text_pair: Text | None = Field(None, description="the second text of tasks on pairs")


class Question(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"items": [{"text": "A lovely film."}]}]},
    )
    items: list[Texts] = Field(description="what to answer, in order")
    tasks: list[Text] | None = Field(
        None, min_length=1, description="default: all that fit an item's texts"
    )


class Answered(BaseModel):
    answers: list[dict[str, Any]] = Field(
        description="in the order of the items: {id, task: {prediction, probabilities}}, with "
        "warnings where a text is empty or cut, or {id, error}"
    )
    seconds: float = Field(description="time in the server")


class Metrics:
    """Counters for /metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        new = partial(Histogram, registry=self.registry)
        self.requests = count_requests(self.registry)
        self.seconds = new("mops_request_seconds", "Time of a request to /predict")
        self.batch = new(
            "mops_batch_items", "Items computed together", buckets=[2**n for n in range(11)]
        )
        self.waiting = Gauge(
            "mops_waiting_items",
            "Items that wait",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def show(self) -> bytes:
        """The values of this process, or the sums over all workers."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


class Service:
    """A loaded model and what can be asked of it."""

    def __init__(self, predictor: "Predictor", limits: Limits, api_key: str = "") -> None:
        from mops.training.machine import give_back_memory  # needs torch

        self.predictor, self.limits, self.api_key = predictor, limits, api_key
        self.give_back_memory, self.gave_back = give_back_memory, time.monotonic()
        self.tasks = predictor.bundle.layout.tasks
        self.metrics = Metrics()
        self.batcher = Batcher(
            self.compute,
            max_tokens=limits.batch_tokens,
            max_waiting=limits.max_waiting,
            wait=limits.wait,
            longest=predictor.bundle.layout.reading.max_length,
            rest=self.rest,
        )

    def compute(self, items: Sequence[Item]) -> Sequence[Answer]:
        self.metrics.batch.observe(len(items))
        self.metrics.waiting.set(self.batcher.waiting_items)
        answers = predict_items(self.predictor, items)
        if time.monotonic() > self.gave_back + TRIM_SECONDS:
            self.give_back_memory()
            self.gave_back = time.monotonic()
        return answers

    def rest(self) -> None:
        """Called when nobody has asked for a while; requests may have been given up."""
        self.metrics.waiting.set(self.batcher.waiting_items)
        self.give_back_memory()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Compute one answer, then serve; at the end finish what was accepted."""
        with self.batcher:
            example = {name: ("warm",) * len(task.text) for name, task in self.tasks.items()}
            [answer] = await asyncio.wrap_future(self.batcher.submit([example]))
            if isinstance(answer, str):
                app.state.problem = answer
                raise RunError(answer)
            yield

    async def predict(self, request: Request, question: Question) -> dict[str, Any]:
        """Predictions of some or all tasks for many texts."""
        start, most = time.perf_counter(), self.limits.max_items
        if len(question.items) > most:
            raise HTTPException(413, f"{len(question.items)} items; at most {most} in a request")
        read = [read_item(one, question.tasks, self.tasks, self.limits) for one in question.items]
        answers = iter(await self.answer(request, [i for i in read if not isinstance(i, str)]))
        found = [item if isinstance(item, str) else next(answers) for item in read]
        rows = [
            {"id": texts.id} | ({"error": one} if isinstance(one, str) else one)
            for texts, one in zip(question.items, found, strict=True)
        ]
        seconds = time.perf_counter() - start
        self.metrics.seconds.observe(seconds)
        return {"answers": rows, "seconds": round(seconds, 6)}

    async def answer(self, request: Request, items: Sequence[Item]) -> list[Answer]:
        """The answers in time, unless the client goes away; what nobody waits for is dropped."""
        try:
            future = asyncio.wrap_future(self.batcher.submit(items))
        except QueueFullError:
            message = "too many texts are waiting; try again"
            raise HTTPException(503, message, {"Retry-After": "1"}) from None
        self.metrics.waiting.set(self.batcher.waiting_items)
        gone = asyncio.ensure_future(request.receive())  # the body is read: it waits for the end
        both: list[asyncio.Future[Any]] = [future, gone]
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(both, timeout=self.limits.timeout, return_when=first)
            if future.done():
                return future.result()
        finally:
            future.cancel()
            is_gone = gone.done()
            gone.cancel()
        if is_gone:
            raise HTTPException(499, "the client has closed the connection")
        message = f"no answer within {self.limits.timeout:g} s; send fewer texts"
        raise HTTPException(503, message, {"Retry-After": "5"})

    def list_tasks(self) -> dict[str, Any]:
        """The tasks with their answers and measured scores."""
        scores = self.predictor.bundle.config.get("scores", {})
        return {
            name: {
                "type": task.type,
                "texts": len(task.text),
                "labels": list(task.labels),
                "range": task.range,
                "scale": task.scale,
                "scores": scores.get(name, {}).get("report", {}),
            }
            for name, task in self.tasks.items()
        }

    def show_plan(self) -> dict[str, Any]:
        """Which weights the tasks share."""
        layout = self.predictor.bundle.layout
        return {
            "plan": layout.plan.name,
            "parameters": layout.parameters,
            "picture": draw(layout),
            "rows": layout.plan.to_data(),
        }

    def health(self) -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    def ready(self) -> Response:
        """Whether requests are accepted now."""
        has_room = self.batcher.waiting_items < self.limits.max_waiting
        is_ready = self.batcher.thread.is_alive() and has_room
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    def show_metrics(self) -> Response:
        """Counters in the format of Prometheus."""
        return Response(self.metrics.show(), media_type=CONTENT_TYPE_LATEST)


def build_app(service: Service) -> FastAPI:
    """The addresses of a service."""
    app = FastAPI(
        title="mops", version=__version__, lifespan=service.lifespan, docs_url=None, redoc_url=None
    )
    locked = [Depends(partial(check_key, service.api_key))]
    app.post("/predict", response_model=Answered, dependencies=locked)(service.predict)
    app.get("/tasks", dependencies=locked)(service.list_tasks)
    app.get("/plan", dependencies=locked)(service.show_plan)
    app.get("/plan.svg", dependencies=locked)(lambda: picture_of(service.predictor.bundle.layout))
    app.include_router(static_files("index.html"))
    app.get("/health")(service.health)
    app.get("/ready")(service.ready)
    app.get("/metrics")(service.show_metrics)
    app.get("/docs", include_in_schema=False)(lambda: HTMLResponse(describe(app.openapi())))
    app.exception_handler(StarletteHTTPException)(refuse)
    app.exception_handler(RequestValidationError)(explain)
    limits = service.limits
    app.add_middleware(LimitBody, most=limits.max_body, timeout=limits.timeout)
    app.middleware("http")(partial(note, service.metrics.requests))
    return app


def count_requests(registry: CollectorRegistry) -> Counter:
    return Counter("mops_requests", "Requests", ["path", "status"], registry=registry)


def check_key(api_key: str, authorization: Annotated[str, Header()] = "") -> None:
    scheme, _, given = authorization.partition(" ")
    is_right = hmac.compare_digest(given.encode("latin-1"), api_key.encode())  # as it came
    if api_key and not (is_right and scheme.lower() == "bearer"):
        message = "send the API key as `Authorization: Bearer KEY`"
        raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


async def note(requests: Counter, request: Request, answer: Endpoint) -> Response:
    """Log and count a request, without its texts; no trace of an error leaves the server."""
    start = time.perf_counter()
    try:
        response = await answer(request)
    except Exception:
        log.exception("a request failed")
        response = JSONResponse({"error": "internal error"}, 500)
    response.headers.update(HEADERS)
    if getattr(request.app.state, "is_ending", bool)():
        response.headers["Connection"] = "close"  # uvicorn forgets connections that come now
    path = getattr(request.scope.get("route"), "path", "other")
    requests.labels(path, response.status_code).inc()
    took = (time.perf_counter() - start) * 1000
    facts = {"method": request.method, "path": path, "status": response.status_code}
    log.info("request", extra={"fields": {**facts, "milliseconds": round(took, 1)}})
    return response


async def refuse(_: Request, error: StarletteHTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def explain(_: Request, error: RequestValidationError) -> Response:
    """What is wrong with a body, without the body."""
    errors = error.errors()
    if any(len(e["loc"]) == 1 or e["type"] == "json_invalid" for e in errors):
        message = "the body must be a JSON object, sent with `content-type: application/json`"
    else:
        message = "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in errors[:3])
    return JSONResponse({"error": message}, 422)


def read_item(
    texts: Texts, tasks: list[str] | None, known: Mapping[str, Task], limits: Limits
) -> Item | str:
    """What each task reads of an item, or what is wrong with it."""
    given = [texts.text] if texts.text_pair is None else [texts.text, texts.text_pair]
    longest = max(map(len, given))
    if longest > limits.max_characters:
        return f"a text has {longest} characters; at most {limits.max_characters}"
    item = dict[str, tuple[str, ...]]()
    for name in known if tasks is None else tasks:
        if name not in known:
            return f"no task {name!r}; there are {', '.join(known)}.{nearest(name, known)}"
        if len(known[name].text) <= len(given):
            item[name] = tuple(given[: len(known[name].text)])
        elif tasks is not None:
            return f"task {name!r} reads two texts: send text_pair too"
    return item or "all tasks read two texts: send text_pair too"


class LimitBody:
    """Refuses a body that is too large or too slow, with a length in its header or without."""

    def __init__(self, app: ASGIApp, most: int, timeout: float) -> None:
        self.app, self.most, self.timeout = app, most, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"")
        is_too_large = length.isdigit() and int(length) > self.most
        messages, size, has_more = list[Message](), 0, True
        try:
            async with asyncio.timeout(self.timeout):
                while has_more and not is_too_large:
                    messages.append(message := await receive())
                    size += len(message.get("body", b""))
                    has_more, is_too_large = message.get("more_body", False), size > self.most
        except TimeoutError:
            late = f"the body did not arrive within {self.timeout:g} s"
            return await JSONResponse({"error": late}, 408)(scope, receive, send)
        if is_too_large:
            refusal = JSONResponse({"error": f"the body has over {self.most} bytes"}, 413)
            return await refusal(scope, receive, send)

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        return await self.app(scope, replay, send)
