"""A bundle of a stranger: every damage is one line, before memory is taken or time is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import normalizers

import mops
from mops.data.tokenizer import is_sound, panics_as_errors
from mops.errors import EncoderError, MopsError, RunError
from mops.training.checkpoint import restore_best
from mops.yaml_io import parse_yaml

FIXTURE = Path(__file__).parents[1] / "fixtures/run/model"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "model"))


def edit(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """A change of a JSON file."""

    def do(folder: Path) -> None:
        path = folder / file
        data = json.loads(path.read_text("utf-8"))
        change(data)
        path.write_text(json.dumps(data), "utf-8")

    return do


def encoder(**sizes: Any) -> Callable[[Path], None]:
    return edit("config.json", lambda config: config["encoder"].update(sizes))


def reading(**facts: Any) -> Callable[[Path], None]:
    return edit("config.json", lambda config: config.update(facts))


def many_tasks(count: int, depth: int) -> Callable[[Path], None]:
    """So many copies of a task, on an encoder of this depth."""

    def do(folder: Path) -> None:
        task = parse_yaml((folder / "tasks.yaml").read_text("utf-8"))["sentiment"]
        tasks = {f"t{number}": task for number in range(count)}
        (folder / "tasks.yaml").write_text(json.dumps(tasks), "utf-8")
        edit("config.json", lambda config: config.update(heads={}))(folder)
        encoder(depth=depth)(folder)

    return do


fact = reading


def part(key: str, value: Any) -> Callable[[Path], None]:
    return edit("tokenizer.json", lambda facts: facts.update({key: value}))


def written(file: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(text, "utf-8") and None


def fifo(file: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return do


def device(file: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).symlink_to("/dev/zero")

    return do


ALIASES = "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))
BOMB = f"a0: &a0 [x]\n{ALIASES}"
CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
MARKS = {"[CLS]": {"id": "[CLS]", "ids": [90_000], "tokens": ["[CLS]"]}}
A, B = ({"Sequence": {"id": name, "type_id": n}} for n, name in enumerate("AB"))
TEMPLATE = {"type": "TemplateProcessing", "single": [CLS, A], "pair": [A, B]}
CHARSMAP = "/////wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"  # says that its trie has 4 GB
LEAD_OUT = "BAAAAP////8="  # its only unit leads out of the trie
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "aliases of aliases in tasks.yaml": (written("tasks.yaml", BOMB), "alias"),
    "aliases of aliases in plan.yaml": (written("plan.yaml", BOMB), "alias"),
    "deep YAML": (written("plan.yaml", f"a: {'[' * 5000}{']' * 5000}"), "deep"),
    "deep JSON": (written("config.json", f'{{"a": {"[" * 90_000}{"]" * 90_000}}}'), "nested|deep"),
    "long YAML": (written("plan.yaml", "a: b\n" * 300_000), "more than 524,288 bytes"),
    "a number of many digits": (written("config.json", f'{{"a": {"9" * 5000}}}'), "valid JSON"),
    "config.json is a list": (written("config.json", "[]"), "not an object"),
    "config.json is a FIFO": (fifo("config.json"), "not a regular file"),
    "tasks.yaml is a FIFO": (fifo("tasks.yaml"), "not a regular file"),
    "tokenizer.json is a FIFO": (fifo("tokenizer.json"), "not a regular file"),
    "weights are a FIFO": (fifo("model.safetensors"), "not a regular file"),
    "config.json is a device": (device("config.json"), "not a regular file"),
    "millions of words": (encoder(words=60_000_000), "at most 1.67772e"),
    "more words than weights": (encoder(words=6_000_000), "not as expected"),
    "words as a text": (encoder(words="many"), "encoder: words must be a whole number"),
    "no words": (encoder(words=None), "encoder: words must be"),
    "billions of layers": (encoder(depth=10**9), "encoder: depth must be"),
    "layers below zero": (encoder(depth=-1), "encoder: depth must be"),
    "no heads": (encoder(heads=0), "encoder: heads must be"),
    "an epsilon of NaN": (encoder(epsilon=float("nan")), "encoder: epsilon must be"),
    "unknown keys": (encoder(future=1), "unknown key"),
    "an unknown activation": (encoder(activation="evil"), "activation"),
    "an unknown pool": (reading(pool="evil"), "pool must be"),
    "unknown features": (reading(features=["evil"]), "features"),
    "a length beyond the positions": (reading(max_length=100_000), "max_length"),
    "a length of zero": (reading(max_length=0), "max_length must be"),
    "a head of billions": (
        reading(heads={"sentiment": {"kind": "mlp", "width": 10**9}}), "width must be"),
    "millions of layers on all routes": (many_tasks(300, depth=500), "150,000 layers together"),
    "thousands of tasks": (many_tasks(1200, depth=3), "1200 tasks; at most 1000"),
    "more layers than weights": (many_tasks(3, depth=500), "owners of weights are missing"),
    "thousands of late layers": (
        written("plan.yaml", json.dumps({"name": "x", "late": [{"per": ["task"]}] * 5_000})),
        "late.* at most 500"),
    "scores as a list": (fact(scores=[]), "scores must be a mapping"),
    "a score as a text": (fact(scores={"a": {"test": {"f1": "x"}}}), "f1 must be a number"),
    "a split that is a list": (fact(data={"sentiment": {"train": []}}), "train must be a mapping"),
    "a split without rows": (
        fact(data={"sentiment": {"train": {"files": [], "sha256": []}}}), "rows is missing"),
    "a seed below zero": (fact(seed=-1), "seed must be"),
    "a seed of many digits": (fact(seed=10**40), "41 digits"),
    "a seed as a list": (fact(seed=[3]), "seed must be a whole number"),
    "untrained as a number": (fact(untrained=3), "untrained must be a list"),
    "warnings of numbers": (fact(warnings=[3]), "warnings.0 must be a text"),
    "training as a text": (fact(training="x"), "training must be a mapping"),
    "a probe without groups": (fact(probe=[{"task": "sentiment"}]), "is missing"),
    "a probe of nothing": (fact(probe=None), "probe must be a list"),
    "a graph as a list": (fact(onnx=[]), "onnx must be a mapping"),
    "a number of 400 digits": (fact(scores={"a": {"test": {"f1": 10**400}}}), "401 digits"),
    "a score of NaN": (fact(scores={"a": {"test": {"f1": float("nan")}}}), "not finite"),
    "an unknown fact of NaN": (fact(mine=float("nan")), "not finite"),
    "an expression that never ends": (
        part("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"},
                               "behavior": "Removed", "invert": False}), "regular expression"),
    "a normaliser that aborts": (
        part("normalizer", {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}), "damaged"),
    "a normaliser that panics": (
        part("normalizer", {"type": "Precompiled", "precompiled_charsmap": LEAD_OUT}), "damaged"),
    "a normaliser that grows": (
        part("normalizer", {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}] * 6}), "longer"),
    "digits that double": (
        part("normalizer", {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"Regex": r"\d"}, "content": "11"}] * 31}), "longer"),
    "many normalisers": (
        part("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 60_000}),
        "60,001 parts; allowed: 32"),
    "bytes of bytes": (
        part("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 24}),
        "ByteLevel twice"),
    "a template of many texts": (
        part("post_processor", TEMPLATE | {"single": [A] * 200, "special_tokens": {}}), "A once"),
    "a mark that is not explained": (
        part("post_processor", TEMPLATE | {"special_tokens": {}}), "not explained"),
    "a template of many marks": (
        part("post_processor", TEMPLATE | {"special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [0] * 100_000, "tokens": ["[CLS]"] * 100_000}}}),
        "more than 8 special tokens"),
    "a part that panics": (part("pre_tokenizer", {"type": "FixedLength", "length": 0}), "type"),
    "a template for two texts": (
        part("post_processor", TEMPLATE | {"single": [B], "special_tokens": MARKS}), "template"),
    "a mark beyond the vectors": (
        part("post_processor", TEMPLATE | {"special_tokens": MARKS}), "90001 words"),
    "a word beyond the vectors": (
        edit("tokenizer.json", lambda facts: facts["model"]["vocab"].update(zzz=90_000)), "90001"),
    "a type beyond the vectors": (
        part("post_processor", TEMPLATE | {"pair": [A, B | {"Sequence": {"id": "B", "type_id": 9}}],
                                           "special_tokens": {}, "single": [A]}), "type 9"),
    "another model": (part("model", {"type": "Evil"}), "model has the type 'Evil'"),
    "a model that is a list": (part("model", []), "model has the type"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_damage_is_one_line(name: str, bundle: Path) -> None:
    damage, words = BAD[name]
    damage(bundle)
    with pytest.raises(MopsError, match=words) as caught:
        mops.load(bundle)
    assert "\n" not in str(caught.value)


class PanicException(BaseException):
    """As pyo3 names it."""


@pytest.mark.parametrize("raised", [PanicException, Exception])
def test_a_panic_of_the_library_is_one_line(raised: type[BaseException]) -> None:
    refused = pytest.raises(EncoderError, match="cannot read a text: at 1: broken; fetch")
    with refused, panics_as_errors("the tokenizer cannot read a text"):
        raise raised("at 1:\nbroken")


def test_an_interrupt_is_no_panic() -> None:
    with pytest.raises(KeyboardInterrupt), panics_as_errors("x"):
        raise KeyboardInterrupt


def trie(*units: int, texts: bytes = b"x\0") -> bytes:
    return (4 * len(units)).to_bytes(4, "little") + np.array(units, "<u4").tobytes() + texts


def test_a_sound_table_of_characters_is_read() -> None:
    """`a` becomes `x`: the root leads to block 256, the leaf of `a` there to a value."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = (1 << 10) | (1 << 8) | ord("a")
    units[256 ^ ord("a") ^ 1] = 1 << 31
    assert is_sound(trie(*units))
    normalise = normalizers.Precompiled(trie(*units)).normalize_str
    assert normalise("banana") == "bxnxnx"
    assert not is_sound(trie(*units[:300])) and not is_sound(trie(*units, texts=b""))
    assert is_sound(trie(*units, texts=b"x" * 64 + b"\0"))
    assert not is_sound(trie(*units, texts=b"x" * 100_000 + b"\0"))  # allocates until it aborts


