"""Child processes that measure when it is their turn: started, asked, stopped. No torch."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mops.errors import RunError
from mops.surveys.ledger import Candidate

PATIENCE = 5.0  # seconds that a child has to end by itself


class Child:
    """A candidate in a process of its own; it waits until it is asked."""

    def __init__(self, candidate: Candidate, scratch: Path) -> None:
        self.candidate, self.scratch = candidate, scratch
        scratch.mkdir(parents=True)
        with self.errors.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mops.surveys.benchmark.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def errors(self) -> Path:
        return self.scratch / "errors.txt"

    def begin(self) -> dict[str, Any]:
        """Prepare the candidate; what is known of it without measuring."""
        job = {"recipe": self.candidate.recipe.to_data(), "scratch": str(self.scratch)}
        return self.ask(json.dumps(job))

    def ask(self, word: str) -> dict[str, Any]:
        """The answer to a word, or why there is none."""
        assert self.process.stdin and self.process.stdout
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            raise RunError(self.reason())
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise RunError(found["error"])
        return found

    def reason(self) -> str:
        """Why it ended without a word."""
        self.stop()
        if self.process.returncode < 0:
            return f"ended by signal {-self.process.returncode} (9: perhaps for lack of memory)"
        lines = self.errors.read_text("utf-8").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "ended without a word")

    def stop(self) -> None:
        """It ends at once when nobody speaks to it any more."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def free_memory() -> float:
    """Bytes that new processes may take; without end where the system does not tell."""
    path = Path("/proc/meminfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    told = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return next(told, float("inf"))
