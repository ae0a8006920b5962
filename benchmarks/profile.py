"""Where the time of a training step and of a prediction goes, in mops and in transformers.

python -m benchmarks.profile --data DIR

torch's profiler gives the self time of each operation. An operation belongs to the first group
whose pattern matches its name or, going outwards, the name of an enclosing operation. Everything
inside one of the MARKED functions belongs to that function's group.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any
from unittest import mock

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.harness import arguments, limit, processor_time, write_result
from benchmarks.training_step import (
    Case,
    data_name,
    our_forward,
    our_step,
    prepare_case,
    their_forward,
    their_step,
    typical_batch,
)

SIZE, PAIR = 8, "bi"  # rows per task
WARM, TIMES = 3, 5  # runs that are not counted, and that are
WHOLE = "mops::whole"  # the root of all events: its own time is Python's
BACKWARD = "autograd::engine"

# Functions whose whole time is one group, by the module that calls them.
MARKED = {
    ("mops.training.step", "pack_segments"): "packing and padding",
    ("benchmarks.training_step", "pack_segments"): "packing and padding",
    ("benchmarks.reference", "padded"): "packing and padding",
    ("mops.training.optim", "clip"): "clipping",
    ("torch.nn.utils", "clip_grad_norm_"): "clipping",
}
OPTIMISER = "Optimizer."
PATTERNS = {  # the first that matches counts
    "linear layers": r"aten::(linear|addmm|mm)\b|(Addmm|Mm|Linear)Backward",
    "attention": r"Attention|scaled_dot_product|softmax|aten::(bmm|baddbmm)|(Bmm|Softmax)Backward",
    "layer norm": r"layer_norm|LayerNorm",
    "GELU": r"gelu|Gelu",
    "dropout": r"\bDrop(Backward)?\b|dropout|bernoulli|MulBackward",
    "embeddings": r"aten::embedding|Embedding",
}
REST = "adding and copying"
PYTHON = "Python and calls"
GROUPS = (
    "linear layers, forward",
    "linear layers, backward",
    *list(PATTERNS)[1:],
    REST,
    "clipping",
    "optimiser",
    "packing and padding",
    PYTHON,
)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    case = Case(options.data, options.encoder, PAIR, SIZE)
    ready = prepare_case(case)
    batch = typical_batch(ready, SIZE)
    theirs = str(ready.source.folder), dict(ready.layout.tasks), PAIR, batch
    runs: dict[str, dict[str, Callable[[], object]]] = {
        "training step": {
            "mops": our_step(case, batch, dropout=0.1),
            "transformers": their_step(*theirs),
        },
        "prediction": {
            "mops": our_forward(case, batch),
            "transformers": their_forward(*theirs),
        },
    }
    works = {}
    for work in limit(tuple(runs), options):
        works[work] = {
            name: measure(run, len(limit(range(TIMES), options)))
            for name, run in runs[work].items()
        }
        print_shares(work, works[work])
    facts = {"data": data_name(options.data), "pair": PAIR, "rows_per_task": SIZE, "works": works}
    print(write_result("profile", facts, options.out))


def measure(run: Callable[[], object], times: int) -> dict[str, Any]:
    """The fraction of each group, and the time with and without the profiler."""
    torch.set_num_threads(1)
    for _ in range(WARM):
        run()
    plain_seconds = processor_time(lambda: [run() for _ in range(times)])
    with marked(), profile(activities=[ProfilerActivity.CPU]) as watched, record_function(WHOLE):
        for _ in range(times):
            run()
    seconds = group_seconds(watched.events())
    total = sum(seconds.values())
    return {
        "seconds": plain_seconds / times,
        "watched_seconds": total / times,
        "shares": {group: seconds[group] / total for group in GROUPS},
    }


@contextmanager
def marked() -> Iterator[None]:
    """Record the MARKED functions under the names of their groups."""
    with ExitStack() as stack:
        for (module, name), group in MARKED.items():
            function = getattr(importlib.import_module(module), name)
            stack.enter_context(mock.patch(f"{module}.{name}", recorded(function, group)))
        yield


def recorded(function: Callable[..., Any], group: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        with record_function(f"mops::{group}"):
            return function(*given, **named)

    return call


def group_seconds(events: Sequence[FunctionEvent]) -> Counter[str]:
    """Group -> the self time of its operations in seconds."""
    found: Counter[str] = Counter()
    for event in events:
        path = list(enclosing_names(event))
        if path[-1] == WHOLE:
            found[group_of(path)] += event.self_cpu_time_total / 1e6
    return found


def enclosing_names(event: FunctionEvent | None) -> Iterator[str]:
    while event is not None:
        yield event.name
        event = event.cpu_parent


def group_of(path: Sequence[str]) -> str:
    """The group of an operation, from its name and those of the enclosing operations."""
    if path[0] == WHOLE:
        return PYTHON
    marks = [name.removeprefix("mops::") for name in path[:-1] if name.startswith("mops::")]
    if marks:
        return marks[-1]
    if any(name.startswith(OPTIMISER) for name in path):
        return "optimiser"
    group = next(filter(None, map(known_group, path)), REST)
    return with_direction(group, path)


@cache
def known_group(name: str) -> str:
    return next((group for group, words in PATTERNS.items() if re.search(words, name)), "")


def with_direction(group: str, path: Sequence[str]) -> str:
    if group != "linear layers":
        return group
    is_backward = any(name.startswith(BACKWARD) for name in path)
    return f"{group}, {'backward' if is_backward else 'forward'}"


def print_shares(work: str, sides: dict[str, dict[str, Any]]) -> None:
    print(f"\n{work}: share of the time, {' and '.join(sides)}")
    for group in GROUPS:
        shares = "".join(f"{facts['shares'][group]:9.1%}" for facts in sides.values())
        print(f"  {group:26}{shares}")


if __name__ == "__main__":
    main()
