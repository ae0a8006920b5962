"""Families of encoders: packed batches, gradients and long texts against transformers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import processors
from torch import Tensor

from building import (
    FAMILIES,
    LONGEST,
    build_network,
    check_batch_invariance,
    check_fan_out,
    mixed_segments,
    segment,
    tiny_config,
    tiny_shape,
    tiny_tokenizer,
    write_encoder,
)
from mops.data.batches import Segment, tokenise
from mops.errors import EncoderError, RecipeError
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import foreign_tensors
from mops.model.sources import EncoderSource, parse_shape, read_shape
from mops.plans.shapes import Reading, check_length, cut_windows

NEW = ("xlm-roberta", "electra", "modernbert")
over_families = pytest.mark.parametrize("family", FAMILIES)
over_new = pytest.mark.parametrize("family", NEW)


def loss_of_states(states: list[Tensor]) -> Tensor:
    """A function of every hidden state: their mean with fixed random factors."""
    together = torch.cat(states)
    factors = torch.randn(together.shape, generator=torch.Generator().manual_seed(5))
    return (together * factors).sum(1).mean()


def their_states(model: Any, segments: list[Segment], has_types: bool) -> list[Tensor]:
    """transformers on a padded batch."""
    longest = max(len(each.ids) for each in segments)
    batch: dict[str, list[Any]] = defaultdict(list)
    for each in segments:
        more = longest - len(each.ids)
        batch["input_ids"].append([*each.ids.tolist(), *[1] * more])
        batch["attention_mask"].append([1] * len(each.ids) + [0] * more)
        if has_types:
            batch["token_type_ids"].append([*each.types.tolist(), *[0] * more])
    hidden = model(**{key: torch.tensor(rows) for key, rows in batch.items()}).last_hidden_state
    return [hidden[n, : len(each.ids)] for n, each in enumerate(segments)]


def our_states(network: Network, segments: list[Segment]) -> list[Tensor]:
    """One pack of all, in the given order."""
    pack = pack_segments(segments, network.layout)
    hidden = encode(network.bank, pack)
    found = {task: iter(own.tolist()) for task, own in pack.task_segments.items()}
    places = [next(found[each.tasks[0]]) for each in segments]
    first, length = pack.first_S.tolist(), pack.length_S.tolist()
    return [hidden[first[place] : first[place] + length[place]] for place in places]


@pytest.mark.parametrize("pair", ["cross", "bi"])
@pytest.mark.parametrize("plan", ["shared", "hybrid:2", "lora:3"])
@over_families
def test_states_and_gradients_of_a_packed_batch(
    family: str, plan: str, pair: str, encoder_folder: Any
) -> None:
    """Rows of all tasks, single texts and pairs of all lengths, in one pack: every state is that of
    transformers, and the gradients of all copies of a weight add up to its gradient there."""
    folder = encoder_folder(family)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    network = build_network(plan, folder, reading=Reading(pair=pair))
    lengths = (LONGEST - 1, 1, 7, 2, 33, 16, 17, 3)
    segments = mixed_segments(network, lengths)
    ours = our_states(network, segments)
    theirs = their_states(model, segments, network.layout.encoder.types > 0)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    loss_of_states(ours).backward()
    loss_of_states(theirs).backward()
    gradients: dict[str, Tensor] = {}
    for name, gradient in foreign_gradients(network):
        gradients[name] = gradients.get(name, 0) + gradient
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert set(gradients) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-6, msg=name)


def foreign_gradients(network: Network) -> list[tuple[str, Tensor]]:
    """The gradients under the names of the weights in transformers."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.copy_(parameter.grad.to_dense())
    return list(foreign_tensors(network))


@over_families
def test_the_shape_is_that_of_the_configuration(family: str, encoder_folder: Any) -> None:
    assert read_shape(encoder_folder(family)) == tiny_shape(family)


@pytest.mark.parametrize("plan", ["shared", "layers:SISI"])
@over_new
def test_bits_do_not_depend_on_the_batch(family: str, plan: str, encoder_folder: Any) -> None:
    network = build_network(plan, encoder_folder(family))
    check_batch_invariance(network)
    check_fan_out(network)


# ------------------------------------------------------------------ long texts


@pytest.mark.parametrize("family", ["xlm-roberta", "modernbert"])
def test_a_text_as_long_as_the_encoder_can_read(family: str, tmp_path: Path) -> None:
    """512 tokens (1500 of ModernBERT, with local layers of 64 tokens to each side), and not one
    more."""
    config = tiny_config(family)
    config.max_position_embeddings = {"xlm-roberta": 514, "modernbert": 1500}[family]
    config.local_attention = 128
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    longest = {"xlm-roberta": 512, "modernbert": 1500}[family]
    network = build_network("shared", tmp_path, reading=Reading(max_length=longest))
    segments = [segment(n, n, ("sentiment",), types=shape.types) for n in (longest, 5, 301)]
    with torch.inference_mode():
        theirs = [their_states(model, [s], shape.types > 0)[0] for s in segments]
        for found, expected in zip(our_states(network, segments), theirs, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    check_length(Reading(max_length=longest), shape)
    with pytest.raises(RecipeError, match=f"max_length is {longest + 1}, .* at most {longest}"):
        check_length(Reading(max_length=longest + 1), shape)


def test_the_largest_texts_are_those_of_the_published_sizes() -> None:
    sizes = {"xlm-roberta": (514, 512), "electra": (512, 512), "modernbert": (8192, 8192)}
    for family, (positions, longest) in sizes.items():
        config = tiny_config(family).to_dict() | {"max_position_embeddings": positions}
        assert parse_shape(config, Path("config.json")).longest == longest


@pytest.mark.parametrize("length", [1, 24, 25, 39, 40, 41, 1000])
def test_windows_hold_what_their_own_tokens_see(length: int) -> None:
    """Every token is computed in one window, which has all tokens in its reach."""
    reach = 4
    windows = cut_windows(length, reach)
    own = [range(window.own_first, window.own_end) for window in windows]
    assert [token for part in own for token in part] == list(range(length))
    for window, part in zip(windows, own, strict=True):
        assert window.first == 0 or window.first <= part[0] - reach
        assert window.end == length or window.end > part[-1] + reach
    work = sum((window.end - window.first) ** 2 for window in windows)
    assert work <= min(length**2, 8 * reach * (length + 2 * reach))


# ------------------------------------------------------------------ config.json


OLD = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}


