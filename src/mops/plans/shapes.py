"""Shapes and sizes a network is built from: the encoder, the heads, how texts become vectors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field

from mops.errors import RecipeError
from mops.tasks import Task

Activation = Literal["relu", "gelu", "tanh"]
EncoderActivation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"]
Pool = Literal["pooler", "cls", "mean", "sum"]
Feature = Literal["sum", "concat", "product", "difference"]
HeadKind = Literal["linear", "mlp", "cosine"]
CosineScale = Literal["half", "relu", "learned"]  # (cos+1)/2, ReLU(cos), a cos + b; then the range
FEATURES = {"sum": 1, "concat": 2, "product": 1, "difference": 1}  # width in vectors of one text
# Settings from outside: unknown keys are errors, numbers are finite.
STRICT: Any = {"extra": "forbid", "allow_inf_nan": False}
# Far above any encoder, and small enough that no count of weights overflows.
MOST_LAYERS, MOST_SIZE, MOST_ROWS = 500, 2**17, 2**24
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
SizeOrZero = Annotated[int, Field(ge=0, le=MOST_SIZE)]
Rows = Annotated[int, Field(ge=1, le=MOST_ROWS)]  # of an embedding


class Scope(NamedTuple):
    """What a token sees in one layer, and how its place is marked."""

    reach: int = 0  # tokens to each side; 0: the whole text
    rotary: float = 0.0  # base of the angles by which queries and keys are turned; 0: none


GLOBAL = Scope()
Norms = Mapping[str, tuple[str, ...]]  # place in a layer -> the norm there: one, or none
NORMS_LAST: Norms = {  # on the sums, as in BERT
    "before_attention": (),
    "after_attention": ("attention",),
    "before_feedforward": (),
    "after_feedforward": ("feedforward",),
}


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """The sizes of a BERT-family encoder, from its config.json."""

    __pydantic_config__ = STRICT
    family: str
    depth: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    width: Size
    heads: Size
    inner: Size
    words: Rows
    positions: Rows
    types: SizeOrZero = 2  # 0: no such embedding (DistilBERT)
    first_position: SizeOrZero = 0  # RoBERTa: padding_idx + 1
    epsilon: Annotated[float, Field(ge=0, le=1)] = 1e-12
    activation: EncoderActivation = "gelu"
    embedding: SizeOrZero = 0  # width of the embeddings if a matrix takes them to `width` (ELECTRA)
    has_bias: bool = True  # in linear layers and norms
    is_gated: bool = False  # two inner vectors a and b give GELU(a) b (Shazeer 2020)
    norms_first: bool = False  # norms before attention and feed-forward, one after the last layer
    rotary: Annotated[float, Field(ge=0)] = 0.0  # base of rotary positions; 0: position embeddings
    local_rotary: Annotated[float, Field(ge=0)] = 0.0  # the same in local layers
    # Tokens that a local layer sees to each side; 0: no layer is local.
    reach: SizeOrZero = 0
    global_every: Size = 1  # each n-th layer, from the first on, sees the whole text

    @property
    def longest(self) -> int:
        """The maximum number of tokens in a sequence."""
        return self.positions - self.first_position

    @property
    def embedded(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width

    @property
    def inner_vectors(self) -> int:
        """The width of the first product of a feed-forward."""
        return 2 * self.inner if self.is_gated else self.inner

    def scope(self, layer: int) -> Scope:
        """What the attention of a layer sees."""
        is_local = self.reach and layer % self.global_every
        return Scope(self.reach, self.local_rotary) if is_local else Scope(0, self.rotary)

    def norms(self, layer: int) -> Norms:
        """Where a layer normalises."""
        if not self.norms_first:
            return NORMS_LAST
        return {
            "before_attention": ("attention",) if layer else (),  # embeddings are normalised
            "after_attention": (),
            "before_feedforward": ("feedforward",),
            "after_feedforward": ("final",) if layer == self.depth - 1 else (),
        }

    def norm_names(self, layers: Iterable[int]) -> tuple[str, ...]:
        """The norms of an owner that serves these layers."""
        names = chain(*(chain(*self.norms(layer).values()) for layer in layers))
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """A head: from the vector of a row to the task's outputs. The last layer is always linear."""

    __pydantic_config__ = STRICT
    kind: HeadKind = "linear"
    depth: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1  # hidden layers of an mlp
    width: Size = 256
    activation: Activation = "relu"
    norm: bool = False  # LayerNorm on the pooled vector
    project: bool = False  # cosine: a linear layer before it
    scale: CosineScale = "half"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How texts become the vector that a head receives."""

    __pydantic_config__ = STRICT
    pair: str | Mapping[str, str] = "cross"  # of all tasks, or by task
    pool: Pool = "mean"
    features: tuple[Feature, ...] = ("difference", "product")
    max_length: Size = 256
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


class Window(NamedTuple):
    """A part of a text: the tokens that it computes, and around them what they see."""

    first: int
    own_first: int
    own_end: int
    end: int


@lru_cache(maxsize=8192)
def cut_windows(length: int, reach: int) -> tuple[Window, ...]:
    """The windows of a text; up to six reaches one window is less work than several."""
    if not reach or length <= 6 * reach:
        return (Window(0, 0, length, length),)
    ends = ((start, min(start + 2 * reach, length)) for start in range(0, length, 2 * reach))
    return tuple(Window(max(0, a - reach), a, b, min(b + reach, length)) for a, b in ends)


def dense(n_in: int, n_out: int, has_bias: bool = True) -> int:
    """The number of weights of a linear layer."""
    return n_in * n_out + n_out * has_bias


def embeddings_size(shape: EncoderShape) -> int:
    vectors = shape.words + shape.types + (0 if shape.rotary else shape.positions)
    project = dense(shape.embedding, shape.width) if shape.embedding else 0
    return (vectors + 1 + shape.has_bias) * shape.embedded + project


Layers = tuple[int, ...]  # that an owner serves
TRUNK_SIZES: dict[str, Callable[[EncoderShape, Layers], int]] = {
    "embeddings": lambda e, layers: embeddings_size(e),
    "attention": lambda e, layers: 4 * dense(e.width, e.width, e.has_bias),
    "feedforward": lambda e, layers: (
        dense(e.width, e.inner_vectors, e.has_bias) + dense(e.inner, e.width, e.has_bias)
    ),
    "norms": lambda e, layers: len(e.norm_names(layers)) * (1 + e.has_bias) * e.width,
    "pooler": lambda e, layers: dense(e.width, e.width),
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
