"""Frozen parts from the cache: the same bits as computed, and no work below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from building import (
    DEPTH,
    NAMES,
    build_network,
    company_changes_nothing,
    mixed_batch,
    mixed_segments,
    outputs_of,
    segment,
    shake,
)
from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.encoder import encoder as encoder_module
from mops.encoder.encoder import encode
from mops.encoder.network import Network
from mops.fit import cache as cache_module
from mops.fit.cache import FrozenCache, open_cache
from mops.fit.prefix import find_prefix, prefix_digests
from mops.fit.rates import build_optimiser
from mops.fit.step import take_step
from mops.settings import Training
from mops.shapes import Reading
from mops.store import Store, StoreWarning, find_store

FROZEN_FIRST: dict[str, Any] = {
    "name": "separate, its first layers frozen",
    "copies": [{"part": "*", "per": ["layer", "task"]}],
    "rates": [
        {"owner": "embeddings*", "factor": 0},
        {"owner": "*/layer00*", "factor": 0},
        {"owner": "*/layer01*", "factor": 0},
        {"owner": "*", "factor": 1},
    ],
}
FROZEN_WITH_ADDITION: dict[str, Any] = {
    "name": "a frozen addition of each task in the first layer",
    "additions": [
        {
            "name": "narrow",
            "kind": "bottleneck",
            "sites": ["after_attention"],
            "per": {"down": ["layer"], "up": ["task"]},
            "layers": [0, 0],
            "size": 4,
        }
    ],
    "rates": [
        {"owner": "embeddings*", "factor": 0},
        {"owner": "*/layer00*", "factor": 0},
        {"owner": "narrow_up*", "factor": 0},
        {"owner": "*", "factor": 1},
    ],
}
FROZEN_TOP: dict[str, Any] = {
    "name": "all frozen but an attention on top",
    "additions": [
        {
            "name": "top",
            "kind": "pal",
            "sites": ["on_top"],
            "per": {"down": ["task"], "attend": ["task"], "up": ["task"]},
            "size": 12,
        }
    ],
    "rates": [{"owner": "top_*", "factor": 1}, {"owner": "head*", "factor": 1},
              {"owner": "*", "factor": 0}],
}  # fmt: skip
POOLED = DEPTH + 1
# plan, reading -> how many stages are frozen: the embeddings, then the layers, then the tops
PLANS: dict[str, tuple[Any, Reading, int]] = {
    "late": ("frozen+late:SIS", Reading(), POOLED),
    "late, bi": ("frozen+late:SIS", Reading(pair="bi", pool="sum"), POOLED),
    "pooler": ("frozen+shared", Reading(pool="pooler"), POOLED),
    "cls": ("frozen+progressive", Reading(pool="cls"), POOLED),
    "layers": ("layers:FFSI", Reading(), 3),
    "layers, pooler": ("layers:FSIF", Reading(pool="pooler", pair="bi"), 2),
    "separate": (FROZEN_FIRST, Reading(), 3),
    "addition": (FROZEN_WITH_ADDITION, Reading(), 2),
    "top": (FROZEN_TOP, Reading(), POOLED),
    "separate, all": ("frozen+separate", Reading(), POOLED),
}
# What learns inside, or is there nothing to gain: no cache.
WITHOUT = {"frozen+pals:parallel": 1, "frozen+adapters:8": 1, "shared": 0, "layers:SFFF": 0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def build(plan: Any, reading: Reading, folder: Path, dropout: float = 0.3) -> Network:
    network = build_network(plan, folder, reading=reading, dropout=dropout)
    for n, (owner, module) in enumerate(network.bank.items()):
        if owner.startswith(("narrow", "top")):
            shake(module, seed=n)  # additions begin as nothing
    return network


def opened(network: Network, store: Store) -> FrozenCache:
    cache = open_cache(network, store)
    assert cache is not None
    return cache


def filled(network: Network, store: Store) -> FrozenCache:
    """Half of what a batch wants is there, the other half is computed when it is needed."""
    cache = opened(network, store)
    wanted = {task: [s for s in mixed_segments(network) if s.tasks == (task,)] for task in NAMES}
    cache.fill({task: segments[::2] for task, segments in wanted.items()})
    return cache


def train(network: Network, cache: FrozenCache | None, steps: int = 3) -> list[Any]:
    training = Training(learning_rate=1e-2, head_learning_rate=1e-2, max_steps=steps, seed=5)
    optimiser = build_optimiser(network, training)
    pack = cache.pack if cache else None
    return [
        take_step(
            network, optimiser, mixed_batch(network), training, step=n, total=steps, pack=pack
        )
        for n in range(steps)
    ]


# ------------------------------------------------------------------ what is frozen


@pytest.mark.parametrize("name", PLANS)
def test_how_far_a_plan_is_frozen(name: str) -> None:
    plan, reading, stages = PLANS[name]
    prefix = find_prefix(build_network(plan, reading=reading))
    assert prefix.stages == stages
    assert prefix.layers == min(DEPTH, stages - 1)
    assert prefix.is_pooled == (stages == POOLED and name != "top")


@pytest.mark.parametrize(("plan", "stages"), WITHOUT.items())
def test_without_a_frozen_layer_there_is_no_cache(plan: str, stages: int, store: Store) -> None:
    network = build_network(plan)
    assert find_prefix(network).stages == stages
    assert open_cache(network, store) is None


def test_a_stage_freezes_and_thaws(store: Store) -> None:
    network = build_network("shared")
    network.set_rates(dict.fromkeys(network.rates, 0.0) | {"head/sentiment": 1.0})
    assert find_prefix(network).is_pooled
    network.set_rates({**network.layout.rates, "embeddings": 0.0, "attention/layer00": 0.0})
    assert find_prefix(network).stages == 1
    network.set_rates(network.layout.rates)
    assert open_cache(network, store) is None


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE", "off")
    assert find_store() is None and open_cache(build_network("frozen+shared")) is None


# ------------------------------------------------------------------ the same bits


@pytest.mark.parametrize("name", PLANS)
def test_training_with_the_cache_is_training_without_it(
    name: str, encoder_folder: Any, store: Store
) -> None:
    """Dropout is on above the prefix; losses, norms and all weights are equal after each step."""
    plan, reading, _ = PLANS[name]
    plain, cached = (build(plan, reading, encoder_folder("bert")) for _ in range(2))
    cache = filled(cached, store)
    assert cache.computed > 0
    assert train(plain, None) == train(cached, cache)
    for owner, weight in plain.weights().items():
        assert torch.equal(weight, cached.weights()[owner]), owner


@pytest.mark.parametrize("name", PLANS)
def test_answers_with_the_cache_are_answers_without_it(
    name: str, encoder_folder: Any, store: Store
) -> None:
    """Also where one text is asked by many tasks and routes part below or above the prefix."""
    plan, reading, _ = PLANS[name]
    network = build(plan, reading, encoder_folder("bert")).eval()
    cache = filled(network, store)
    texts = 2 if reading.pair == "bi" else 1
    asked = [segment(5 + n, n, NAMES[1:] if n // texts % 2 else NAMES[1:2]) for n in range(8)]
    for segments in (mixed_segments(network), asked):
        expected = outputs_of(network, segments)
        with torch.inference_mode():
            found = network(cache.pack(segments))
        assert found.keys() == expected.keys()
        for task, values in expected.items():
            assert torch.equal(found[task], values), task


@pytest.mark.parametrize("name", ["late", "layers", "separate"])
def test_a_new_process_reads_what_was_written(
    name: str, encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, reading, _ = PLANS[name]
    network = build(plan, reading, encoder_folder("bert")).eval()
    segments = mixed_segments(network)
    wanted = {task: [s for s in segments if s.tasks == (task,)] for task in NAMES}
    opened(network, store).fill(wanted)
    expected = outputs_of(network, segments)
    again = opened(network, Store(store.folder))
    again.fill(wanted)
    assert (again.computed, again.found) == (0, len({s.ids.tobytes() for s in segments}))
    monkeypatch.setattr(again, "compute", None)  # nothing is computed
    with torch.inference_mode():
        found = network(again.pack(segments))
    assert all(torch.equal(found[task], values) for task, values in expected.items())


def test_company_changes_nothing_where_the_pack_begins_above(
    encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    cache = opened(network, store)
    monkeypatch.setattr("building.pack_segments", lambda segments, _: cache.pack(segments))
    company_changes_nothing(network)


# ------------------------------------------------------------------ no work below


@pytest.mark.parametrize("name", ["late", "layers", "separate"])
def test_nothing_below_is_packed_or_computed(
    name: str, encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, reading, stages = PLANS[name]
    network = build(plan, reading, encoder_folder("bert"))
    cache = opened(network, store)
    segments = mixed_segments(network)
    cache.fill({task: [s for s in segments if s.tasks == (task,)] for task in NAMES})
    pack = cache.pack(segments)
    assert len(pack.layers) == DEPTH + 1 - stages and pack.embeddings == ()
    assert len(pack.tokens.ids_T) == 0
    served: list[str] = []
    serve = encoder_module.serve
    monkeypatch.setattr(
        encoder_module,
        "serve",
        lambda bank, spans, seen: served.extend(s.owner for s in spans) or serve(bank, spans, seen),
    )
    network(pack)
    assert not any(network.rates[owner] == 0 for owner in served)


@pytest.mark.parametrize("name", PLANS)
def test_no_graph_gradient_or_moment_for_what_is_frozen(name: str, encoder_folder: Any) -> None:
    """Also without a cache: the hidden states at the prefix's top need no gradient."""
    plan, reading, _ = PLANS[name]
    network = build(plan, reading, encoder_folder("bert")).train()
    prefix = find_prefix(network)
    below = cache_module.pack_segments(mixed_segments(network), prefix.layout)
    assert not encode(network.bank, below).requires_grad
    training = Training(max_steps=1)
    optimiser = build_optimiser(network, training)
    take_step(network, optimiser, mixed_batch(network), training, step=0, total=1)
    frozen = [p for owner, _, p in network.owner_parameters() if network.rates[owner] == 0]
    assert frozen and all(p.grad is None and p not in optimiser.state for p in frozen)


