"""Shapes and sizes a network is built from: the encoder, the heads, how texts become vectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from mops.errors import RecipeError
from mops.tasks import Task

Activation = Literal["relu", "gelu", "tanh"]
Pool = Literal["pooler", "cls", "mean", "sum"]
Feature = Literal["sum", "concat", "product", "difference"]
HeadKind = Literal["linear", "mlp", "cosine"]
CosineScale = Literal["half", "relu", "learned"]  # (cos+1)/2, ReLU(cos), a cos + b; then the range
FEATURES = {"sum": 1, "concat": 2, "product": 1, "difference": 1}  # width in vectors of one text
# Settings from outside: unknown keys are errors, numbers are finite.
STRICT: Any = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """The sizes of a BERT-family encoder, from its config.json."""

    family: str
    depth: int
    width: int
    heads: int
    inner: int
    words: int
    positions: int
    types: int = 2  # 0: no token-type embedding (DistilBERT)
    first_position: int = 0  # RoBERTa counts from padding_idx + 1
    epsilon: float = 1e-12
    activation: str = "gelu"

    @property
    def longest(self) -> int:
        """The maximum number of tokens in a sequence."""
        return self.positions - self.first_position


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """A head: from the vector of a row to the task's outputs. The last layer is always linear."""

    __pydantic_config__ = STRICT
    kind: HeadKind = "linear"
    depth: Annotated[int, Field(ge=1)] = 1  # hidden layers of an mlp
    width: Annotated[int, Field(ge=1)] = 256
    activation: Activation = "relu"
    norm: bool = False  # LayerNorm on the pooled vector
    project: bool = False  # cosine: a linear layer before it
    scale: CosineScale = "half"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How texts become the vector that a head receives."""

    pair: str | Mapping[str, str] = "cross"  # of all tasks, or by task
    pool: str = "mean"
    features: tuple[str, ...] = ("difference", "product")
    max_length: int = 256
    heads: Mapping[str, HeadShape] = field(default_factory=dict)  # by task; default: linear

    def head(self, task: str) -> HeadShape:
        return self.heads.get(task, HeadShape())

    def of(self, task: str) -> Self:
        """How the rows of one task are read."""
        if isinstance(self.pair, str):
            return self
        return replace(self, pair=self.pair.get(task, "cross"))

    def texts_apart(self, is_pair: bool) -> bool:
        """Whether a row of such a task is two sequences."""
        assert isinstance(self.pair, str), "choose the task first, with `of`"
        return is_pair and self.pair == "bi"

    def vectors(self, is_pair: bool) -> int:
        """The width of the head's input in pooled vectors."""
        if not self.texts_apart(is_pair):
            return 1
        return sum(FEATURES[name] for name in self.features)


def check_length(reading: Reading, encoder: EncoderShape) -> None:
    """Refuse a max_length for which the encoder has no position embeddings."""
    if reading.max_length > encoder.longest:
        raise RecipeError(
            f"training.max_length is {reading.max_length}, the encoder accepts at most "
            f"{encoder.longest} tokens"
        )


def dense(n_in: int, n_out: int) -> int:
    """The number of weights of a linear layer."""
    return n_in * n_out + n_out


TRUNK_SIZES: dict[str, Callable[[EncoderShape], int]] = {
    "embeddings": lambda e: (e.words + e.positions + e.types + 2) * e.width,
    "attention": lambda e: 4 * dense(e.width, e.width),
    "feedforward": lambda e: dense(e.width, e.inner) + dense(e.inner, e.width),
    "norms": lambda e: 2 * 2 * e.width,
    "pooler": lambda e: dense(e.width, e.width),
}


@dataclass(frozen=True)
class HeadInput:
    """The input of a head: the task's own vectors, and the outputs of tasks that feed it."""

    width: int  # of one vector
    fields: tuple[int, ...]  # the width of the task's own vectors, then of each feed
    combine: str = "concat"

    @property
    def wide(self) -> int:
        """The width after all fields are combined into one vector."""
        return self.width if self.combine == "attention" else sum(self.fields)


def head_size(task: Task, reading: Reading, inputs: HeadInput) -> int:
    """The number of weights of a task's head."""
    head = reading.head(task.name)
    size = 2 * inputs.width if head.norm else 0
    if head.kind == "cosine":
        size += dense(inputs.width, inputs.width) if head.project else 0
        return size + (2 if head.scale == "learned" else 0)
    hidden = [head.width] * head.depth if head.kind == "mlp" else []
    widths = [inputs.wide, *hidden, task.outputs]
    if inputs.combine == "attention":  # a projection for each field, and a query
        size += sum(dense(width, inputs.width) for width in inputs.fields) + inputs.width
    return size + sum(map(dense, widths, widths[1:]))
