"""Answers beside the truth: the recommended candidate and the baseline, task by task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mops.reports.figures.agreement import draw_agreement
from mops.reports.figures.answers import Answered, answers_of
from mops.reports.figures.calibration import draw_reliability
from mops.reports.figures.colours import Look, looks, shortened
from mops.reports.figures.confusion import LONGEST, draw_confusion
from mops.reports.figures.figure import Drawn, width_of
from mops.reports.figures.tiles import LEFT, draw_tiles
from mops.reports.material import Material

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQUARE = 178.0  # as high as one of two charts is wide


@dataclass(frozen=True)
class Kind:
    """A way to show answers."""

    group: str
    title: str
    caption: str
    unit: str
    draw: Callable[[Axes, Answered, Look], None]


CONFUSION = Kind(
    "answers",
    "Which classes are taken for which",
    "A row holds the examples of one true class, its cells where they went: shares of the row.",
    "answer",
    draw_confusion,
)
AGREEMENT = Kind(
    "answers",
    "Answered values against true ones",
    "True values to the right, answers upwards; the darker, the more rows. On the line both are "
    "the same.",
    "true value",
    draw_agreement,
)
CALIBRATION = Kind(
    "calibration",
    "How sure is how right",
    "How often answers are right, by how sure they are; on the line a model knows what it knows. "
    "At the foot of each bar its number of rows; the error is the mean distance to the line.",
    "confidence",
    draw_reliability,
)


def draw_answers(material: Material) -> Iterator[Drawn]:
    """Confusion of classes or values against values; then calibration, where it can be told."""
    tasks = list(answers_of(material))
    for found in tasks:
        kind = AGREEMENT if found[0].task.is_similarity else CONFUSION
        yield draw_kind(material, kind, found)
    for found in tasks:
        sure = [one for one in found if one.confidence is not None]
        if sure:
            yield draw_kind(material, CALIBRATION, sure)


def draw_kind(material: Material, kind: Kind, found: Sequence[Answered]) -> Drawn:
    seen = looks(material)
    task, facts = found[0].task, found[0].trial.facts
    words = [shortened(label, LONGEST) for label in task.labels] if kind is CONFUSION else []
    figure = draw_tiles(
        [seen[one.trial.candidate].name for one in found],
        lambda axes, n: kind.draw(axes, found[n], seen[found[n].trial.candidate]),
        unit=kind.unit,
        notes=[one.scored for one in found],
        tall=SQUARE,
        left=max(LEFT, *(10 + width_of(word) for word in ("", *words))),
    )
    caption = f"{kind.caption} Seed {facts.seed}, {len(found[0].targets):,} rows."
    return Drawn(figure, f"{kind.group}-{task.name}", kind.title, caption, kind.group, task.name)
