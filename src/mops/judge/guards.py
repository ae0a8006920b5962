"""Guards at evaluation: results that look like results but are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mops.tasks import Task

Values = NDArray[np.float64]
FLAT = 0.01  # of the range: a similarity that varies less than this says nothing


def suspicious(task: Task, targets: Values, predictions: Values) -> Iterator[str]:
    """What is wrong with a task's predictions on validation rows, one sentence each."""
    if len(predictions) < 2:
        return
    if task.is_similarity:
        assert task.range is not None
        spread = float(predictions.std())
        if spread < FLAT * (task.range[1] - task.range[0]):
            yield (
                f"{task.name}: the predictions hardly vary (standard deviation {spread:.4f} on "
                f"the range {list(task.range)}): this score means nothing"
            )
        return
    classes = np.unique(predictions)
    if len(classes) == 1:
        only = task.labels[int(classes[0])]
        yield f"{task.name}: every prediction is {only!r}: nothing was learnt"
        return
    majority = np.bincount(targets.astype(int)).max() / len(targets)
    if np.mean(targets == predictions) <= majority:
        yield (
            f"{task.name}: accuracy {np.mean(targets == predictions):.3f} is not above the "
            f"majority class's {majority:.3f}"
        )
