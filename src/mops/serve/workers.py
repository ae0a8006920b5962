"""The processes of a server: one, or several that are forked from one that has loaded the model.

Workers answer at one port. They share the memory of libraries and model until they write to it.
The log is one JSON object per line.
"""

import gc
import json
import logging
import multiprocessing
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from typing import Any

import uvicorn
from fastapi import FastAPI

from mops.errors import RunError

log = logging.getLogger("mops.serve")
STOP = (signal.SIGINT, signal.SIGTERM)
FAILED = 3  # exit code of a worker that could not start
LOOK = 0.5  # seconds between looks at the workers


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, event and the fields that it carries."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


LOGGING: Mapping[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonLines}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("mops", "uvicorn")
    },
}


def serve(app: FastAPI, *, workers: int = 1, **options: Any) -> None:
    """Answer requests until a signal; then finish what was accepted."""
    config = uvicorn.Config(app, access_log=False, log_config=dict(LOGGING), **options)
    if not (run(config) if workers == 1 else run_workers(config, workers)):
        problem = getattr(app.state, "problem", "the log says why")  # workers have their own
        raise RunError(f"the server could not start; {problem}")


def run(config: uvicorn.Config, sockets: list[socket.socket] | None = None) -> bool:
    """Answer requests in this process; whether that has begun."""
    server = uvicorn.Server(config)
    config.app.state.is_ending = lambda: server.should_exit  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    # After a signal, when all has been answered; and where it cannot start.
    with suppress(KeyboardInterrupt, SystemExit):
        server.run(sockets)
    return server.started


def run_workers(config: uvicorn.Config, count: int) -> bool:
    """Keep so many workers until a signal; one that dies is replaced. False: one cannot begin."""
    with config.bind_socket() as probe:  # chooses a port for 0
        address = probe.family, probe.getsockname()[:2]
    fork = multiprocessing.get_context("fork")

    def start() -> BaseProcess:
        process = fork.Process(target=work, args=(config, *address, count))
        process.start()
        return process

    def replace_dead(process: BaseProcess) -> BaseProcess:
        if process.is_alive():
            return process
        log.error("worker %s has died: %s", process.pid, process.exitcode)
        return start()

    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)  # they wait until somebody can handle them
    gc.freeze()  # a collection would write to the memory of every object
    processes = [start() for _ in range(count)]
    can_begin = True
    while can_begin and not signal.sigtimedwait(STOP, LOOK):
        if can_begin := all(each.exitcode != FAILED for each in processes):
            processes = [replace_dead(each) for each in processes]
    for end in (BaseProcess.terminate, BaseProcess.join):
        for each in processes:
            end(each)
    return can_begin


def work(config: uvicorn.Config, family: int, address: tuple[str, int], count: int) -> None:
    """Runs in a worker.

    Each has a socket of its own: of a common one, the first to look takes all new connections.
    """
    import torch

    from mops.training.machine import own_cores

    torch.set_num_threads(max(1, own_cores() // count))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    backlog = config.backlog
    with socket.create_server(address, family=family, backlog=backlog, reuse_port=True) as own:
        sys.exit(0 if run(config, [own]) else FAILED)