# ------------------------------------------------------------------ keys


def test_copies_with_the_same_weights_share_an_entry(encoder_folder: Any) -> None:
    """And another plan with the same weights below; moved weights, or another depth, do not."""
    folder = encoder_folder("bert")
    network = build(FROZEN_FIRST, Reading(), folder)
    keys = prefix_digests(network, find_prefix(network))
    assert len(set(keys.values())) == 1
    other = build("layers:FFSI", Reading(), folder)
    assert set(prefix_digests(other, find_prefix(other)).values()) == set(keys.values())
    shake(network.bank["attention/layer01/similarity"], seed=1, size=1e-6)
    moved = prefix_digests(network, find_prefix(network))
    assert moved["sentiment"] == keys["sentiment"] != moved["similarity"]
    deeper = build("layers:FFFI", Reading(), folder)
    assert prefix_digests(deeper, find_prefix(deeper))["sentiment"] != keys["sentiment"]


def test_pooling_is_part_of_the_key_and_first_tokens_are_first_tokens(encoder_folder: Any) -> None:
    def key(pool: str) -> str:
        network = build("frozen+shared", Reading(pool=pool), encoder_folder("bert"))
        return prefix_digests(network, find_prefix(network))["sentiment"]

    assert key("mean") != key("sum") and key("cls") == key("pooler")


