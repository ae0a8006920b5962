"""Which data known encoders were pretrained on, and which tasks may be among it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mops.config.recipe import Recipe
from mops.model.sources import BUNDLED, BUNDLED_SHA256

# Data set -> words in the names of its files.
DATA_SETS = {
    "Quora duplicates": ("quora", "qqp"),
    "SNLI and MultiNLI": ("snli", "mnli", "multinli", "allnli"),
    "the STS benchmark": ("sts", "stsb"),
}
QUORA, NLI, STS = DATA_SETS


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint was trained on, according to its authors."""

    names: tuple[str, ...]  # patterns for the last part of a name: lower case, - for _
    training: str
    data_sets: tuple[str, ...] = ()  # labelled data that may be one of the tasks
    sha256: str = ""


CHECKPOINTS = (
    # The model cards on the hub list the data with its sizes.
    Checkpoint(
        (BUNDLED, "all-minilm-l6-v2", "all-minilm-l12-v2", "all-mpnet-base-v2"),
        "about a billion sentence pairs, including Quora duplicates, SNLI and MultiNLI",
        (QUORA, NLI),
        BUNDLED_SHA256,
    ),
    # The paraphrase models of sentence-transformers: AllNLI, quora_duplicates and ten more.
    Checkpoint(
        ("paraphrase-minilm-l*-v2", "paraphrase-mpnet-base-v2", "paraphrase-*roberta-*-v2"),
        "paraphrase pairs, including Quora duplicates, SNLI and MultiNLI",
        (QUORA, NLI),
    ),
    Checkpoint(("stsb-*",), "the STS benchmark", (STS,)),
    Checkpoint(("quora-*",), "Quora duplicates", (QUORA,)),
    Checkpoint(("nli-*",), "SNLI and MultiNLI", (NLI,)),
    Checkpoint(
        (
            "bert-base-cased",
            "bert-base-uncased",
            "bert-large-cased",
            "bert-large-uncased",
            "bert-uncased-l-*-h-*-a-*",
            "distilbert-base-cased",
            "distilbert-base-uncased",
        ),
        "books and the English Wikipedia, and on no labelled task",
    ),
    Checkpoint(
        ("roberta-base", "roberta-large", "distilroberta-base"),
        "plain text (books, Wikipedia, news, the web), and on no labelled task",
    ),
)


def describe_pretraining(name: str, sha256: str, recipe: Recipe) -> Iterator[str]:
    """Sentences about an encoder's training data and the tasks that may overlap with it."""
    short = Path(name).name
    checkpoint = find_checkpoint(name, sha256)
    if checkpoint is None:
        yield f"{short}: its pretraining data is not known to mops."
        return
    yield f"{short} was trained on {checkpoint.training}."
    for task, entry in recipe.tasks.items():
        words = {word for file in entry.files().values() for word in words_in_path(file)}
        for data_set in checkpoint.data_sets:
            if words & set(DATA_SETS[data_set]):
                yield (
                    f"The files of {task} look like {data_set}, which {short} was trained on: its "
                    "scores are not a clean transfer result."
                )


def find_checkpoint(name: str, sha256: str) -> Checkpoint | None:
    """By the digest of its weights, otherwise by its name."""
    plain = Path(name).name.lower().replace("_", "-")
    by_digest = {one.sha256: one for one in CHECKPOINTS if one.sha256}
    named = (one for one in CHECKPOINTS if any(fnmatchcase(plain, p) for p in one.names))
    return by_digest.get(sha256) or next(named, None)


def words_in_path(file: str) -> list[str]:
    """Words in the names of the file and its folder."""
    path = Path(file)
    names = f"{path.parent.name} {path.name}".lower().replace("sts-b", "stsb")
    return re.findall("[a-z0-9]+", names)
