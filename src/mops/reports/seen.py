"""What known encoders were trained on before, and which tasks look like that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mops.config.recipe import Recipe
from mops.model.sources import BUNDLED, BUNDLED_SHA256

# A data set -> words in the names of its files.
SETS = {
    "Quora duplicates": ("quora", "qqp"),
    "SNLI and MultiNLI": ("snli", "mnli", "multinli", "allnli"),
    "the STS benchmark": ("sts", "stsb"),
}
QUORA, NLI, STS = SETS


@dataclass(frozen=True)
class Seen:
    """What a checkpoint has learnt from, as its makers say."""

    names: tuple[str, ...]  # patterns of the last part of a name: small letters, - for _
    what: str
    sets: tuple[str, ...] = ()  # labelled data in it that may be one of the tasks
    sha256: str = ""


KNOWN = (
    # The cards of the models on the hub list the data with its sizes.
    Seen(
        (BUNDLED, "all-minilm-l6-v2", "all-minilm-l12-v2", "all-mpnet-base-v2"),
        "tuned on about a billion sentence pairs that include Quora duplicates, SNLI and MultiNLI",
        (QUORA, NLI),
        BUNDLED_SHA256,
    ),
    # The paraphrase models of sentence-transformers: AllNLI, quora_duplicates and ten more.
    Seen(
        ("paraphrase-minilm-l*-v2", "paraphrase-mpnet-base-v2", "paraphrase-*roberta-*-v2"),
        "tuned on paraphrase pairs that include Quora duplicates, SNLI and MultiNLI",
        (QUORA, NLI),
    ),
    Seen(("stsb-*",), "tuned on the STS benchmark", (STS,)),
    Seen(("quora-*",), "tuned on Quora duplicates", (QUORA,)),
    Seen(("nli-*",), "tuned on SNLI and MultiNLI", (NLI,)),
    Seen(
        (
            "bert-base-cased",
            "bert-base-uncased",
            "bert-large-cased",
            "bert-large-uncased",
            "bert-uncased-l-*-h-*-a-*",
            "distilbert-base-cased",
            "distilbert-base-uncased",
        ),
        "trained on books and the English Wikipedia; on no labelled task",
    ),
    Seen(
        ("roberta-base", "roberta-large", "distilroberta-base"),
        "trained on plain text (books, Wikipedia, news, the web); on no labelled task",
    ),
)


def seen_lines(name: str, sha256: str, recipe: Recipe) -> Iterator[str]:
    """What an encoder was trained on, and which tasks of the recipe may be among it."""
    called = Path(name).name
    known = find_seen(name, sha256)
    if known is None:
        yield f"{called}: what it was trained on is not known here."
        return
    yield f"{called}: {known.what}."
    for task, entry in recipe.tasks.items():
        words = {word for file in entry.files().values() for word in words_in(file)}
        for data in known.sets:
            if words & set(SETS[data]):
                yield (
                    f"The files of {task} look like {data}: it is partly known to {called}, and "
                    "its scores are no clean transfer result."
                )


def find_seen(name: str, sha256: str) -> Seen | None:
    """By the digest of its weights, else by its name."""
    plain = Path(name).name.lower().replace("_", "-")
    by_digest: Mapping[str, Seen] = {one.sha256: one for one in KNOWN if one.sha256}
    named = (one for one in KNOWN if any(fnmatchcase(plain, pattern) for pattern in one.names))
    return by_digest.get(sha256) or next(named, None)


def words_in(file: str) -> list[str]:
    """Of the file's name and of its folder's."""
    path = Path(file)
    return re.findall(
        "[a-z0-9]+", f"{path.parent.name} {path.name}".lower().replace("sts-b", "stsb")
    )