def test_the_dropout_of_a_tokenizer_is_off(bundle: Path) -> None:
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "ab": 5}
    model = {"type": "BPE", "vocab": words, "merges": ["a b"], "unk_token": "[UNK]", "dropout": 0.5}
    edit("tokenizer.json", lambda facts: facts.update(model=model, added_tokens=[]))(bundle)
    tokenizer = mops.load(bundle).bundle.source.tokenizer
    assert {tuple(tokenizer.encode("ab").tokens) for _ in range(50)} == {("[CLS]", "ab", "[SEP]")}


def test_a_truncated_best_state_is_one_line(tmp_path: Path, bundle: Path) -> None:
    state = tmp_path / "state" / "best-all.safetensors"
    state.parent.mkdir()
    state.write_bytes((bundle / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(RunError, match=r"best-all\.safetensors cannot be read.*start again"):
        restore_best(tmp_path, "all", 1, mops.load(bundle).bundle.network)


def test_weights_that_are_missing_are_told(bundle: Path) -> None:
    """Also without a manifest, in the words of the library that looked for them."""
    (bundle / "model.safetensors").unlink()
    (bundle / "manifest.json").unlink(missing_ok=True)
    with pytest.raises(EncoderError, match=r"model\.safetensors cannot be read: No such file"):
        mops.load(bundle)
