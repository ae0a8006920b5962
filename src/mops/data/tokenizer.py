"""Loads the tokenizer of a folder, after a check of its parts.

The library runs what tokenizer.json says: a regular expression can take forever or panic, a broken
table of characters aborts the process. So only parts that BERT-like encoders use are loaded.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from mops.errors import EncoderError
from mops.plans.shapes import EncoderShape
from mops.yaml_io import read_json, read_text

PARTS = {  # key of tokenizer.json -> the types that are loaded there
    "model": ("WordPiece", "BPE", "Unigram", "WordLevel"),
    "normalizer": (
        "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
        "Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace",
        "Punctuation", "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
    ),
    "post_processor": (
        "BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing",
    ),
    "decoder": (
        "BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Sequence",
        "Strip", "WordPiece",
    ),
}  # fmt: skip
INNER = ("normalizers", "pretokenizers", "processors", "decoders")  # of a Sequence
KNOWN_REGEX = (" {2,}", r"\s+", r"\d")  # each takes linear time
LONGEST_ADDED = 16  # characters that `Prepend` puts before a text
LONGEST_TEXT = 64  # bytes that `Precompiled` writes for a letter; SentencePiece's tables have 33
MOST_PARTS = 32  # of a sequence
MOST_MARKS = 8  # special tokens of a template
ONCE = ("ByteLevel", "Precompiled", "Prepend", "TemplateProcessing")  # twice, texts grow twice


def load_tokenizer(folder: Path, shape: EncoderShape) -> Tokenizer:
    """The tokenizer of an encoder folder or a bundle, without its own padding and truncation."""
    from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
    from tokenizers.models import WordPiece

    fast, vocabulary = folder / "tokenizer.json", folder / "vocab.txt"
    if fast.exists():
        facts = read_json(fast, EncoderError)
        with panics_as_errors(f"{fast} cannot be read"):
            for problem in find_problems(facts):
                raise EncoderError(f"{fast}: {problem}; save the tokenizer of a BERT-like encoder")
        # The bundled MiniLM's file pads and truncates to 128; here the recipe decides about both.
        # The dropout of a BPE would make predictions random.
        model = facts["model"] | ({"dropout": None} if "dropout" in facts["model"] else {})
        decided = {"padding": None, "truncation": None, "model": model}
        text = json.dumps(facts | decided, ensure_ascii=False)
    elif vocabulary.exists():
        read_text(vocabulary, EncoderError)
        config = folder / "tokenizer_config.json"
        settings = read_json(config, EncoderError) if config.exists() else {}
        is_lower_case = bool(settings.get("do_lower_case", True))  # as BERT's uncased models
        words = WordPiece.read_file(str(vocabulary))
        text = BertWordPieceTokenizer(words, lowercase=is_lower_case).to_str()
    else:
        raise EncoderError(f"{folder} has neither tokenizer.json nor vocab.txt; add one of them")
    with panics_as_errors(f"the tokenizer of {folder} cannot be read"):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        check_numbers(tokenizer, shape, folder)
    return tokenizer


@contextmanager
def panics_as_errors(what: str) -> Iterator[None]:
    """One line for what the library raises: plain Exception, and panics, which are not one."""
    try:
        yield
    except EncoderError:
        raise
    except BaseException as cause:
        if isinstance(cause, Exception) or type(cause).__name__ == "PanicException":
            reason = " ".join(str(cause).split())[:160]
            raise EncoderError(f"{what}: {reason}; fetch its files again") from cause
        raise


def find_problems(facts: Mapping[str, Any]) -> Iterator[str]:
    """What is not loaded of a tokenizer.json."""
    if not isinstance(facts.get("model"), dict):
        yield f"model has the type {facts.get('model')!r}; allowed: {', '.join(PARTS['model'])}"
    for key, allowed in PARTS.items():
        parts = list(parts_of(facts.get(key)))
        kinds = [part.get("type") if isinstance(part, dict) else part for part in parts]
        if len(parts) > MOST_PARTS:
            yield f"{key} has {len(parts):,} parts; allowed: {MOST_PARTS}"
        for kind, part in zip(kinds, parts, strict=True):
            if not (key == "model" and kind is None):  # older files leave it out
                if kind not in allowed:
                    yield f"{key} has the type {kind!r}; allowed: {', '.join(allowed)}"
                yield from part_problems(str(kind), part)
        yield from (f"{key} has {kind} twice" for kind in ONCE if kinds.count(kind) > 1)


def parts_of(part: Any) -> Iterator[Any]:
    """A part and, of a sequence, those within it."""
    if part is None:
        return
    yield part
    for key in INNER if isinstance(part, dict) else ():
        for inner in part.get(key) or ():
            yield from parts_of(inner)


def part_problems(kind: str, part: Mapping[str, Any]) -> Iterator[str]:
    pattern = dict(part.get("pattern") or {})
    regex = pattern.get("Regex")
    if regex is not None and regex not in KNOWN_REGEX:
        yield f"{kind} has the regular expression {regex!r}; allowed: {', '.join(KNOWN_REGEX)}"
    if kind == "Replace" and len(str(part.get("content"))) > len(pattern.get("String", " ")[:1]):
        yield f"Replace makes texts longer: {str(part)[:160]}"
    if kind == "Prepend" and len(str(part.get("prepend"))) > LONGEST_ADDED:
        yield f"Prepend adds more than {LONGEST_ADDED} characters"
    table = base64.b64decode(str(part.get("precompiled_charsmap") or ""))
    if kind == "Precompiled" and not is_sound(table):
        yield "the table of Precompiled is damaged"
    if kind == "TemplateProcessing":
        yield from template_problems(part)


def template_problems(part: Mapping[str, Any]) -> Iterator[str]:
    marks = part.get("special_tokens") or {}
    for key, texts in ("single", ["A"]), ("pair", ["A", "B"]):
        pieces = [dict(piece) for piece in part.get(key) or ()]
        if sorted(piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece) != texts:
            yield f"the template {key!r} must name {' and '.join(texts)} once"
        named = [piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece]
        if not marks.keys() >= set(named):
            yield f"the template {key!r} names a special token that is not explained"
        elif sum(len(marks[name]["ids"]) for name in named) > MOST_MARKS:
            yield f"the template {key!r} has more than {MOST_MARKS} special tokens"


def is_sound(table: bytes) -> bool:
    """Whether no text leads out of SentencePiece's table: a double array and its replacements.

    No replacement is long. A unit of the array is a value (highest bit) or leads to the block of
    256 that its offset names.
    """
    end = 4 + int.from_bytes(table[:4], "little")
    if not 4 < end <= len(table) or end % 4:
        return False
    units, texts = np.frombuffer(table[4:end], "<u4"), np.frombuffer(table[end:], np.uint8)
    is_value, values = units >> 31 == 1, units & 0x7FFFFFFF
    places = np.arange(len(units)) ^ ((units >> 10).astype(np.int64) << ((units & 512) >> 6))
    starts = values[is_value]
    ends = np.append(np.flatnonzero(texts == 0), len(texts))  # of the replacements
    return bool(
        (places[~is_value] | 255 < len(units)).all()
        and (starts < len(texts)).all()
        and (ends[np.searchsorted(ends, starts)] - starts <= LONGEST_TEXT).all()
        and (texts[starts] & 0xC0 != 0x80).all()  # at the first byte of a letter
    )


def check_numbers(tokenizer: Tokenizer, shape: EncoderShape, folder: Path) -> None:
    """Refuse numbers of words and types for which the encoder has no vectors."""
    marks = tokenizer.encode("a", "a"), tokenizer.encode("a")
    ids = [number for encoding in marks for number in encoding.ids]
    words = 1 + max([*tokenizer.get_vocab().values(), *ids], default=0)
    types = [number for encoding in marks for number in encoding.type_ids]
    if words > shape.words:
        raise EncoderError(
            f"{folder}: the tokenizer has {words} words, the encoder has vectors for "
            f"{shape.words}; these files do not belong together"
        )
    if shape.types > 1 and max(types, default=0) >= shape.types:
        raise EncoderError(
            f"{folder}: the tokenizer gives the type {max(types)}, the encoder has vectors for "
            f"{shape.types}; these files do not belong together"
        )
