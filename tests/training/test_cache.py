"""Frozen parts from the cache: the same bits as computed, and no work below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from caching import PLANS, POOLED, WITHOUT, build, filled, opened, train

from building import (
    DEPTH,
    NAMES,
    build_network,
    check_batch_invariance,
    mixed_batch,
    mixed_segments,
    outputs_of,
    segment,
)
from mops.config.training import Training
from mops.model import encoder as encoder_module
from mops.model.encoder import encode
from mops.plans.shapes import Reading
from mops.store import Store, find_store
from mops.training import feature_cache as cache_module
from mops.training.feature_cache import find_prefix, open_cache
from mops.training.optim import build_optimizer
from stepping import take_step


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


# ------------------------------------------------------------------ what is frozen


@pytest.mark.parametrize("name", PLANS)
def test_how_far_a_plan_is_frozen(name: str) -> None:
    plan, reading, stages = PLANS[name]
    prefix = find_prefix(build_network(plan, reading=reading))
    assert prefix.stages == stages
    assert prefix.layout.depth == min(DEPTH, stages - 1)
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


FAMILIES = [("bert", name) for name in PLANS]
FAMILIES += [("modernbert", name) for name in ("late", "layers", "separate", "top")]


@pytest.mark.parametrize(("family", "name"), FAMILIES)
def test_training_with_the_cache_is_training_without_it(
    family: str, name: str, encoder_folder: Any, store: Store
) -> None:
    """Dropout is on above the prefix; losses, norms and all weights are equal after each step."""
    plan, reading, _ = PLANS[name]
    plain, cached = (build(plan, reading, encoder_folder(family)) for _ in range(2))
    cache = filled(cached, store, every=2)
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
    cache = filled(network, store, every=2)
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
    first = filled(network, store)
    expected = outputs_of(network, segments)
    again = filled(network, Store(store.folder))
    assert (again.computed, again.found) == (0, first.computed + first.found)
    monkeypatch.setattr(again, "compute", None)  # nothing is computed
    with torch.inference_mode():
        found = network(again.pack(segments))
    assert all(torch.equal(found[task], values) for task, values in expected.items())


def test_bits_do_not_depend_on_the_batch_where_the_pack_begins_above(
    encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build("layers:FFSI", Reading(), encoder_folder("bert")).eval()
    cache = opened(network, store)
    monkeypatch.setattr("building.pack_segments", lambda segments, _: cache.pack(segments))
    check_batch_invariance(network)


# ------------------------------------------------------------------ no work below


@pytest.mark.parametrize("name", ["late", "layers", "separate"])
def test_nothing_below_is_packed_or_computed(
    name: str, encoder_folder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, reading, stages = PLANS[name]
    network = build(plan, reading, encoder_folder("bert"))
    cache = filled(network, store)
    segments = mixed_segments(network)
    pack = cache.pack(segments)
    assert len(pack.layers) == DEPTH + 1 - stages and pack.embeddings == ()
    served: list[str] = []
    serve = encoder_module.apply_outer
    monkeypatch.setattr(
        encoder_module,
        "apply_outer",
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
    optimizer = build_optimizer(network, training)
    take_step(network, optimizer, mixed_batch(network), training, step=0, total=1)
    frozen = [p for owner, _, p in network.owner_parameters() if network.rates[owner] == 0]
    assert frozen and all(p.grad is None and p not in optimizer.state for p in frozen)
