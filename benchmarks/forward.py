"""The forward pass of a batch without training, on both sides, for benchmarks of prediction."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.reference import Reference
from mops.data.batches import Batch
from mops.encoder.network import Network
from mops.encoder.packing import pack_segments
from mops.encoder.pretrained import load_pretrained
from mops.fit.prepare import Prepared


def our_forward(ready: Prepared, batch: Batch) -> Callable[[], object]:
    """The outputs of all tasks: packing, encoder, heads."""
    network = Network(ready.layout).eval()
    load_pretrained(network, ready.source)

    def forward() -> object:
        with torch.inference_mode():
            return network(pack_segments(batch.segments, network.layout))

    return forward


def their_forward(ready: Prepared, batch: Batch) -> Callable[[], object]:
    """The same with padded batches, a task at a time."""
    folder, pair = str(ready.source.folder), ready.layout.reading.pair
    model = Reference(folder, ready.layout.tasks, pair).eval()

    def forward() -> object:
        segments = {task: [s for s in batch.segments if task in s.tasks] for task in batch.targets}
        with torch.inference_mode():
            return [model(task, of) for task, of in segments.items()]

    return forward
