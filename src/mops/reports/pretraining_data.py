"""Which data an encoder was pretrained on, and which tasks may be among it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe
from mops.model.sources import BUNDLED_SHA256
from mops.yaml_io import parse_yaml


def describe_pretraining(name: str, sha256: str, recipe: Recipe) -> Iterator[str]:
    """Sentences about an encoder's training data and the tasks that may overlap with it."""
    short, encoder = Path(name).name, find_encoder(name, sha256)
    if encoder is None:
        yield f"{short}: its pretraining data is not known to mops."
        return
    yield f"{short} was trained on {encoder['training']}."
    for task, entry in recipe.tasks.items():
        words = {word for file in entry.files().values() for word in words_in_path(file)}
        for data_set in encoder.get("data_sets", ()):
            if words & set(read_known()["data_sets"][data_set]):
                yield (
                    f"The files of {task} look like {data_set}, which {short} was trained on: its "
                    "scores are not a clean transfer result."
                )


def find_encoder(name: str, sha256: str) -> Mapping[str, Any] | None:
    """By the digest of its weights, otherwise by its name."""
    plain = Path(name).name.lower().replace("_", "-")
    encoders: list[Mapping[str, Any]] = read_known()["encoders"]
    if sha256 == BUNDLED_SHA256:
        return next(one for one in encoders if one.get("is_bundled"))
    return next((o for o in encoders if any(fnmatchcase(plain, p) for p in o["names"])), None)


@cache
def read_known() -> Mapping[str, Any]:
    text = Path(__file__).with_suffix(".yaml").read_text("utf-8")
    return dict(parse_yaml(text))


def words_in_path(file: str) -> list[str]:
    """Words in the names of the file and its folder."""
    path = Path(file)
    names = f"{path.parent.name} {path.name}".lower().replace("sts-b", "stsb")
    return re.findall("[a-z0-9]+", names)
