"""Sizes and options a network is built from: the encoder, the heads, how texts become vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from mops.errors import RecipeError

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

    pair: str = "cross"
    pool: str = "mean"
    features: tuple[str, ...] = ("difference", "product")
    max_length: int = 256
    heads: Mapping[str, HeadShape] = field(default_factory=dict)  # by task; default: linear

    def head(self, task: str) -> HeadShape:
        return self.heads.get(task, HeadShape())

    def texts_apart(self, is_pair: bool) -> bool:
        """Whether a row of such a task is two sequences."""
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
