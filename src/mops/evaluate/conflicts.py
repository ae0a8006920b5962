"""Do the tasks' gradients agree, and their outputs? Cosines, correlations, tests and advice.

numpy only. At each measured step a task has two gradients, from two independent batches, so that
the cosine of a task with itself shows how much agreement the noise of batches leaves.

Shapes: N measured steps, T tasks, h two batches of each.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, takewhile
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from mops.errors import UsageError
from mops.evaluate.metrics import Values
from mops.evaluate.statistics import LEVEL, below_zero, holm
from mops.kinds.metrics import pearson
from mops.yaml_io import read_json, to_value

Cells = tuple["CosineCell", ...]
Answers = Mapping[str, Mapping[str, Values]]  # task whose rows they are -> task -> a number a row
Targets = Mapping[str, Values]  # of these rows
WHOLE = "all"  # the parts of a place together
FEWEST_ROWS = 4  # of a correlation, for an interval
TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class CosineCell:
    """How the gradients of two tasks on the same weights relate, over the measured steps."""

    place: str  # layer 3, embeddings, pooler, late1, ...
    part: str  # attention, norms, ...; or all of the place
    owner: str = ""  # none for a whole place
    tasks: tuple[str, str]
    mean: float  # of the cosine
    stderr: float  # of that mean, over steps
    negative: float  # share of steps with a cosine below 0
    norm_ratio: float  # first over second task
    own: tuple[float, float]  # cosine of two batches of the same task, for each of the tasks
    steps: int  # with a cosine: there is none where a gradient is zero
    p: float = 1.0  # of so low a mean if the tasks were indifferent
    p_holm: float = 1.0
    is_conflict: bool = False

    @property
    def ceiling(self) -> float:
        """About what two tasks that want the same would show: noise shortens both cosines alike.

        Spearman's (1904) correction for attenuation, read the other way round.
        """
        a, b = self.own
        return math.sqrt(max(a, 0.0) * max(b, 0.0))

    @property
    def layer(self) -> int | None:
        return layer_number(self.place)


@dataclass(frozen=True, kw_only=True)
class OutputCell:
    """How the outputs of two tasks for the same texts are correlated (Pearson)."""

    tasks: tuple[str, str]
    rows_of: str  # the task whose validation rows they answer
    rows: int
    correlation: float
    low: float  # 95 % interval
    high: float
    own: tuple[float, float]  # of each task's outputs with its labels, on its own rows
    is_clear: bool  # the interval is on one side of 0, and both tasks follow their labels


@dataclass(frozen=True)
class Conflicts:
    """Where the tasks' gradients disagree, by owner and by place, and how outputs correlate."""

    info: Mapping[str, Any]  # plan, encoder, tasks, measured steps, batch sizes, level
    recipe: Mapping[str, Any]
    machine: Mapping[str, Any]
    owners: Cells
    places: Cells
    advice: tuple[str, ...]
    outputs: tuple[OutputCell, ...] = ()

    def outputs_of(self, pair: tuple[str, ...]) -> list[OutputCell]:
        return [cell for cell in self.outputs if cell.tasks == pair]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(cell.tasks for cell in self.places))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def read_conflicts(path: Path) -> Conflicts:
    try:
        return to_value(Conflicts, read_json(path), where=path.name, error=UsageError)
    except UsageError as cause:
        raise UsageError(
            f"{path} is not a measurement of conflicts: {cause}; delete it or name another `out`"
        ) from cause


def layer_number(place: str) -> int | None:
    match = re.fullmatch(r"layer ?(\d+)", place)
    return int(match[1]) if match else None


def place_and_part(owner: str) -> tuple[str, str]:
    """`attention/layer03/a+b` -> layer 3, attention; `late1` and the like are their own place."""
    part, *rest = owner.split("/")
    layer = layer_number(rest[0]) if rest else None
    return (part if layer is None else f"layer {layer}"), part


def judge(
    grams: Mapping[str, Values],
    users: Mapping[str, Sequence[str]],
    tasks: Sequence[str],
    answers: Answers | None = None,
    targets: Targets | None = None,
) -> dict[str, Any]:
    """The fields of `Conflicts` that follow from the measured products of gradients and answers.

    `grams` has the products of all gradients on every owner that is shared: owner -> N T h T h.
    For each pair of tasks there is a cell for each owner that both train, and one for all owners
    of a place together.
    """
    owners: list[CosineCell] = []
    wholes: dict[tuple[str, tuple[str, str]], Values] = {}
    for owner, gram in grams.items():
        place, part = place_and_part(owner)
        for pair in combinations(users[owner], 2):
            numbers = [tasks.index(task) for task in pair]
            own = gram[:, numbers][:, :, :, numbers]
            owners += measure_pair(pair, own, place=place, part=part, owner=owner)
            wholes[place, pair] = wholes.get((place, pair), 0.0) + own
    places: list[CosineCell] = []
    for (place, pair), whole in wholes.items():
        places += measure_pair(pair, whole, place=place, part=WHOLE)
    tested = {"owners": sort_and_test(owners), "places": sort_and_test(places)}
    outputs = tuple(correlate(answers or {}, targets or {}, tasks))
    return {
        **tested,
        "outputs": outputs,
        "advice": (*advise(tested["places"]), *advise_late(outputs)),
    }