def changed(family: str, **values: Any) -> Any:
    config = tiny_config(family).to_dict() | values
    return parse_shape({k: v for k, v in config.items() if v is not None}, Path("config.json"))


def test_older_keys_of_modernbert_mean_the_same() -> None:
    without: dict[str, Any] = {"layer_types": None, "rope_parameters": None}
    assert changed("modernbert", **without, **OLD) == tiny_shape("modernbert")
    other = changed("modernbert", **without, **{**OLD, "local_rope_theta": 5.0})
    assert (other.local_rotary, other.rotary) == (5.0, 160000.0)
    assert changed("modernbert", **without, global_attn_every_n_layers=2).global_every == 2
    assert changed("modernbert", layer_types=["full_attention"] * 4).global_every == 1


def test_embeddings_as_wide_as_the_encoder_are_not_projected() -> None:
    assert changed("electra", embedding_size=32).embedding == 0


YARN = {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("modernbert", {"hidden_activation": "silu"}, "the activation is 'silu'; supported: gelu"),
    ("modernbert", {"norm_bias": True}, "norm_bias is True; supported: False"),
    ("modernbert", {"attention_bias": True}, "attention_bias is True"),
    ("modernbert", {"mlp_bias": True}, "mlp_bias is True"),
    ("modernbert", {"rope_parameters": YARN}, "the rope_type of full_attention is 'yarn'"),
    ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "is 'linear'"),
    ("modernbert", {"layer_types": ["sliding_attention"] * 4}, "layer_types is ['sliding"),
    ("modernbert", {"local_attention": "far"}, "is not the config.json of an encoder"),
    ("modernbert", {"local_attention": 1}, "local_attention is 1; supported: 2 tokens and more"),
    ("electra", {"position_embedding_type": "relative_key"}, "is 'relative_key'"),
    ("bert", {"position_embedding_type": "relative_key_query"}, "supported: 'absolute'"),
    ("xlm-roberta", {"is_decoder": True}, "is_decoder is True; supported: False"),
    ("bert", {"model_type": "gpt2"}, "model_type is 'gpt2'; mops reads"),
)


@pytest.mark.parametrize(("family", "values", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(
    family: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    config = tiny_config(family).to_dict() | values
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(EncoderError) as caught:
        read_shape(tmp_path)
    message = str(caught.value)
    assert words in message and "\n" not in message
    if "is not the config.json" not in message:
        assert all(family in message for family in FAMILIES)


@pytest.mark.parametrize("family", ["electra", "modernbert", "distilbert"])
def test_a_family_without_a_pooler(family: str, encoder_folder: Any) -> None:
    with pytest.raises(EncoderError, match=r"has no pooler; set training\.pool to mean"):
        build_network("shared", encoder_folder(family), reading=Reading(pool="pooler"))


DAMAGES: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "embeddings_project.weight missing": lambda w: w.pop("embeddings_project.weight"),
    "embeddings_more.weight [1], not missing": lambda w: w.update(
        {"embeddings_more.weight": torch.ones(1)}
    ),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_file_is_refused(words: str, tmp_path: Path) -> None:
    path = write_encoder(tmp_path, "electra") / "model.safetensors"
    weights = load_file(path)
    DAMAGES[words](weights)
    save_file(weights, path)
    with pytest.raises(EncoderError) as caught:
        build_network("shared", tmp_path)
    assert words in str(caught.value)


# ------------------------------------------------------------------ tokenizers


@pytest.mark.parametrize("most", [12, LONGEST])
def test_pairs_are_written_as_tokenizer_json_says(most: int, tmp_path: Path) -> None:
    """RoBERTa's <s> a </s> </s> b </s>, and all types 0: the numbers that transformers gives."""
    tokenizer = tiny_tokenizer()
    marks = [(word, tokenizer.token_to_id(word)) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.RobertaProcessing(marks[1], marks[0])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tiny_config("xlm-roberta").save_pretrained(tmp_path)
    ours = EncoderSource("x", tmp_path).tokenizer
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    pairs = [("ban bet", "do re mi"), ("a " * 30, "the bully"), ("", "ban"), ("do " * 9, "re " * 9)]
    table = tokenise(ours, pairs, Reading(max_length=most))
    for n, (a, b) in enumerate(pairs):
        ids, types = next(table.row(n))
        wanted = theirs(a, b, truncation=True, max_length=most)["input_ids"]
        assert ids.tolist() == wanted and not types.any()
        assert np.count_nonzero(ids == marks[1][1]) == 3
