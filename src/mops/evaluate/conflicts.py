"""Do the tasks' gradients agree? Products of gradients become cosines, tests and advice.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mops.errors import UsageError
from mops.evaluate.statistics import LEVEL, below_zero, holm
from mops.yaml_io import to_value

Values = NDArray[np.float64]
Names = Mapping[str, Any]  # place, part, owner, tasks
WHOLE = "all"  # the parts of a place together


@dataclass(frozen=True, kw_only=True)
class CosineCell:
    """How the gradients of two tasks on the same weights relate, over the measured steps."""

    place: str  # layer 3, embeddings, pooler, late1, ...
    part: str  # attention, norms, ...; or all of the place
    owner: str = ""  # none for a whole place and for an average over pairs
    tasks: tuple[str, ...] = ()  # two; none for an average over pairs
    mean: float  # of the cosine
    stderr: float  # of that mean, over steps
    negative: float  # share of steps with a cosine below 0
    norm_ratio: float  # first over second task; of an average: larger over smaller
    own: tuple[float, ...] = ()  # cosine of two batches of the same task, for each of the tasks
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


@dataclass(frozen=True)
class Conflicts:
    """Where the tasks' gradients disagree: by owner, by place, and averaged over pairs."""

    info: Mapping[str, Any]  # plan, encoder, tasks, measured steps, batch sizes, level
    recipe: Mapping[str, Any]
    machine: Mapping[str, Any]
    owners: tuple[CosineCell, ...]
    places: tuple[CosineCell, ...]
    averages: tuple[CosineCell, ...]
    advice: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(cell.tasks for cell in self.places))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def read_conflicts(path: Path) -> Conflicts:
    """The measurement in a file conflicts.json."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return to_value(Conflicts, data, where=path.name, error=UsageError)
    except (OSError, ValueError, UsageError) as cause:
        raise UsageError(
            f"{path} is not a measurement of conflicts: {cause}; delete it or name another --out"
        ) from cause


# ------------------------------------------------------------------ step by step


@dataclass(frozen=True)
class CosineSeries:
    """The cosine of one pair of tasks on some weights, step by step."""

    names: Names
    cosine_N: Values
    log_ratio_N: Values
    own_N2: Values


def layer_number(place: str) -> int | None:
    match = re.fullmatch(r"layer ?(\d+)", place)
    return int(match[1]) if match else None


def place_and_part(owner: str) -> tuple[str, str]:
    """`attention/layer03/a+b` -> layer 3, attention; `late1` and the like are their own place."""
    part, *rest = owner.split("/")
    layer = layer_number(rest[0]) if rest else None
    return (part if layer is None else f"layer {layer}"), part


def pair_series(
    grams: Mapping[str, Values], users: Mapping[str, Sequence[str]], tasks: Sequence[str]
) -> tuple[list[CosineSeries], list[CosineSeries]]:
    """For each pair of tasks: on each owner that both train, and on all owners of a place together.

    `grams` has the products of all gradients on every owner that is shared: owner -> N T h T h.
    """
    by_owner: list[CosineSeries] = []
    wholes: dict[tuple[str, tuple[str, str]], Values] = {}
    for owner, gram in grams.items():
        place, part = place_and_part(owner)
        for pair in combinations(users[owner], 2):
            names = {"place": place, "part": part, "owner": owner, "tasks": pair}
            by_owner.append(compute_cosines(gram, names, tasks))
            wholes[place, pair] = wholes.get((place, pair), 0.0) + gram
    by_place = [
        compute_cosines(gram, {"place": place, "part": WHOLE, "tasks": pair}, tasks)
        for (place, pair), gram in wholes.items()
    ]
    return sorted(by_owner, key=height), sorted(by_place, key=height)


def height(series: CosineSeries) -> tuple[bool, bool, int]:
    """From the bottom of the encoder to its top, then places without a layer."""
    layer = layer_number(series.names["place"])
    return series.names["place"] != "embeddings", layer is None, layer or 0


def compute_cosines(gram_NThTh: Values, names: Names, tasks: Sequence[str]) -> CosineSeries:
    """Each batch of one task with each of the other: batches as large as those of `own`."""
    a, b = (tasks.index(name) for name in names["tasks"])
    norm_NTh = np.sqrt(np.einsum("nthth->nth", gram_NThTh))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine_NThTh = gram_NThTh / (norm_NTh[:, :, :, None, None] * norm_NTh[:, None, None])
        log_NT = np.log(norm_NTh).mean(2)
        log_ratio_N = log_NT[:, a] - log_NT[:, b]
    own_N2 = np.stack([cosine_NThTh[:, task, 0, task, 1] for task in (a, b)], axis=1)
    return CosineSeries(names, cosine_NThTh[:, a, :, b].mean((1, 2)), log_ratio_N, own_N2)


# ------------------------------------------------------------------ over the steps


def judge(
    grams: Mapping[str, Values], users: Mapping[str, Sequence[str]], tasks: Sequence[str]
) -> dict[str, Any]:
    """The fields of `Conflicts` that follow from the measured products of gradients."""
    by_owner, by_place = pair_series(grams, users, tasks)
    owners, places = make_cells(by_owner), make_cells(by_place)
    averages = (*average_pairs(by_owner), *average_pairs(by_place))
    advice = advise(owners, places)
    return {"owners": owners, "places": places, "averages": averages, "advice": advice}


def make_cells(series: Sequence[CosineSeries]) -> tuple[CosineCell, ...]:
    """A cell for each series, tested together; none where gradients were zero almost always."""
    cells = [cell for each in series for cell in summarise(each)]
    adjusted = holm([cell.p for cell in cells]).tolist()
    return tuple(
        replace(cell, p_holm=p, is_conflict=p < LEVEL)
        for cell, p in zip(cells, adjusted, strict=True)
    )


def summarise(series: CosineSeries) -> Iterator[CosineCell]:
    is_known = np.isfinite(series.cosine_N)
    cosine, count = series.cosine_N[is_known], int(is_known.sum())
    if count > 1:  # a standard error needs two
        mean, stderr = float(cosine.mean()), float(cosine.std(ddof=1) / np.sqrt(count))
        yield CosineCell(
            **series.names,
            mean=mean,
            stderr=stderr,
            negative=float((cosine < 0).mean()),
            norm_ratio=float(np.exp(series.log_ratio_N[is_known].mean())),
            own=tuple(series.own_N2[is_known].mean(0).tolist()),
            steps=count,
            p=below_zero(mean, stderr, count),
        )


def average_pairs(series: Sequence[CosineSeries]) -> Iterator[CosineCell]:
    """Over the pairs of tasks, for each place and part; the error is again over steps."""
    groups: dict[tuple[str, str], list[CosineSeries]] = {}
    for each in series:
        groups.setdefault((each.names["place"], each.names["part"]), []).append(each)
    for (place, part), group in groups.items():
        ratios = [np.sign(np.nanmean(each.log_ratio_N)) * each.log_ratio_N for each in group]
        cosine_PN = np.array([each.cosine_N for each in group])
        mean = CosineSeries(
            {"place": place, "part": part},
            cosine_PN.mean(0),
            np.mean(ratios, axis=0),
            group[0].own_N2,  # not averaged: it belongs to a pair
        )
        share = float((cosine_PN < 0).mean(1).mean())
        for cell in summarise(mean):
            yield replace(cell, negative=share, own=(), p=1.0)


# ------------------------------------------------------------------ advice


def advise(owners: Sequence[CosineCell], places: Sequence[CosineCell]) -> tuple[str, ...]:
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
    none = (
        f"No layer shows a significant conflict (level {LEVEL}, Holm over {len(places)} cells); "
        f"the lowest mean cosine is {cosine}, in {lowest.place} between {pair}."
    )
    parts = sorted((cell for cell in owners if cell.is_conflict), key=lambda cell: cell.mean)
    if not parts:
        return (none,)
    named = ", ".join(f"{cell.owner} ({' and '.join(cell.tasks)})" for cell in parts[:3])
    return none, f"Single parts do: {len(parts)} of {len(owners)} cells, the lowest are {named}."


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
