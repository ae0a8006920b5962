"""Prediction as a user would write it with `transformers`: one BertModel for each task.

It has the weights, the fast tokenizer and the heads of the plan `separate`. Sequences are sorted
by length and padded in batches of 32; default attention, inference mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BertModel

from benchmarks.reference import mean_vectors, padded, pair_features
from mops.config.training import TaskEntry
from mops.data.batches import Segment, tokenise
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource
from mops.plans.catalog import read_plan
from mops.plans.layout import lay_out
from mops.plans.shapes import Reading
from mops.predict.bundle import Bundle, Predictor
from mops.tasks import Task

BATCH = 32  # sequences of a padded batch
ENTRIES = {
    "sentiment": TaskEntry(
        type="classification", text="text", label="label", labels=(0, 1, 2, 3, 4)
    ),
    "paraphrase": TaskEntry(
        type="pair_classification", text=("one", "two"), label="label", labels=(0, 1)
    ),
    "similarity": TaskEntry(
        type="similarity", text=("one", "two"), label="label", range=(0.0, 5.0)
    ),
}
TASKS = tuple(entry.task(name) for name, entry in ENTRIES.items())
Request = Mapping[str, Sequence[tuple[str, ...]]]


def build_predictor(
    source: EncoderSource, plan: str, pair: str, tasks: Sequence[Task] = TASKS
) -> Predictor:
    """A predictor with pretrained weights and untrained heads."""
    reading = Reading(pair=pair, max_length=min(256, source.shape.longest))
    network = Network(lay_out(read_plan(plan), tasks, source.shape, reading))
    load_pretrained(network, source)
    network.eval()
    return Predictor(Bundle(source.folder, network, source.tokenizer, {}, {}))


class ThreeModels:
    """For each task an encoder and a linear head, with the predictor's weights."""

    def __init__(self, source: EncoderSource, predictor: Predictor) -> None:
        self.layout, self.tokenizer = predictor.bundle.layout, source.tokenizer
        self.encoders = {
            task: BertModel.from_pretrained(source.folder, add_pooling_layer=False).eval()
            for task in predictor.tasks
        }
        bank = predictor.bundle.network.bank
        self.heads = {
            task: bank[route.head].get_submodule("output")
            for task, route in self.layout.routes.items()
        }

    def outputs(self, request: Request) -> dict[str, NDArray[np.float32]]:
        with torch.inference_mode():
            return {task: self.output(task, texts).numpy() for task, texts in request.items()}

    def output(self, task: str, texts: Sequence[tuple[str, ...]]) -> Tensor:
        table = tokenise(self.tokenizer, texts, self.layout.reading.of(task))
        segments = [Segment(*seq, (task,)) for row in range(len(table)) for seq in table.row(row)]
        vectors_ND = self.vectors(task, segments)
        pair = vectors_ND.view(len(texts), table.per_row, -1).unbind(1)
        seen = pair_features(*pair) if len(pair) == 2 else pair[0]
        head = self.heads[task]
        return torch.nn.functional.linear(seen, head.weight, head.bias)

    def vectors(self, task: str, segments: Sequence[Segment]) -> Tensor:
        order = sorted(range(len(segments)), key=lambda n: -len(segments[n].ids))
        found = torch.empty(len(segments), self.layout.encoder.width)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            inputs = padded([segments[n] for n in chosen])
            found[chosen] = mean_vectors(self.encoders[task], inputs)
        return found


def check_same_predictions(predictor: Predictor, theirs: ThreeModels, request: Request) -> None:
    """Refuse a comparison of two sides that compute different things."""
    from mops.predict.inference import decide

    ours = predictor.predict_tasks(request)
    for task, outputs in theirs.outputs(request).items():
        expected = decide(theirs.layout.tasks[task], outputs)
        np.testing.assert_allclose(ours[task].probabilities, expected.probabilities, atol=1e-4)
        np.testing.assert_allclose(ours[task].values, expected.values, atol=1e-3)
