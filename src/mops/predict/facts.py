"""What config.json of a bundle says about its training, beside the shapes of the network."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mops.errors import EncoderError
from mops.yaml_io import to_value

NotNegative = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Scores = dict[str, dict[str, dict[str, float]]]  # task -> split -> metric


class Known(BaseModel):
    """Further keys, as of newer versions, stay as they are."""

    model_config = ConfigDict(strict=True, extra="allow")


class SplitFacts(Known):
    """The data files of a split, and how many of their rows can be used."""

    files: list[str]
    sha256: list[str]
    bytes: list[NotNegative] = []  # older versions did not count them
    rows: NotNegative


class TrainingFacts(Known):
    steps: NotNegative
    seconds: float


class EstimateFacts(Known):
    mean: float
    low: float
    high: float


class GapFacts(Known):
    """A gap that `mops probe` found."""

    task: str
    answer: str
    contrast: str
    groups: list[str]
    gap: EstimateFacts
    change: EstimateFacts | None = None


class GraphFacts(Known):
    """What the export has measured."""

    weights: str = ""
    difference: float = 0.0
    scores: dict[str, dict[str, list[float]]] = {}  # task -> score -> before, after


class Facts(Known):
    """Each is missing in the file where it is not known."""

    encoder_name: str = ""
    encoder_sha256: str = ""
    encoder_licence: str = ""
    base_sha256: str = ""
    seed: Seed = 0
    data: dict[str, dict[str, SplitFacts]] = {}  # task -> split
    scores: Scores = {}
    main_scores: dict[str, str] = {}
    untrained: list[str] = []
    warnings: list[str] = []
    training: TrainingFacts | None = None
    probe: list[GapFacts] = []
    onnx: GraphFacts = GraphFacts()


def check_facts(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same configuration; refused unless facts have their types and numbers are finite."""
    try:
        json.dumps(config, allow_nan=False)
    except ValueError as cause:
        raise EncoderError(f"{where}: a number is not finite; fetch the model again") from cause
    facts = to_value(Facts, dict(config), where=where, error=EncoderError)
    return facts.model_dump(exclude_unset=True)
