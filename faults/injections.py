"""Faults: what happens to a command at a random moment, and what its repetition must give."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from faults.commands import Process, Subject, World, start

YEAR = 365 * 24 * 3600
OLD = b"the old answers\n"
QUESTIONS = b'{"items": [{"text": "dat bin gen", "text_pair": "fet a bot"}]}'
RESUMED, REFUSED, LOST, WRONG, UNCLEAR = OUTCOMES = (
    "resumed", "refused", "lost", "wrong", "unclear",
)  # fmt: skip


@dataclass
class Trial:
    """A fresh folder in which a command is disturbed and then repeated."""

    world: World
    subject: Subject
    reference: Mapping[str, Any]  # the result of the undisturbed command
    seconds: float  # that it took
    counts: Mapping[str, int]  # of its calls
    place: Path
    draw: random.Random
    processes: list[Process] = field(default_factory=list)

    def start(self, fault: str = "") -> Process:
        process = start(self.subject.words(self.world, self.place), self.place, fault)
        self.processes.append(process)
        return process

    def pause(self) -> None:
        time.sleep(self.draw.uniform(0, self.seconds))

    def is_same(self) -> bool:
        return self.subject.result(self.place) == self.reference

    def outcome(self, *, is_damaged: bool) -> str:
        """What repeating the command gives."""
        codes = [process.wait() for process in self.processes]
        if None in codes or any(process.is_unclear for process in self.processes):
            return UNCLEAR
        last = self.start()
        code = last.wait()
        if code is None or last.is_unclear:
            return UNCLEAR
        if code == 0:
            return RESUMED if self.is_same() else WRONG
        if not is_damaged or len(last.text.strip().splitlines()) < 1:
            return LOST
        shutil.rmtree(self.place / "out")  # as the message says
        return REFUSED if self.start().wait() == 0 and self.is_same() else LOST


Injection = Callable[[Trial], bool]  # whether it happened


def signalled(trial: Trial, number: int) -> bool:
    process = trial.start()
    trial.pause()
    is_running = process.poll() is None
    process.signal(number)
    process.wait()
    return is_running


def disturbed(trial: Trial, call: str, error: int) -> bool:
    """A random one of its calls fails, or the process gets a signal in it."""
    mark = trial.place.with_suffix(".mark")
    kind = "write" if call == "disk" else call
    nth = trial.draw.randint(1, max(1, trial.counts[kind]))
    trial.start(f"{call}:{nth}:{error}:{trial.place}/:{mark}").wait()
    return mark.exists()


def damaged(trial: Trial, harm: Callable[[Path, random.Random], None]) -> bool:
    """The command is killed in a random write; then a file is not what was written."""
    disturbed(trial, "write", -signal.SIGKILL)
    files = [file for file in sorted(trial.place.rglob("*")) if is_content(file)]
    if files:
        harm(trial.draw.choice(files), trial.draw)
    return bool(files)


def is_content(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.stat().st_size > 0


def flip_bit(file: Path, draw: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def truncate(file: Path, draw: random.Random) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def two_at_once(trial: Trial) -> bool:
    """A second process with the same folder; either may refuse with a line."""
    first = trial.start()
    trial.pause()
    is_running = first.poll() is None
    second = trial.start()
    first.wait()
    second.wait()
    return is_running


def child_killed(trial: Trial) -> bool:
    """As the system does when memory is short; the command must go on by itself."""
    process, children = trial.start(), list[int]()
    while process.poll() is None and not (children := process.children()):
        time.sleep(0.01)
    trial.pause()
    children = process.children()
    for child in children:
        os.kill(child, signal.SIGKILL)
    return process.wait() == 0 and bool(children)


@dataclass(frozen=True)
class Fault:
    name: str
    subjects: tuple[str, ...]
    inject: Injection
    is_damage: bool = False  # then the repetition may refuse, in one line


ALL = ("train", "cache", "predict", "survey")
FAULTS = (
    Fault("SIGKILL at a random time", ALL, partial(signalled, number=signal.SIGKILL)),
    Fault("SIGTERM at a random time", ALL, partial(signalled, number=signal.SIGTERM)),
    *(
        Fault(f"SIGKILL in a {call}", ALL, partial(disturbed, call=call, error=-signal.SIGKILL))
        for call in ("write", "sync", "rename")
    ),
    Fault("disk full from a write on", ALL, partial(disturbed, call="disk", error=errno.ENOSPC)),
    *(
        Fault(f"failing {call}", ALL, partial(disturbed, call=call, error=errno.EIO))
        for call in ("write", "sync", "rename")
    ),
    Fault("clock a year ahead", ALL[:3], partial(disturbed, call="clock", error=YEAR)),
    Fault("clock a year back", ALL[:3], partial(disturbed, call="clock", error=-YEAR)),
    Fault("two processes in one folder", ALL, two_at_once),
    Fault("child killed for memory", ("survey",), child_killed),
    Fault("flipped bit", ("train", "cache", "survey"), partial(damaged, harm=flip_bit), True),
    Fault("truncated file", ("train", "cache", "survey"), partial(damaged, harm=truncate), True),
)


# ------------------------------------------------------------------ the server


class Server:
    """`mops serve` on a copy of the model, and what it answers."""

    def __init__(self, model: Path, place: Path, fault: str = "") -> None:
        words = ["serve", str(model), "--port", "0", "--workers", "2"]
        self.process, self.address = start(words, place, fault), ""
        while self.process.poll() is None and not self.address:
            time.sleep(0.01)
            text = self.process.text
            if text.count("startup complete") >= 2 and (found := re.search(r"(http://\S+)", text)):
                self.address = found[1].rstrip('",)')

    def ask(self) -> bytes | None:
        """The answers; None where the connection ends without them."""
        request = urllib.request.Request(
            f"{self.address}/predict", QUESTIONS, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return bytes(json.dumps(json.load(response)["answers"]), "utf-8")
        except (HTTPException, OSError):
            return None

    def ask_often(self, count: int) -> list[bytes | None]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: self.ask(), range(count)))

    def end(self) -> int | None:
        self.process.signal(signal.SIGTERM)
        return self.process.wait()


def disturb_server(world: World, place: Path, draw: random.Random, fault: str) -> str:
    """Disturb a server under load; every answer is the right one or none, and it recovers."""
    server = Server(world.model, place)
    expected = server.ask()
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(server.ask_often, 40)
        time.sleep(draw.uniform(0, 0.2))
        kill_part(server.process, fault)
        found = answers.result()
    if fault != "a worker is killed":
        server.end()
        server = Server(world.model, place)
    again = [server.ask() for _ in range(8)]
    code = server.end()
    return judge_server(expected, [*found, *again], again[-1], code, server.process)


def kill_part(process: Process, fault: str) -> None:
    if fault == "a worker is killed":
        os.kill(process.children()[-1], signal.SIGKILL)
    else:
        process.signal(signal.SIGTERM if fault == "SIGTERM" else signal.SIGKILL)


def judge_server(
    expected: bytes | None,
    answers: Sequence[bytes | None],
    last: bytes | None,
    code: int | None,
    process: Process,
) -> str:
    if code is None or process.is_unclear:
        return UNCLEAR
    if any(answer not in (None, expected) for answer in answers):
        return WRONG
    return RESUMED if expected is not None and last == expected else LOST


def damage_model(
    world: World, place: Path, draw: random.Random, harm: Callable[[Path, random.Random], None]
) -> str:
    """A server on a damaged model says so, or answers as before."""
    model = place / "model"
    shutil.copytree(world.model, model)
    harm(draw.choice([file for file in sorted(model.iterdir()) if is_content(file)]), draw)
    sound, server = Server(world.model, place), Server(model, place)
    expected, answer = sound.ask(), server.ask() if server.address else None
    sound.end()
    code = server.end()
    if server.process.is_unclear or code is None:
        return UNCLEAR
    if not server.address:
        return REFUSED
    return RESUMED if answer == expected else WRONG


SERVER_FAULTS: Mapping[str, Callable[[World, Path, random.Random], str]] = {
    "SIGTERM under load": partial(disturb_server, fault="SIGTERM"),
    "SIGKILL under load": partial(disturb_server, fault="SIGKILL"),
    "worker killed under load": partial(disturb_server, fault="a worker is killed"),
    "flipped bit in the model": partial(damage_model, harm=flip_bit),
    "truncated file of the model": partial(damage_model, harm=truncate),
}
