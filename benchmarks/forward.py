"""The forward pass of a batch without training, on both sides, for benchmarks of prediction."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.reference import Reference
from benchmarks.training_step import Case, made_ready
from mops.data.batches import Batch
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import load_pretrained
from mops.tasks import Task


def our_forward(case: Case, batch: Batch) -> Callable[[], object]:
    """The outputs of all tasks: packing, encoder, heads."""
    ready = made_ready(case)
    network = Network(ready.layout).eval()
    load_pretrained(network, ready.source)

    def forward() -> object:
        with torch.inference_mode():
            return network(pack_segments(batch.segments, network.layout))

    return forward


def their_forward(
    folder: str, tasks: dict[str, Task], pair: str, batch: Batch
) -> Callable[[], object]:
    """The same with padded batches, a task at a time."""
    model = Reference(folder, tasks, pair).eval()
    segments = {task: [s for s in batch.segments if task in s.tasks] for task in batch.targets}

    def forward() -> object:
        with torch.inference_mode():
            return [model(task, of) for task, of in segments.items()]

    return forward
