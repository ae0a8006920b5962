"""The child that measures one candidate: a word on stdin, one line of JSON on stdout.

    {"recipe": ..., "scratch": ...}   what is known without measuring
    warm                              all once
    0, 1, ...                         a round: seconds of each thing; the peak of memory so far

When its stdin is closed it ends at once, whatever it does: it never outlives who asked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from mops.config.recipe import Recipe
from mops.errors import MopsError


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes stdin
    words: SimpleQueue[str] = SimpleQueue()
    Thread(target=listen, args=(words,), daemon=True).start()
    with own_output() as output:
        try:
            answer(words, output)
        except MopsError as problem:
            say(output, {"error": str(problem)})
        except Exception as problem:  # anything: the parent has to know why
            say(output, {"error": f"{type(problem).__name__}: {problem}"})
    os._exit(1)  # a thread that waits for a line would hold up the usual end


def listen(words: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        words.put(line.strip())
    os._exit(0)


def own_output() -> IO[str]:
    """The pipe to the parent; whatever a library prints goes to stderr instead."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return output


def answer(words: SimpleQueue[str], output: IO[str]) -> None:
    """To each line one, for ever."""
    job = json.loads(words.get())
    from mops.surveys.benchmark.measures import Measures

    measures = Measures(Recipe.model_validate(job["recipe"]), Path(job["scratch"]))
    say(output, measures.facts())
    while True:
        word = words.get()
        say(output, measures.warm() if word == "warm" else measures.round(int(word)))


def say(output: IO[str], facts: Mapping[str, Any]) -> None:
    output.write(json.dumps(facts) + "\n")
    output.flush()


if __name__ == "__main__":
    main()
