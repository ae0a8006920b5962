"""Candidates and trials: what a survey trains, named by its content. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from mops.data.material import digest
from mops.encoder.sources import find_encoder
from mops.recipes import Recipe
from mops.records import package_version

# Settings of a training that do not change what is trained.
UNTOLD = ("threads", "save_steps", "report_to")
ID_LENGTH = 12


@dataclass(frozen=True)
class Candidate:
    """One setting of a survey; it is trained once for every seed."""

    name: str  # what tells it from the others: `hybrid:3`, `late:SIS, learning_rate=0.001`
    settings: Mapping[str, Any]  # what varies in the survey: dotted key of the recipe -> value
    recipe: Recipe

    def trial(self, seed: int) -> Trial:
        training = self.recipe.training.model_copy(update={"seed": seed})
        return Trial(self, seed, self.recipe.model_copy(update={"training": training}))


@dataclass(frozen=True)
class Trial:
    """One training of a candidate."""

    candidate: Candidate
    seed: int
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.candidate.name}, seed {self.seed}"

    @cached_property
    def id(self) -> str:
        """Follows from the recipe, the content of its data and encoder, and the version."""
        return content_id(self.recipe)


def content_id(recipe: Recipe) -> str:
    """The same for the same content, wherever its files lie."""
    data = recipe.without(*UNTOLD).to_data()
    for name, entry in recipe.tasks.items():
        data["tasks"][name] |= {split: sha_of(file) for split, file in entry.files().items()}
    data["encoder"] = encoder_digest(recipe.encoder)
    text = json.dumps([package_version("mops"), data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


@lru_cache(maxsize=64)
def sha_of(file: str) -> str:
    return digest(file) or file  # a data set on a hub is its name


@lru_cache(maxsize=8)
def encoder_digest(name: str) -> str:
    return find_encoder(name).digest
