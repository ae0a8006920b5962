"""Sizes: weights of each part, width of a head's input, FLOPs of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from mops.errors import PlanError
from mops.plans.routes import AdapterSite, Route
from mops.plans.rows import GATE, ON_TOP, Addition, Feed, SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task


def dense(n_in: int, n_out: int) -> int:
    return n_in * n_out + n_out


# ------------------------------------------------------------------ the encoder

TRUNK_SIZES: dict[str, Callable[[EncoderShape], int]] = {
    "embeddings": lambda e: (e.words + e.positions + e.types + 2) * e.width,
    "attention": lambda e: 4 * dense(e.width, e.width),
    "feedforward": lambda e: dense(e.width, e.inner) + dense(e.inner, e.width),
    "norms": lambda e: 2 * 2 * e.width,
    "pooler": lambda e: dense(e.width, e.width),
}


def late_widths(plan: SharingPlan, encoder: EncoderShape) -> tuple[int, ...]:
    """The width of the pooled vector and of each late layer's output."""
    return (encoder.width, *(row.width or encoder.width for row in plan.late))


# ------------------------------------------------------------------ additions

PAL_SIZE = 204 / 768  # relative to the encoder's width, as in Stickland and Murray 2019
LAYER_HEADS, TOP_HEADS = 6, 12
DEFAULT_SIZES = {"lora": 8, "bottleneck": 64}


def heads_at(site: str) -> int:
    """The number of attention heads of a projected attention layer."""
    return TOP_HEADS if site == ON_TOP else LAYER_HEADS


def addition_size(addition: Addition, encoder: EncoderShape) -> int:
    """The given size, or the default of its kind for an encoder of this width."""
    if addition.kind != "pal":
        return addition.size or DEFAULT_SIZES.get(addition.kind, 0)
    heads = max(heads_at(site) for site in addition.sites)  # 6 divides 12
    size = addition.size or max(1, round(PAL_SIZE * encoder.width / heads)) * heads
    if size % heads:
        raise PlanError(
            f"addition {addition.name!r}: its size {size} cannot be divided by its {heads} heads; "
            f"take {heads * max(1, round(size / heads))}"
        )
    return size


def site_width(site: str, encoder: EncoderShape) -> int:
    """The width of the vectors to which an addition is added at this site."""
    widths = {"in_attention": 3 * encoder.width, "in_feedforward": encoder.inner}
    return widths.get(site, encoder.width)


ADDITION_SIZES: dict[tuple[str, str], Callable[[int, int, int], int]] = {  # width, size, site
    ("pal", "down"): lambda width, size, site: dense(width, size),
    ("pal", "attend"): lambda width, size, site: dense(size, 3 * size),
    ("pal", "up"): lambda width, size, site: dense(size, width),
    ("bottleneck", "down"): lambda width, size, site: dense(width, size),
    ("bottleneck", "up"): lambda width, size, site: dense(size, width),
    ("lora", "down"): lambda width, size, site: 2 * width * size,  # for queries and values
    ("lora", "up"): lambda width, size, site: 2 * size * width,
    ("task_embedding", "vector"): lambda width, size, site: site,
}


def adapter_sizes(adapter: AdapterSite, encoder: EncoderShape) -> dict[str, int]:
    """Owner -> weights, for the parts of an addition at one site."""
    kind, site = adapter.addition.kind, site_width(adapter.site, encoder)
    size = addition_size(adapter.addition, encoder)
    return {
        owner: 1 if part == GATE else ADDITION_SIZES[kind, part](encoder.width, size, site)
        for part, owner in adapter.parts.items()
    }


# ------------------------------------------------------------------ heads


@dataclass(frozen=True)
class HeadInput:
    """The input of a head: the task's own vectors, and the outputs of tasks that feed it."""

    width: int  # of one vector
    vectors: int
    fed: tuple[int, ...] = ()  # the width of each feed
    combine: str = "concat"

    @cached_property
    def fields(self) -> tuple[int, ...]:
        return (self.vectors * self.width, *self.fed)

    @property
    def wide(self) -> int:
        """The width after all fields are combined into one vector."""
        return self.width if self.combine == "attention" else sum(self.fields)

    @property
    def size(self) -> int:
        """The weights that combine the fields: a projection for each, and a query."""
        if self.combine != "attention":
            return 0
        return sum(dense(width, self.width) for width in self.fields) + self.width


def head_input(
    task: Task, feeds: Sequence[Feed], tasks: Sequence[Task], reading: Reading, width: int
) -> HeadInput:
    sources, fed = {other.name: other for other in tasks}, []
    for feed in feeds:
        source = sources[feed.source]
        # A single-text task answers each text of a pair that is read as two sequences.
        texts = 2 if reading.texts_apart(task.is_pair) and not source.is_pair else 1
        is_hidden = feed.what == "hidden"
        fed.append(texts * (reading.head(source.name).width if is_hidden else source.outputs))
    combine = feeds[0].combine if feeds else "concat"
    return HeadInput(width, reading.vectors(task.is_pair), tuple(fed), combine)


def head_size(task: Task, reading: Reading, inputs: HeadInput) -> int:
    head = reading.head(task.name)
    size = 2 * inputs.width if head.norm else 0
    if head.kind == "cosine":
        size += dense(inputs.width, inputs.width) if head.project else 0
        return size + (2 if head.scale == "learned" else 0)
    hidden = [head.width] * head.depth if head.kind == "mlp" else []
    widths = [inputs.wide, *hidden, task.outputs]
    return size + inputs.size + sum(map(dense, widths, widths[1:]))


# ------------------------------------------------------------------ FLOPs


def forward_flops(route: Route, encoder: EncoderShape, length: int) -> int:
    """Multiplications and additions of one sequence through one route of the encoder."""
    matrices = 4 * encoder.width**2 + 2 * encoder.width * encoder.inner
    attention = 2 * length * encoder.width  # scores and weighted sum, per token
    per_token = encoder.depth * (matrices + attention)
    for adapter in (adapter for adapters in route.adapters for adapter in adapters):
        per_token += sum(adapter_sizes(adapter, encoder).values())
        if adapter.addition.kind == "pal":
            per_token += 2 * length * addition_size(adapter.addition, encoder)
    return 2 * length * per_token
