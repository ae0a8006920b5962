"""What the cache of frozen parts keeps: keys, vectors, bounds, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from caching import FROZEN_FIRST, build, opened

from building import (
    mixed_segments,
    outputs_of,
    segment,
    shake,
)
from mops import store as store_module
from mops.data.batches import Segment
from mops.model.encoder import encode
from mops.plans.shapes import Reading
from mops.store import Store, StoreWarning
from mops.training import feature_cache as cache_module
from mops.training.feature_cache import find_prefix, prefix_keys


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


# ------------------------------------------------------------------ keys


def test_copies_with_the_same_weights_share_an_entry(encoder_folder: Any) -> None:
    """And another plan with the same weights below; moved weights, or another depth, do not."""
    folder = encoder_folder("bert")
    network = build(FROZEN_FIRST, Reading(), folder)
    keys = prefix_keys(network, find_prefix(network))
    assert len(set(keys.values())) == 1
    other = build("layers:FFSI", Reading(), folder)
    assert set(prefix_keys(other, find_prefix(other)).values()) == set(keys.values())
    shake(network.bank["attention/layer01/similarity"], seed=1, size=1e-6)
    moved = prefix_keys(network, find_prefix(network))
    assert moved["sentiment"] == keys["sentiment"] != moved["similarity"]
    deeper = build("layers:FFFI", Reading(), folder)
    assert prefix_keys(deeper, find_prefix(deeper))["sentiment"] != keys["sentiment"]


def test_pooling_is_part_of_the_key_and_first_tokens_are_first_tokens(encoder_folder: Any) -> None:
    def key(pool: str) -> str:
        network = build("frozen+shared", Reading(pool=pool), encoder_folder("bert"))
        return prefix_keys(network, find_prefix(network))["sentiment"]

    assert key("mean") != key("sum") and key("cls") == key("pooler")


def test_token_types_are_part_of_a_sequence(encoder_folder: Any, store: Store) -> None:
    network = build("frozen+shared", Reading(), encoder_folder("bert")).eval()
    cache = opened(network, store)
    one = segment(8, 1, ("sentiment",))
    two = Segment(one.ids, 1 - one.types, one.tasks)
    cache.fill("sentiment", [one, two, one])
    assert cache.computed == 2
    with torch.inference_mode():
        found = network(cache.pack([one, two]))["sentiment"]
    assert torch.equal(found, outputs_of(network, [one, two])["sentiment"])
    assert not torch.equal(found[0], found[1])


# ------------------------------------------------------------------ vectors, bounds, damage


def test_pooled_vectors(encoder_folder: Any, store: Store) -> None:
    reading = Reading(pool="mean", pair="bi")
    network = build("frozen+late:SIS", reading, encoder_folder("bert")).eval()
    segments = [segment(n, n % 5, ("similarity",)) for n in (9, 4, 9, 17, 2, 33)]
    vectors = opened(network, store).pooled("similarity", segments)
    assert vectors.dtype == np.float32 and vectors.shape == (6, network.layout.encoder.width)
    plain = cache_module.pack_segments(segments, network.layout)
    with torch.inference_mode():
        expected = network.pool(encode(network.bank, plain), plain)
    assert np.array_equal(vectors, expected[plain.task_segments["similarity"]].numpy())


def test_what_does_not_fit_is_computed_each_time(encoder_folder: Any, tmp_path: Path) -> None:
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    segments = mixed_segments(network)
    told: list[str] = []
    for limit, blocks in ((100, 0), (2**20, 1)):
        cache = opened(network, Store(tmp_path / str(limit), limit))
        cache.fill("sentiment", segments, told.append)
        assert len(cache.blocks) == blocks
        expected = outputs_of(network, segments)
        with torch.inference_mode():
            found = network(cache.pack(segments))
        assert all(torch.equal(found[task], values) for task, values in expected.items())
    distinct = len({each.ids.tobytes() for each in segments})
    text = f"computing frozen layers for sentiment, {distinct} of {distinct} texts"
    assert told == [text] * 2


def test_blocks_are_written_on_the_way(
    encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill loses a block at most: the next fill goes on after it."""
    monkeypatch.setattr(cache_module, "PACK_TOKENS", 20)
    monkeypatch.setattr(cache_module, "BLOCK_BYTES", 2000)
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    segments = [segment(n, n, ("sentiment",)) for n in range(2, 14)]

    def stop(text: str) -> None:
        if any(f" {done} of" in text for done in range(8, 13)):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opened(network, store).fill("sentiment", segments, stop)
    again = opened(network, store)
    again.fill("sentiment", segments)
    assert 8 - 4 <= again.found < len(segments)  # the largest block has four; their order is random
    assert again.found + again.computed == len(segments)
    with torch.inference_mode():
        found = network(again.pack(segments))["sentiment"]
    assert torch.equal(found, outputs_of(network, segments)["sentiment"])


def test_filling_opens_every_block_once(
    encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "BLOCK_BYTES", 1000)
    opened_paths: list[Path] = []
    block_type = store_module.StoredBlock
    monkeypatch.setattr(
        store_module, "StoredBlock", lambda path: opened_paths.append(path) or block_type(path)
    )
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    cache = opened(network, store)
    cache.fill("sentiment", [segment(n, n, ("sentiment",)) for n in range(2, 30)])
    assert len(set(opened_paths)) == len(opened_paths) > 10


def test_two_processes_share_the_work(encoder_folder: Any, store: Store) -> None:
    """A block that appears during a fill is not computed again."""
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    segments = [segment(n, n, ("sentiment",)) for n in range(2, 14)]
    cache, other = opened(network, store), opened(network, store)
    other.fill("sentiment", segments)
    cache.fill("sentiment", segments)
    assert (other.computed, cache.computed) == (len(segments), 0)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_block_is_removed_and_computed_again(
    damage: str, encoder_folder: Any, store: Store
) -> None:
    network = build("frozen+late:SIS", Reading(), encoder_folder("bert")).eval()
    segments = [segment(n, n, ("sentiment",)) for n in range(2, 14)]
    opened(network, store).fill("sentiment", segments)
    (path,) = store.folder.rglob("*.mops-block")
    whole = path.read_bytes()
    flipped = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
    path.write_bytes({"flipped": flipped, "cut": whole[:-1], "empty": b""}[damage])
    with pytest.warns(StoreWarning, match=r"is broken and was removed"):
        cache = opened(network, store)
        pack = cache.pack(segments)
    with torch.inference_mode():
        found = network(pack)["sentiment"]
    assert torch.equal(found, outputs_of(network, segments)["sentiment"])
    assert not path.exists()
    cache.fill("sentiment", segments)
    assert cache.computed == len(segments) and path.read_bytes() == whole
