"""The forward pass of a batch without training, on both sides, for benchmarks of prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import torch

from benchmarks.reference import Reference
from mops.data.batches import Batch
from mops.encoder.network import Network
from mops.encoder.packing import pack_segments
from mops.encoder.pretrained import load_pretrained
from mops.fit.prepare import Prepared
from mops.layout import Layout


def our_network(ready: Prepared, layout: Layout | None = None) -> Network:
    """Pretrained, ready to answer."""
    network = Network(layout or ready.layout)
    load_pretrained(network, ready.source)
    return network.eval()


def our_forward(ready: Prepared, batches: Sequence[Batch]) -> Callable[[], object]:
    """The outputs of all tasks for the next batch: packing, encoder, heads."""
    network, turn = our_network(ready), cycle(batches)

    def forward() -> object:
        with torch.inference_mode():
            return network(pack_segments(next(turn).segments, network.layout))

    return forward


def their_forward(ready: Prepared, batches: Sequence[Batch]) -> Callable[[], object]:
    """The same with padded batches, a task at a time."""
    folder, pair = str(ready.source.folder), ready.layout.reading.pair
    model, turn = Reference(folder, ready.layout.tasks, pair).eval(), cycle(batches)

    def forward() -> object:
        batch = next(turn)
        segments = {task: [s for s in batch.segments if task in s.tasks] for task in batch.targets}
        with torch.inference_mode():
            return [model(task, of) for task, of in segments.items()]

    return forward
