"""Loss, head and written folder against transformers on the same weights."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from building import FAMILIES, VOCABULARY, shake, tiny_tokenizer, words_of, write_encoder
from mops.data.batches import split_batches
from mops.data.schedule import generator
from mops.model.network import Network
from mops.model.sources import EncoderSource
from mops.plans.shapes import Reading
from mops.training.masked_words import (
    Corpus,
    Masked,
    begin_head,
    build_network,
    held_out_losses,
    lay_out_words,
    load_head,
    mask_sequence,
    masked_loss,
    read_vocabulary,
    token_count,
    word_head,
)
from mops.training.pretrain import write_encoder as write_pretrained

MASKED_MODELS = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
}
READING = Reading(max_length=32)
TOKENS = read_vocabulary(tiny_tokenizer(), len(VOCABULARY))
LENGTHS = (5, 12, 3, 31, 12, 20)


@pytest.fixture
def folder(encoder_folder: Any, request: Any) -> Path:
    family = getattr(request, "param", "bert")
    return Path(encoder_folder(family, MASKED_MODELS[family]))


def build(source: EncoderSource) -> Network:
    return build_network(lay_out_words(source.shape, READING), source, dropout=0.0)


def load(folder: Path) -> Network:
    source = EncoderSource(str(folder), folder)
    network = build(source)
    assert load_head(word_head(network), source)
    return network.eval()


def batch() -> list[Masked]:
    draw = generator(3, "batch")
    return [mask_sequence(words_of(n, i), TOKENS, draw) for i, n in enumerate(LENGTHS)]


def their_losses(model: Any, batch: list[Masked]) -> torch.Tensor:
    """Of every chosen token, each sequence alone; their labels are -100 elsewhere."""
    found = []
    for masked in batch:
        ids = torch.tensor(masked.ids).long()[None]
        labels = torch.full_like(ids, -100)
        labels[0, masked.places] = torch.tensor(masked.targets).long()
        with torch.inference_mode():
            output = model(input_ids=ids, labels=labels)
        losses = F.cross_entropy(output.logits[0], labels[0], reduction="none")
        found.append(losses[labels[0] != -100])
        torch.testing.assert_close(output.loss, found[-1].mean())
    return torch.cat(found)


@pytest.mark.parametrize("folder", FAMILIES, indirect=True)
def test_the_loss_is_that_of_transformers(folder: Path) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    theirs = their_losses(model, batch())
    torch.testing.assert_close(masked_loss(load(folder), batch()), theirs.mean(), rtol=0, atol=1e-5)


def test_perplexity_is_over_all_words_not_over_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    theirs = float(their_losses(model, batch()).double().mean())
    monkeypatch.setattr("mops.training.masked_words.TOKENS", 24)
    parts = list(split_batches(sorted(batch(), key=token_count), token_count, 24))
    assert len({len(part) for part in parts}) > 1
    found = held_out_losses(load(folder), {"report": batch()})["report"]
    assert found == pytest.approx(theirs, abs=1e-5)
    means = [masked_loss(load(folder), part).item() for part in parts]
    assert abs(np.mean(means) - theirs) > 1e-3


def test_word_vectors_are_tied_to_the_output(folder: Path) -> None:
    """One tensor; its gradient is that of its use below and above, as autograd gives it apart."""
    network = load(folder)
    word = network.bank["embeddings"].get_parameter("word.weight")
    assert sum(len(VOCABULARY) in p.shape and p.ndim == 2 for p in network.parameters()) == 1
    masked_loss(network, batch()).backward()
    both = word.grad.clone()
    shown = {int(n) for masked in batch() for n in masked.ids}
    never = [n for n in range(len(VOCABULARY)) if n not in shown]
    assert never and both[never].abs().sum(1).min() > 0  # through the output alone
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    count = sum(len(masked.places) for masked in batch())
    for masked in batch():
        ids = torch.tensor(masked.ids).long()[None]
        logits = model(input_ids=ids).logits[0, masked.places]
        targets = torch.tensor(masked.targets).long()
        (F.cross_entropy(logits, targets, reduction="sum") / count).backward()
    theirs = model.get_input_embeddings().weight.grad
    keep = [n for n in range(len(VOCABULARY)) if n != 1]  # their padding vector takes none below
    torch.testing.assert_close(both[keep], theirs[keep], rtol=0, atol=1e-5)


def test_a_new_head_begins_at_the_frequency_of_words(encoder_folder: Any) -> None:
    folder = encoder_folder("bert")
    source = EncoderSource(str(folder), folder)
    head = word_head(build(source))
    assert not load_head(head, source)
    numbers = np.arange(len(VOCABULARY), dtype=np.int32)
    corpus = Corpus([np.repeat(numbers, numbers)], {}, TOKENS, {})
    begin_head(head, corpus, seed=4)
    shares = head.state_dict()["bias"].exp()
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0))
    torch.testing.assert_close(shares[9] / shares[7], torch.tensor(10 / 8))
    torch.testing.assert_close(shares[9] / shares[TOKENS.mask], torch.tensor(10.0))
    weight = head.state_dict()["dense.weight"]
    assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
    first = weight.clone()
    begin_head(head, corpus, seed=4)
    assert torch.equal(first, weight)
    begin_head(head, corpus, seed=5)
    assert not torch.equal(first, weight)


def test_a_head_that_is_not_tied_is_not_taken(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "encoder")
    path = tmp_path / "encoder" / "model.safetensors"
    weights = load_file(path)
    tied = {"cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"]}
    for change, is_taken in ((0.0, True), (1.0, False)):
        save_file({**weights, **{name: t + change for name, t in tied.items()}}, path)
        source = EncoderSource("x", tmp_path / "encoder")
        assert load_head(word_head(build(source)), source) == is_taken


# ------------------------------------------------------------------ the written folder


def hidden(model: Any, ids: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor(ids).long()[None]).last_hidden_state


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_what_is_written(
    encoder_folder: Any, tmp_path: Path, family: str, plain: bool
) -> None:
    """From a bare encoder and from one with a head; all weights have moved in between."""
    folder = encoder_folder(family, "" if plain else MASKED_MODELS[family])
    source = EncoderSource(str(folder), folder)
    network = build(source)
    shake(network, seed=11)
    network.eval()
    write_pretrained(tmp_path, network, source)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert type(model).__name__ == MASKED_MODELS[family]
    theirs = their_losses(model, batch()).mean()
    torch.testing.assert_close(masked_loss(network, batch()), theirs, rtol=0, atol=1e-5)
    bare = transformers.AutoModel.from_pretrained(tmp_path).eval()
    for n, masked in enumerate(batch()):
        ids = masked.ids
        torch.testing.assert_close(
            hidden(bare, ids), hidden(model.base_model, ids), msg=f"sequence {n}"
        )
    assert masked_loss(load(tmp_path), batch()).item() == masked_loss(network, batch()).item()


def test_a_modernbert_with_another_head_gets_a_new_one(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "source", "modernbert", "ModernBertForMaskedLM")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"decoder_bias": False}), "utf-8")
    source = EncoderSource("x", folder)
    network = build(source).eval()
    assert not load_head(word_head(network), source)
    write_pretrained(tmp_path / "out", network, source)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    theirs = their_losses(model, batch()).mean()
    torch.testing.assert_close(masked_loss(network, batch()), theirs, rtol=0, atol=1e-5)


def test_what_mops_does_not_use_is_kept(tmp_path: Path) -> None:
    """The pooler and the second head of a BertForPreTraining; second copies of tied tensors go."""
    folder = write_encoder(tmp_path / "source", "bert", "BertForPreTraining")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), "utf-8")
    path = folder / "model.safetensors"
    before = load_file(path)
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): t for name, t in before.items()}
    copy = before["bert.embeddings.word_embeddings.weight"].clone()
    save_file({**old, "cls.predictions.decoder.weight": copy}, path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float16"}), "utf-8")
    network = load(folder)
    shake(network, seed=2)
    write_pretrained(tmp_path / "out", network, EncoderSource("x", folder))
    after = load_file(tmp_path / "out" / "model.safetensors")
    kept = {name for name in before if "pooler" in name or "seq_relationship" in name}
    assert len(kept) == 4 and set(after) == set(before)
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor) == (name in kept), name
    there = {file.name for file in (tmp_path / "out").iterdir()}
    assert there == {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}
    written = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert written == config | {"architectures": ["BertForMaskedLM"], "dtype": "float32"}


def test_a_tokenizer_of_vocab_txt_alone_is_written_whole(folder: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(folder, tmp_path / "source"))
    (source / "tokenizer.json").unlink()
    (source / "vocab.txt").write_text("\n".join(VOCABULARY), "utf-8")
    write_pretrained(tmp_path / "out", load(source), EncoderSource("x", source))
    found = EncoderSource("y", tmp_path / "out").tokenizer.encode("ban den").ids
    assert found == tiny_tokenizer().encode("ban den").ids


def test_perplexity_of_a_uniform_guess_is_the_number_of_words(folder: Path) -> None:
    network = load(folder)
    with torch.no_grad():
        for parameter in word_head(network).parameters():
            parameter.zero_()
    loss = held_out_losses(network, {"report": batch()})["report"]
    assert math.exp(loss) == pytest.approx(len(VOCABULARY), rel=1e-5)