def measure_pair(pair: tuple[str, str], gram_N2h2h: Values, **names: Any) -> Iterator[CosineCell]:
    """The cell of two tasks on some weights; none where a gradient was zero almost always."""
    norm_N2h = np.sqrt(np.einsum("nthth->nth", gram_N2h2h))
    is_known_N = (norm_N2h > 0).all((1, 2))
    norm_N2h, count = norm_N2h[is_known_N], int(is_known_N.sum())
    if count < 2:  # a standard error needs two
        return
    product_N2h2h = norm_N2h[:, :, :, None, None] * norm_N2h[:, None, None]
    cosine_N2h2h = gram_N2h2h[is_known_N] / product_N2h2h
    # Each batch of one task with each of the other: batches as large as those of `own`.
    cosine_N = cosine_N2h2h[:, 0, :, 1].mean((1, 2))
    mean, stderr = float(cosine_N.mean()), float(cosine_N.std(ddof=1) / np.sqrt(count))
    log_N2 = np.log(norm_N2h).mean(2)
    own_a, own_b = (float(cosine_N2h2h[:, task, 0, task, 1].mean()) for task in (0, 1))
    yield CosineCell(
        **names,
        tasks=pair,
        mean=mean,
        stderr=stderr,
        negative=float((cosine_N < 0).mean()),
        norm_ratio=float(np.exp((log_N2[:, 0] - log_N2[:, 1]).mean())),
        own=(own_a, own_b),
        steps=count,
        p=below_zero(mean, stderr, count),
    )


def sort_and_test(cells: Sequence[CosineCell]) -> Cells:
    """From the bottom of the encoder to its top; tested as one family."""
    ordered = sorted(
        cells, key=lambda cell: (cell.place != "embeddings", cell.layer is None, cell.layer or 0)
    )
    adjusted = holm([cell.p for cell in ordered]).tolist()
    return tuple(
        replace(cell, p_holm=p, is_conflict=p < LEVEL)
        for cell, p in zip(ordered, adjusted, strict=True)
    )


def advise(places: Sequence[CosineCell]) -> tuple[str, ...]:
    """One or two sentences: the worst conflict, and where separate copies would remove it."""
    conflicting = [cell for cell in places if cell.is_conflict]
    lowest = min(conflicting or places, key=lambda cell: cell.mean)
    pair, cosine = " and ".join(lowest.tasks), f"{lowest.mean:z.3f} ± {lowest.stderr:.3f}"
    if conflicting:
        worst = (
            f"The tasks disagree most in {lowest.place}: {pair} have a mean cosine of {cosine} "
            f"there, where two tasks with the same goal would show about {lowest.ceiling:.2f}; "
            f"{len(conflicting)} of {len(places)} cells (place and pair of tasks) conflict."
        )
        return worst, suggest_split(conflicting, places)
    return (
        f"No layer shows a significant conflict (level {LEVEL}, Holm over {len(places)} cells); "
        f"the lowest mean cosine is {cosine}, in {lowest.place} between {pair}.",
    )


def correlate(answers: Answers, targets: Targets, tasks: Sequence[str]) -> Iterator[OutputCell]:
    """The correlation of two tasks' answers on the rows of each of them that both can answer."""
    own = {name: pearson_interval(answers[name][name], targets[name]) for name in targets}
    for pair in combinations(tasks, 2):
        for source in (task for task in pair if set(pair) <= set(answers.get(task, ()))):
            found, low, high = pearson_interval(*(answers[source][task] for task in pair))
            has_learned = all(own[task][1] > 0 for task in pair)
            yield OutputCell(
                tasks=pair,
                rows_of=source,
                rows=len(targets[source]),
                correlation=found,
                low=low,
                high=high,
                own=(own[pair[0]][0], own[pair[1]][0]),
                is_clear=has_learned and (low > 0 or high < 0),
            )


def pearson_interval(first: Values, second: Values) -> tuple[float, float, float]:
    """Pearson's correlation and its interval by Fisher's z (1921); where nothing varies, all."""
    if len(first) < FEWEST_ROWS or not (np.ptp(first) and np.ptp(second)):
        return 0.0, -1.0, 1.0
    found = pearson(first, second)
    middle = math.atanh(max(-1 + TINY, min(1 - TINY, found)))  # of 1 it would be infinite
    reach = NormalDist().inv_cdf(1 - LEVEL / 2) / math.sqrt(len(first) - 3)
    return found, math.tanh(middle - reach), math.tanh(middle + reach)


def advise_late(outputs: Sequence[OutputCell]) -> Iterator[str]:
    """Whose last layers to share: shared late layers suit tasks with correlated outputs.

    The heuristic of Memory Occupancy and Performance Surveying, section 5.1.2.
    """
    clear = [cell for cell in outputs if cell.is_clear]
    if clear:
        most = max(clear, key=lambda cell: abs(cell.correlation))
        yield (
            f"The outputs of {' and '.join(most.tasks)} are the most correlated: "
            f"{most.correlation:.2f} (95 % interval {most.low:.2f} to {most.high:.2f}) on "
            f"{most.rows} rows of {most.rows_of}. If any tasks gain from shared last layers, it is "
            "these; train both ways before you decide."
        )
    elif outputs:
        yield (
            "No two tasks that follow their labels have clearly correlated outputs on common "
            "texts: nothing speaks for sharing their last layers."
        )


def suggest_split(conflicting: Sequence[CosineCell], places: Sequence[CosineCell]) -> str:
    """Split at the lowest layer from which on every shared layer conflicts in some pair."""
    layers = {cell.layer for cell in conflicting}
    shared = sorted({cell.layer for cell in places if cell.layer is not None}, reverse=True)
    upper = list(takewhile(lambda layer: layer in layers, shared))
    if upper:
        return (
            f"Every shared layer from {upper[-1]} on conflicts: a copy per task from layer "
            f"{upper[-1]} on would remove the conflicts; train both ways before you decide."
        )
    where = ", ".join(dict.fromkeys(cell.place for cell in conflicting))
    return (
        f"The conflicts ({where}) do not reach the top layer: a copy per task from some layer on "
        "would split layers that agree; copy only the conflicting parts instead."
    )
