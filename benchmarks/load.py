"""`mops serve` under load on this machine: are all answers right, how fast, in how much memory?

python -m benchmarks.load --bundle DIR --data DIR              60 s for each way
python -m benchmarks.load --bundle DIR --data DIR --minutes 10    and ten minutes of memory

Connections ask without a pause, in requests of one to eight items of mixed lengths. Every answer
is compared with that of `mops predict`. Two servers take turns: one computes together what arrives
together, the other item by item. Then more is asked than the queue holds.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx

from benchmarks.harness import arguments, write_result
from benchmarks.prediction import read_pairs
from benchmarks.resident import MIB, private_bytes, status
from benchmarks.three_models import ENTRIES, build_predictor
from benchmarks.training_step import data_name
from mops.model.sources import find_encoder
from mops.predict.bundle import load_bundle, save_bundle

ITEMS, LONG = 400, (1, 1, 1, 1, 1, 1, 1, 4, 12)  # how many texts of the data make a text
SIZES = (1, 1, 1, 1, 1, 1, 2, 8)  # items of a request
LARGE = 32  # items of a request at overload; the queue holds a quarter of what is asked then
LIBRARIES = """\
import os
import mops.predict.bundle
import mops.serve.workers
from benchmarks.resident import private_bytes
print(private_bytes(os.getpid()))
"""
Pair = tuple[str, str]


@dataclass(frozen=True)
class Work:
    """What is asked, and the answers of `mops predict`."""

    items: Sequence[Pair]
    expected: Sequence[Mapping[str, Any]]

    def draw(self, chance: random.Random, size: int) -> list[int]:
        return chance.sample(range(len(self.items)), size)

    def body(self, numbers: Sequence[int]) -> dict[str, Any]:
        pairs = [(number, *self.items[number]) for number in numbers]
        return {"items": [{"id": n, "text": one, "text_pair": two} for n, one, two in pairs]}

    def is_right(self, numbers: Sequence[int], answers: Sequence[Mapping[str, Any]]) -> bool:
        return list(answers) == [{"id": n, **self.expected[n]} for n in numbers]


@dataclass
class Traffic:
    """What came of some seconds of requests."""

    seconds: float = 0.0
    items: int = 0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0  # 503 with Retry-After
    wrong: int = 0  # other answers than those of `mops predict`
    errors: list[str] = field(default_factory=list)  # everything else

    def to_data(self) -> dict[str, Any]:
        cuts = [1000 * cut for cut in quantiles(self.latencies, n=100)]
        return {
            "requests": len(self.latencies),
            "items": self.items,
            "seconds": self.seconds,
            "items_per_second": self.items / self.seconds,
            "milliseconds": {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]},
            "refused": self.refused,
            "wrong": self.wrong,
            "errors": len(self.errors),
        }


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    address: str
    workers: Sequence[int]  # process ids


def main() -> None:
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        bundle = options.bundle or write_bundle(Path(scratch), options.encoder)
        work = make_work(Path(scratch), bundle, options.data)
        queue = str(max(LARGE, options.connections * max(SIZES)))
        together = ["--max-waiting", queue, "--max-items", str(LARGE)]
        alone = ["--batch-tokens", "1"]
        with serve(bundle, *together) as ours, serve(bundle, *alone) as theirs:
            facts = take_turns(ours, theirs, work, options)
            facts["overload"] = overload(ours, work, options)
            facts["memory"] = watch_memory(ours, work, options)
        one, two = (measure_workers(bundle, work, options, count) for count in (1, 2))
    facts["workers"] = {"one_mib": one, "two_mib": two, "share_of_second": two / one - 1}
    print(json.dumps({key: facts[key] for key in ("overload", "memory", "workers")}, indent=2))
    print(write_result("load", {"data": data_name(options.data), **facts}, options.out))


def read_options() -> argparse.Namespace:
    parser = arguments(__doc__ or "")
    parser.set_defaults(rounds=3)
    parser.add_argument("--bundle", type=Path, help="default: the encoder with untrained heads")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each way")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=0.0, help="of load to watch memory")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.connections = 2.0, 8
    return options


def write_bundle(folder: Path, encoder: str) -> Path:
    source = find_encoder(encoder)
    network = build_predictor(source, "shared", "bi").bundle.network
    entries = {n: e.model_copy(update={"train": "rows.csv"}) for n, e in ENTRIES.items()}
    save_bundle(folder / "model", network, source.tokenizer, entries, {})
    return folder / "model"


def make_work(folder: Path, bundle: Path, data: str) -> Work:
    """Items of mixed lengths, and their answers by the command."""
    pairs, chance = read_pairs(data, 2000), random.Random(1)
    items = []
    for _ in range(ITEMS):
        chosen = chance.choices(pairs, k=chance.choice(LONG))
        items.append((" ".join(one for one, _ in chosen), " ".join(two for _, two in chosen)))
    rows, answers = folder / "items.csv", folder / "answers.jsonl"
    entries = load_bundle(bundle).entries
    columns = {c: n for name, e in entries.items() for n, c in enumerate(e.task(name).text)}
    with rows.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows(
            [number, *(i[n] for n in columns.values())] for number, i in enumerate(items)
        )
    command = [sys.executable, "-m", "mops", "predict", str(bundle), str(rows), "--json"]
    subprocess.run([*command, "--out", str(answers)], check=True)
    lines = map(json.loads, answers.read_text("utf-8").splitlines())
    return Work(items, [{k: v for k, v in line.items() if k != "id"} for line in lines])


@contextmanager
def serve(bundle: Path, *words: str) -> Iterator[Server]:
    """A server on a free port of this machine, until the end of the block."""
    command = [sys.executable, "-m", "mops", "serve", str(bundle), "--port", "0", *words]
    workers = int(dict(zip(words[::2], words[1::2], strict=True)).get("--workers", 1))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(command, stderr=file, text=True)
        try:
            address, pids = wait_until_ready(process, log, workers)
            yield Server(process, address, pids)
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(
    process: subprocess.Popen[str], log: Path, workers: int
) -> tuple[str, list[int]]:
    while process.poll() is None:
        time.sleep(0.1)
        lines = log.read_text("utf-8").splitlines(keepends=True)
        events = [
            json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")
        ]
        pids = [e["process"] for e in events if "startup complete" in e["event"]]
        found = [re.search(r"http://\S+", e["event"]) for e in events]
        address = next((match[0] for match in found if match), None)
        if address and len(pids) == workers:
            return address, pids
    raise RuntimeError(log.read_text("utf-8"))


async def drive(
    server: Server,
    work: Work,
    options: argparse.Namespace,
    seconds: float,
    sizes: Sequence[int] = SIZES,
) -> Traffic:
    """All connections ask until the time is over; every request is waited for."""
    traffic, start = Traffic(), time.monotonic()
    limits = httpx.Limits(max_connections=options.connections)
    async with httpx.AsyncClient(limits=limits, timeout=120) as client:

        async def connection(number: int) -> None:
            chance = random.Random(number)
            while time.monotonic() - start < seconds:
                numbers = work.draw(chance, chance.choice(sizes))
                await ask(client, server.address, work, numbers, traffic)

        await asyncio.gather(*map(connection, range(options.connections)))
    traffic.seconds = time.monotonic() - start
    return traffic


async def ask(
    client: httpx.AsyncClient, address: str, work: Work, numbers: Sequence[int], traffic: Traffic
) -> None:
    started = time.monotonic()
    try:
        answer = await client.post(f"{address}/predict", json=work.body(numbers))
    except httpx.HTTPError as error:
        return traffic.errors.append(repr(error))
    if answer.status_code == 200:
        traffic.latencies.append(time.monotonic() - started)
        traffic.items += len(numbers)
        traffic.wrong += not work.is_right(numbers, answer.json()["answers"])
    elif answer.status_code == 503 and answer.headers.get("retry-after", "").isdecimal():
        traffic.refused += 1
        await asyncio.sleep(0.05)
    else:
        traffic.errors.append(f"{answer.status_code} {answer.text[:200]}")
    return None


def check(traffic: Traffic, *, may_refuse: bool = False) -> Traffic:
    """Refuse a result with a lost, mixed-up or failed answer."""
    if traffic.errors or traffic.wrong or (traffic.refused and not may_refuse):
        raise ValueError(
            f"{len(traffic.errors)} errors, {traffic.wrong} wrong answers, {traffic.refused} "
            f"refused; {traffic.errors[:3]}"
        )
    return traffic


def take_turns(
    ours: Server, theirs: Server, work: Work, options: argparse.Namespace
) -> dict[str, Any]:
    """Both servers in turn; the first seconds of each are not counted."""
    servers = {"one by one": theirs, "together": ours}
    slices: dict[str, list[Traffic]] = {name: [] for name in servers}
    for number in range(options.rounds + 1):
        seconds = options.seconds / options.rounds if number else 1.0
        for name, server in servers.items():
            traffic = check(asyncio.run(drive(server, work, options, seconds)))
            if number:
                slices[name].append(traffic)
                print(f"{name}: {traffic.items / traffic.seconds:.1f} items/s", flush=True)
    pairs = zip(slices["together"], slices["one by one"], strict=True)
    rates = [(a.items / a.seconds) / (b.items / b.seconds) for a, b in pairs]
    ways = {name: join(parts).to_data() for name, parts in slices.items()}
    return {"connections": options.connections, "ways": ways, "speedup": median(rates)}


def join(parts: Sequence[Traffic]) -> Traffic:
    latencies = [seconds for part in parts for seconds in part.latencies]
    return Traffic(sum(p.seconds for p in parts), sum(p.items for p in parts), latencies)


def overload(server: Server, work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """Large requests of all connections, then the time until a small one is answered."""
    seconds = min(10.0, options.seconds / 4)
    found = check(asyncio.run(drive(server, work, options, seconds, (LARGE,))), may_refuse=True)
    if not found.refused:
        raise ValueError("nothing was refused: the load was none")
    started, after = time.monotonic(), Traffic()
    with httpx.Client() as client:
        answer = client.post(f"{server.address}/predict", json=work.body([0]), timeout=60)
    after.wrong += not work.is_right([0], answer.json().get("answers", []))
    check(after)
    return {
        "answered": len(found.latencies),
        "refused": found.refused,
        "answered_after_milliseconds": 1000 * (time.monotonic() - started),
    }


def watch_memory(server: Server, work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """Resident memory while the load goes on: medians of the first and the last quarter."""
    seconds, samples = max(60 * options.minutes, 2.0), list[float]()

    async def run() -> Traffic:
        sampling = asyncio.create_task(sample())
        traffic = await drive(server, work, options, seconds)
        sampling.cancel()
        return traffic

    async def sample() -> None:
        with suppress(asyncio.CancelledError):
            while True:
                samples.append(status("VmRSS", server.process.pid) / MIB)
                await asyncio.sleep(seconds / 120)

    check(asyncio.run(run()))
    part = max(1, len(samples) // 4)
    first, last = median(samples[:part]), median(samples[-part:])
    return {"minutes": seconds / 60, "first_mib": first, "last_mib": last, "most_mib": max(samples)}


def measure_workers(bundle: Path, work: Work, options: argparse.Namespace, count: int) -> float:
    """MiB of a new server, all workers together, after some seconds of load."""
    with serve(bundle, "--workers", str(count)) as server:
        check(asyncio.run(drive(server, work, options, options.seconds / 4)))
        return own_bytes(server) / MIB


def own_bytes(server: Server) -> int:
    """Memory of all processes without libraries: shared pages count in parts (PSS)."""
    words = [sys.executable, "-c", LIBRARIES]
    root = Path(__file__).parents[1]
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return sum(map(private_bytes, {server.process.pid, *server.workers})) - int(done.stdout)


if __name__ == "__main__":
    main()