def test_token_types_are_part_of_a_sequence(encoder_folder: Any, store: Store) -> None:
    network = build("frozen+shared", Reading(), encoder_folder("bert")).eval()
    cache = opened(network, store)
    one = segment(8, 1, ("sentiment",))
    two = Segment(one.ids, 1 - one.types, one.tasks)
    cache.fill({"sentiment": [one, two, one]})
    assert cache.computed == 2
    with torch.inference_mode():
        found = network(cache.pack([one, two]))["sentiment"]
    assert torch.equal(found, outputs_of(network, [one, two])["sentiment"])
    assert not torch.equal(found[0], found[1])


# ------------------------------------------------------------------ vectors, bounds, damage


def table_of(segments: list[Segment]) -> TokenTable:
    return TokenTable(
        ids=np.concatenate([s.ids for s in segments]),
        types=np.concatenate([s.types for s in segments]),
        starts=np.cumsum([0, *(len(s.ids) for s in segments)]),
        per_row=2,
    )


def test_pooled_vectors_of_a_table(encoder_folder: Any, store: Store) -> None:
    reading = Reading(pool="mean", pair="bi")
    network = build("frozen+late:SIS", reading, encoder_folder("bert")).eval()
    segments = [segment(n, n % 5, ("similarity",)) for n in (9, 4, 9, 17, 2, 33)]
    vectors = opened(network, store).pooled("similarity", table_of(segments))
    assert vectors.dtype == np.float32 and vectors.shape == (6, network.layout.encoder.width)
    plain = cache_module.pack_segments(segments, network.layout)
    with torch.inference_mode():
        expected = network.pool(encode(network.bank, plain), plain)
    assert np.array_equal(vectors, expected[plain.found["similarity"]].numpy())


def test_what_does_not_fit_is_computed_each_time(encoder_folder: Any, tmp_path: Path) -> None:
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    segments = mixed_segments(network)
    told: list[tuple[int, int]] = []
    for limit, blocks in ((100, 0), (2**20, 1)):
        cache = opened(network, Store(tmp_path / str(limit), limit))
        cache.fill({"sentiment": segments}, lambda *done: told.append(done))
        assert sum(len(shelf.blocks) for shelf in cache.shelves.values()) == blocks
        expected = outputs_of(network, segments)
        with torch.inference_mode():
            found = network(cache.pack(segments))
        assert all(torch.equal(found[task], values) for task, values in expected.items())
    distinct = len({each.ids.tobytes() for each in segments})
    assert told == [(distinct, distinct)] * 2


def test_blocks_are_written_on_the_way(
    encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill loses a block at most: the next fill goes on after it."""
    monkeypatch.setattr(cache_module, "TOKENS", 20)
    monkeypatch.setattr(cache_module, "BLOCK_BYTES", 2000)
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    segments = [segment(n, n, ("sentiment",)) for n in range(2, 14)]

    def stop(done: int, total: int) -> None:
        if done >= 8:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opened(network, store).fill({"sentiment": segments}, stop)
    again = opened(network, store)
    again.fill({"sentiment": segments})
    assert again.found >= 6 and again.found + again.computed == len(segments)
    with torch.inference_mode():
        found = network(again.pack(segments))["sentiment"]
    assert torch.equal(found, outputs_of(network, segments)["sentiment"])


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_block_is_removed_and_computed_again(
    damage: str, encoder_folder: Any, store: Store
) -> None:
    network = build("frozen+late:SIS", Reading(), encoder_folder("bert")).eval()
    segments = [segment(n, n, ("sentiment",)) for n in range(2, 14)]
    opened(network, store).fill({"sentiment": segments})
    (path,) = store.folder.rglob("*.block")
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
    cache.fill({"sentiment": segments})
    assert cache.computed == len(segments) and path.read_bytes() == whole
