"""The scores that pick the best state, on the selection half of the validation rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mops.data.batches import TaskData
from mops.encoder.network import Network
from mops.encoder.packing import Packer
from mops.judge.scores import score
from mops.predict.answers import decide
from mops.predict.outputs import compute_outputs

Scores = Callable[[Network, Mapping[str, TaskData], Packer | None], dict[str, dict[str, float]]]


def selection_scores(
    network: Network, selection: Mapping[str, TaskData], pack: Packer | None = None
) -> dict[str, dict[str, float]]:
    """The scores of each task on its selection rows; all tasks in one pass."""
    device = next(network.parameters()).device
    tables = {name: data.tokens for name, data in selection.items()}
    outputs = compute_outputs(network, tables, pack, device)
    return {
        name: score(data.task, data.targets, decide(data.task, outputs[name]).predictions)
        for name, data in selection.items()
    }
