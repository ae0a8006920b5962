"""The encoder against transformers for random sizes, activations and families."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from building import VOCABULARY, build_network, hidden_of, segment, shake, tiny_tokenizer
from mops.plans.shapes import Reading

CLASSES = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}


@pytest.mark.parametrize("number", range(12))
def test_hidden_states_are_those_of_transformers(number: int, tmp_path: Path) -> None:
    import transformers

    draw = random.Random(number)
    family, heads = draw.choice(list(CLASSES)), draw.choice((1, 2, 3, 5))
    sizes = {
        "hidden_size": heads * draw.choice((4, 8, 12)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw.randint(1, 5),
        "intermediate_size": draw.randint(5, 90),
        "vocab_size": len(VOCABULARY) + draw.randint(0, 40),
        "max_position_embeddings": draw.randint(40, 90),
        "type_vocab_size": 1 if family == "roberta" else 2,
        "hidden_act": draw.choice(("gelu", "gelu_new", "relu")),
        "layer_norm_eps": draw.choice((1e-12, 1e-5)),
        "pad_token_id": 1,
    }
    sizes |= {"embedding_size": draw.randint(3, 30)} if family == "electra" else {}
    config = getattr(transformers, f"{CLASSES[family]}Config")(**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(number)
        model = getattr(transformers, f"{CLASSES[family]}Model")(config).eval()
    shake(model, seed=number)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    network = build_network("shared", tmp_path, reading=Reading(max_length=30))
    types = sizes["type_vocab_size"]
    texts = [segment(n, n, ("sentiment",), types=types) for n in (1, 2, 9, 17, 30)]
    for text, ours in zip(texts, hidden_of(network, texts, "sentiment"), strict=True):
        given = {"input_ids": torch.tensor(text.ids).long()[None]}
        given["token_type_ids"] = torch.tensor(text.types).long()[None]
        with torch.inference_mode():
            theirs = model(**given).last_hidden_state[0]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
