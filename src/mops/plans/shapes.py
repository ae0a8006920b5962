"""The sizes and forms a network is built from: of the encoder, of the heads, of reading a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mops.errors import RecipeError

POOLS = ("pooler", "cls", "mean", "sum")
FEATURES = {"sum": 1, "concat": 2, "product": 1, "difference": 1}  # width in vectors of one text
HEADS = ("linear", "mlp", "cosine")
COSINE_SCALES = ("half", "relu", "learned")  # (cos+1)/2, ReLU(cos), a cos + b; then onto the range
STRICT = {"extra": "forbid"}  # unknown keys from outside are errors
ACTIVATIONS = ("relu", "gelu", "tanh")


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """What config.json says of a BERT-family encoder."""

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
        """How many tokens a sequence may have."""
        return self.positions - self.first_position


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """A head: from the vector of a row to the task's outputs. The last layer is always linear."""

    __pydantic_config__ = STRICT
    kind: str = "linear"
    depth: int = 1  # hidden layers of an mlp
    width: int = 256
    activation: str = "relu"
    norm: bool = False  # LayerNorm on the pooled vector
    project: bool = False  # cosine: a linear layer before it
    scale: str = "half"  # cosine: one of COSINE_SCALES

    def __post_init__(self) -> None:
        for key, value, allowed in (
            ("kind", self.kind, HEADS),
            ("activation", self.activation, ACTIVATIONS),
            ("scale", self.scale, COSINE_SCALES),
        ):
            if value not in allowed:
                raise RecipeError(f"head {key} is {value!r}; allowed: {', '.join(allowed)}")
        if self.depth < 1 or self.width < 1:
            raise RecipeError("a head's depth and width must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How texts become the vector that a head sees."""

    pair: str = "cross"
    pool: str = "mean"
    features: tuple[str, ...] = ("difference", "product")
    max_length: int = 256
    heads: Mapping[str, HeadShape] = field(default_factory=dict)  # by task; else linear

    def head(self, task: str) -> HeadShape:
        return self.heads.get(task, HeadShape())

    def texts_apart(self, is_pair: bool) -> bool:
        """Whether a row of such a task is two sequences."""
        return is_pair and self.pair == "bi"

    def vectors(self, is_pair: bool) -> int:
        """How many pooled vectors wide the head's input is."""
        if not self.texts_apart(is_pair):
            return 1
        return sum(FEATURES[name] for name in self.features)


def check_length(reading: Reading, encoder: EncoderShape) -> None:
    """Refuse sequences that the encoder has no positions for."""
    if reading.max_length > encoder.longest:
        raise RecipeError(
            f"training.max_length is {reading.max_length}, the encoder takes at most "
            f"{encoder.longest} tokens"
        )
