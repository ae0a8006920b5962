"""References that need no training: what a trained model should not end below.

The untrained encoder: the cosine of the mean vectors of two texts, for tasks whose answer is one.
The linear probe: ridge regression from these vectors to the labels; of a pair from their absolute
difference and product. Both see a bounded number of rows, whose vectors the cache keeps.

Shapes: N rows, D features, O outputs.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mops.config.training import Training
from mops.data.batches import Segment, tokenise
from mops.data.dataset import encode_targets
from mops.data.schedule import generator
from mops.data.splits import Row
from mops.evaluate.metrics import score
from mops.kinds.metrics import Answers
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.plans.catalog import DEFAULT, freeze_encoder, read_plan
from mops.record import RunScores
from mops.store import find_store
from mops.tasks import CORRELATIONS, Task
from mops.training.feature_cache import FeatureCache
from mops.training.prepare import Prepared

TRAIN_ROWS, JUDGED_ROWS = 500, 1000  # of a task
UNTRAINED, PROBE = "untrained encoder", "linear probe"
PENALTIES = 10.0 ** np.arange(-2, 6)
Values = NDArray[np.float64]
References = Mapping[str, Mapping[str, float]]  # reference -> task -> its own score on validation
KNOWN: dict[str, References] = {}  # of this process, which may train many networks on one encoder


def measure_references(ready: Prepared) -> References:
    """Of the tasks with one answer for a text; none for a model that grew from another one."""
    names = [n for n, task in ready.dataset.tasks.items() if not task.answer.reads_words]
    if ready.base or not names:
        return {}
    data, length = ready.dataset.digests, ready.recipe.training.max_length
    tasks = {name: ready.recipe.tasks[name].model_dump_json() for name in names}
    key = repr((ready.source.files_digest, sorted(data.items()), length, tasks))
    if key not in KNOWN:
        training = Training(pair="bi", max_length=length, folds=ready.recipe.training.folds)
        entries = {name: ready.recipe.tasks[name] for name in names}
        plan = freeze_encoder(read_plan(DEFAULT)).to_data()
        update = {"plan": plan, "tasks": entries, "training": training}
        layout = ready.recipe.model_copy(update=update).layout(
            {name: ready.dataset.tasks[name] for name in names}, ready.source.shape
        )
        network = Network(layout)
        load_pretrained(network, ready.source)
        cache = FeatureCache(network.to(ready.device).eval(), find_store())
        found: dict[str, dict[str, float]] = {UNTRAINED: {}, PROBE: {}}
        for name in names:
            for reference, value in measure_task(ready, cache, name):
                found[reference][name] = value
        KNOWN[key] = {reference: own for reference, own in found.items() if own}
    return KNOWN[key]


def measure_task(ready: Prepared, cache: FeatureCache, name: str) -> Iterator[tuple[str, float]]:
    task, splits = ready.dataset.tasks[name], ready.dataset.splits[name]
    train = draw(splits["train"].labelled, TRAIN_ROWS, name)
    judged = draw(splits["validation"].labelled, JUDGED_ROWS, name)
    vectors = encode_rows(ready, cache, name, [*train, *judged])
    targets, answers = encode_targets(task, judged), encode_targets(task, train)
    if task.kind.has_cosine and task.score_name in CORRELATIONS:
        one, two = (own[len(train) :] for own in vectors)
        cosines = (one * two).sum(1) / np.maximum(norms(one) * norms(two), 1e-12)
        yield UNTRAINED, score(task, targets, cosines)[task.score_name]
    features = combine(vectors)
    outputs = fit_ridge(features[: len(train)], as_columns(task, answers), features[len(train) :])
    yield PROBE, score(task, targets, as_answers(task, outputs))[task.score_name]


def draw(rows: Sequence[Row], most: int, name: str) -> list[Row]:
    """The same sample for every run on these rows."""
    chosen = generator(0, "references", name).permutation(len(rows))[:most]
    return [rows[number] for number in np.sort(chosen)]


def encode_rows(
    ready: Prepared, cache: FeatureCache, name: str, rows: Sequence[Row]
) -> list[Values]:
    """The mean vectors of the first texts of all rows, and of the second ones."""
    reading = cache.network.layout.reading.of(name)
    table = tokenise(ready.source.tokenizer, [row.texts for row in rows], reading)
    tokens = (own for number in range(len(table)) for own in table.row(number))
    vectors = cache.pooled(name, [Segment(ids, types, (name,)) for ids, types in tokens])
    return [vectors[n :: table.per_row].astype(np.float64) for n in range(table.per_row)]


def combine(vectors: Sequence[Values]) -> Values:
    if len(vectors) == 1:
        return vectors[0]
    one, two = vectors
    return np.concatenate([np.abs(one - two), one * two], axis=1)


def norms(vectors_ND: Values) -> Values:
    return np.asarray(np.sqrt((vectors_ND**2).sum(1)))


def as_columns(task: Task, targets: Answers) -> Values:
    """A column for each class or label, or the value."""
    return np.asarray(task.answer.soften(task, targets, 0.0), np.float64).reshape(len(targets), -1)


def as_answers(task: Task, outputs_NO: Values) -> Answers:
    if task.answer.has_thresholds:
        return (outputs_NO > 0.5).astype(np.float64)
    return outputs_NO.argmax(1).astype(float) if task.answer.has_labels else outputs_NO[:, 0]


def fit_ridge(train_ND: Values, targets_NO: Values, others_ND: Values) -> Values:
    """Outputs for other rows; generalised cross-validation chooses the penalty (Golub 1979)."""
    mean, spread = train_ND.mean(0), train_ND.std(0) + 1e-9
    middle, rows = targets_NO.mean(0), len(train_ND)
    left, sizes, right = np.linalg.svd((train_ND - mean) / spread, full_matrices=False)
    own = left.T @ (targets_NO - middle)

    def error(penalty: float) -> float:
        kept = sizes**2 / (sizes**2 + penalty)
        missed = targets_NO - middle - left @ (kept[:, None] * own)
        return float((missed**2).sum() / max(rows - 1 - kept.sum(), 1e-3) ** 2)

    penalty = min(PENALTIES, key=error)
    weights = right.T @ ((sizes / (sizes**2 + penalty))[:, None] * own)
    return np.asarray((others_ND - mean) / spread @ weights + middle)


def below_references(references: References, scores: RunScores) -> list[str]:
    """A warning for each task that ended below one, by more than a standard error."""
    warnings = []
    for name in (name for name in scores.tasks if name not in scores.untrained):
        main, own = scores.main[name], scores.tasks[name].get("report", {})
        for reference, values in references.items():
            if own and name in values and own[main] < values[name] - own["stderr"]:
                warnings.append(
                    f"{name}: {main} {own[main]:.3f} is below the {values[name]:.3f} of the "
                    f"{reference}, which needs no training: raise the budget, or change the "
                    "learning rate or the plan"
                )
    return warnings
