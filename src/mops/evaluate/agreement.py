"""Do the tasks' gradients agree? Products of gradients become cosines, means, errors and tests.

numpy only. At each measured step a task has two gradients, from two independent batches, so that
the cosine of a task with itself shows how much agreement the noise of batches leaves.

Shapes: N measured steps, T tasks, h two batches of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mops.evaluate.statistics import LEVEL, below_zero, holm

Values = NDArray[np.float64]
Pair = tuple[str, str]
WHOLE = "all"  # the parts of a place together
FEWEST = 2  # steps with a cosine that a standard error needs


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
        found = re.fullmatch(r"layer (\d+)", self.place)
        return int(found[1]) if found else None


@dataclass(frozen=True)
class Measured:
    """The products of all gradients on every owner that is shared and learns."""

    tasks: tuple[str, ...]
    users: Mapping[str, tuple[str, ...]]
    grams: Mapping[str, Values]  # owner -> N T h T h


@dataclass(frozen=True)
class Series:
    """What one pair of tasks shows on some weights, step by step."""

    names: Mapping[str, Any]  # place, part, owner, tasks
    cosine_N: Values
    log_ratio_N: Values
    own_N2: Values


# ------------------------------------------------------------------ step by step


def place_and_part(owner: str) -> tuple[str, str]:
    """`attention/layer03/a+b` -> layer 3, attention; `late1` and the like are their own place."""
    part, *rest = owner.split("/")
    found = re.fullmatch(r"layer(\d+)", rest[0]) if rest else None
    return (f"layer {int(found[1])}" if found else part), part


def owner_series(measured: Measured) -> list[Series]:
    """For each owner and each pair of tasks that pass it."""
    found = []
    for owner, gram in measured.grams.items():
        place, part = place_and_part(owner)
        for pair in combinations(measured.users[owner], 2):
            names = {"place": place, "part": part, "owner": owner, "tasks": pair}
            found.append(series_of(gram, measured.tasks, names))
    return sorted(found, key=height)


def place_series(measured: Measured) -> list[Series]:
    """For each place and pair: all weights there that both pass, as one gradient."""
    sums: dict[tuple[str, Pair], Values] = {}
    for owner, gram in measured.grams.items():
        place, _ = place_and_part(owner)
        for pair in combinations(measured.users[owner], 2):
            sums[place, pair] = sums.get((place, pair), 0.0) + gram
    found = [
        series_of(gram, measured.tasks, {"place": place, "part": WHOLE, "tasks": pair})
        for (place, pair), gram in sums.items()
    ]
    return sorted(found, key=height)


def height(series: Series) -> tuple[int, int]:
    """From the bottom of the encoder to its top, then what has no layer."""
    place = series.names["place"]
    found = re.fullmatch(r"layer (\d+)", place)
    return (1, int(found[1])) if found else (0 if place == "embeddings" else 2, 0)


def series_of(gram_NThTh: Values, tasks: Sequence[str], names: Mapping[str, Any]) -> Series:
    """Each batch of one task with each of the other: batches as large as those of `own`."""
    a, b = (tasks.index(name) for name in names["tasks"])
    norm_NTh = np.sqrt(np.einsum("nthth->nth", gram_NThTh))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine_NThTh = gram_NThTh / (norm_NTh[:, :, :, None, None] * norm_NTh[:, None, None])
        log_NT = np.log(norm_NTh).mean(2)
        log_ratio_N = log_NT[:, a] - log_NT[:, b]
    own_N2 = np.stack([cosine_NThTh[:, task, 0, task, 1] for task in (a, b)], axis=1)
    return Series(names, cosine_NThTh[:, a, :, b].mean((1, 2)), log_ratio_N, own_N2)


# ------------------------------------------------------------------ over the steps


def cells_of(series: Sequence[Series]) -> tuple[CosineCell, ...]:
    """A cell for each series, tested together; none where gradients were zero almost always."""
    cells = [cell for one in series for cell in summarise(one)]
    adjusted = holm([cell.p for cell in cells])
    return tuple(
        replace(cell, p_holm=float(p), is_conflict=bool(p < LEVEL))
        for cell, p in zip(cells, adjusted, strict=True)
    )


def summarise(series: Series) -> list[CosineCell]:
    is_known = np.isfinite(series.cosine_N)
    cosine, count = series.cosine_N[is_known], int(is_known.sum())
    if count < FEWEST:
        return []
    mean, stderr = float(cosine.mean()), float(cosine.std(ddof=1) / np.sqrt(count))
    return [
        CosineCell(
            **series.names,
            mean=mean,
            stderr=stderr,
            negative=float((cosine < 0).mean()),
            norm_ratio=float(np.exp(series.log_ratio_N[is_known].mean())),
            own=tuple(series.own_N2[is_known].mean(0).tolist()),
            steps=count,
            p=below_zero(mean, stderr, count),
        )
    ]


def averages_of(series: Sequence[Series]) -> tuple[CosineCell, ...]:
    """Over the pairs of tasks, for each place and part; the error is again over steps."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in series:
        groups.setdefault((one.names["place"], one.names["part"]), []).append(one)
    cells = [cell for names, group in groups.items() for cell in average(names, group)]
    return tuple(replace(cell, own=(), p=1.0) for cell in cells)


def average(names: tuple[str, str], group: list[Series]) -> list[CosineCell]:
    signs = [np.sign(np.nanmean(one.log_ratio_N)) for one in group]
    ratios = [sign * one.log_ratio_N for sign, one in zip(signs, group, strict=True)]
    cells = summarise(
        Series(
            {"place": names[0], "part": names[1]},
            np.mean([one.cosine_N for one in group], axis=0),
            np.mean(ratios, axis=0),
            np.mean([one.own_N2 for one in group], axis=0),
        )
    )
    share = float(np.mean([np.mean(one.cosine_N < 0) for one in group]))
    return [replace(cell, negative=share) for cell in cells]
