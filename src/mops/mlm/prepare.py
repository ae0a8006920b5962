"""Before the first step: data read, texts chosen, encoder found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from mops.data.material import Material, read_material
from mops.encoder.sources import EncoderSource, find_encoder
from mops.fit.machine import prepare_machine
from mops.fit.trackers import refuse_missing_trackers
from mops.mlm.corpus import Corpus, build_corpus
from mops.mlm.masking import Vocabulary, read_vocabulary
from mops.mlm.settings import Settings
from mops.mlm.texts import Texts, gather_texts
from mops.shapes import Reading, check_length


@dataclass(frozen=True)
class Prepared:
    """All that a pretraining is made of."""

    settings: Settings
    material: Material
    texts: Texts
    source: EncoderSource
    vocabulary: Vocabulary
    reading: Reading
    device: str

    @cached_property
    def key(self) -> str:
        """Names settings, data and encoder: what an interrupted run must go on with."""
        parts = [self.settings.to_data(), dict(self.material.digests), self.source.digest]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def corpus(self) -> Corpus:
        return build_corpus(self.texts, self.source.tokenizer, self.vocabulary, self.reading)


def prepare(settings: Settings, tell: Callable[[str], None]) -> Prepared:
    recipe = settings.recipe
    device = prepare_machine(recipe.training)
    refuse_missing_trackers(recipe.training)
    source = find_encoder(recipe.encoder)
    reading = Reading(max_length=recipe.training.max_length)
    check_length(reading, source.shape)
    vocabulary = read_vocabulary(source.tokenizer, source.shape.words)
    tell("reading data")
    material = read_material(recipe)
    return Prepared(settings, material, gather_texts(material), source, vocabulary, reading, device)
