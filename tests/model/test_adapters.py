"""Adapters: every kind at every site against its equation, written out for one sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_bert import BY_HAND, Added, states_by_hand
from torch import Tensor
from torch.nn.functional import gelu

from building import DEPTH, WIDTH, build_network, hidden_of, segment, shake
from mops.model.network import Network
from mops.plans.rows import KINDS, ON_TOP, Addition, SharingPlan

OWN = ("layer", "task")
SIZE = 24  # divided by 6 heads and by 12
TASKS = ("sentiment", "similarity")
PLACES = [(kind, site) for kind, words in KINDS.items() for site in words.sites]


def row(kind: str, *sites: str, **more: Any) -> Addition:
    """An addition with a copy of every part per layer and task, unless it says otherwise."""
    size = SIZE if KINDS[kind].is_sized else 0
    plain = {"per": dict.fromkeys(KINDS[kind].parts, OWN), "size": size}
    plain |= {"experts": 3} if "router" in KINDS[kind].parts else {}
    return Addition(name="new", kind=kind, sites=sites, **plain | more)


def with_gate(kind: str, per: tuple[str, ...] = OWN) -> dict[str, tuple[str, ...]]:
    return {**dict.fromkeys(KINDS[kind].parts, OWN), "gate": per}


def moved(plan: Any, folder: Any) -> Network:
    """In double precision, with adapters that are no longer at the identity."""
    if isinstance(plan, Addition):
        plan = SharingPlan(name="test", additions=(plan,))
    network = build_network(plan, folder("bert")).double()
    for n, (owner, module) in enumerate(network.bank.items()):
        if owner.startswith(tuple(f"{row.name}_" for row in network.layout.plan.additions)):
            shake(module, seed=n, size=0.3)
    return network


def parts_of(network: Network, name: str, kind: str, tail: str | dict[str, str]) -> dict[str, Any]:
    """The parts of an addition by the names their owners must have."""
    tails = tail if isinstance(tail, dict) else dict.fromkeys(KINDS[kind].parts, tail)
    return {part: network.bank[f"{name}_{part}{end}"] for part, end in tails.items()}


def by_hand(network: Network, kind: str, site: str, task: str, factor: float = 1.0) -> Added:
    """The addition named `new`, with all its parts per layer and task."""
    place, heads = ("top", 12) if site == ON_TOP else ("layer", 6)

    def added(n: int, x: Tensor) -> Tensor:
        parts = parts_of(network, "new", kind, f"/{place}{n:02d}/{task}")
        return factor * BY_HAND[kind](parts, x, heads)

    return {site: added}


def assert_states(
    network: Network,
    added: Callable[[str], Added],
    *,
    tops: int = 0,
    norms: str = "norms/layer{:02d}",
) -> None:
    """In one pack of two tasks, every token of every sequence is what the equations give."""
    segments = [segment(n, n, (task,)) for task in TASKS for n in (1, 2, 7, 18)]
    for task in TASKS:
        own = [each for each in segments if each.tasks == (task,)]
        for ours, each in zip(hidden_of(network, segments, task), own, strict=True):
            expected = states_by_hand(
                network.bank,
                each,
                added(task),
                depth=DEPTH,
                tops=tops,
                norms=norms.replace("TASK", task),
            )
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)


def differs(network: Network, other: Network) -> bool:
    (one,), (two,) = (hidden_of(n, [segment(9, 9, TASKS[:1])], TASKS[0]) for n in (network, other))
    return bool((one - two).abs().max() > 1e-3)


# ------------------------------------------------------------------ kinds and sites


@pytest.mark.parametrize(("kind", "site"), PLACES)
def test_equation(kind: str, site: str, encoder_folder: Any) -> None:
    network = moved(row(kind, site), encoder_folder)
    tops = int(site == ON_TOP)
    assert_states(network, lambda task: by_hand(network, kind, site, task), tops=tops)
    assert differs(network, build_network("shared", encoder_folder("bert")).double())


@pytest.mark.parametrize(("kind", "site"), PLACES)
def test_a_fixed_factor_multiplies_an_adapter(kind: str, site: str, encoder_folder: Any) -> None:
    network = moved(row(kind, site, scale=-0.7), encoder_folder)
    tops = int(site == ON_TOP)
    assert_states(network, lambda task: by_hand(network, kind, site, task, -0.7), tops=tops)


@pytest.mark.parametrize(("kind", "site"), [*PLACES[:1], ("lora", "in_attention"), PLACES[-1]])
def test_an_activation_of_the_output(kind: str, site: str, encoder_folder: Any) -> None:
    """As in the code of the authors of PALs: GELU after the last projection."""
    network = moved(row(kind, site, activation="gelu", scale=0.7), encoder_folder)

    def added(task: str) -> Added:
        plain = by_hand(network, kind, site, task)[site]
        return {site: lambda n, x: 0.7 * gelu(plain(n, x))}

    assert_states(network, added, tops=int(site == ON_TOP))


@pytest.mark.parametrize("bound", [0.0, 0.5])
@pytest.mark.parametrize(("kind", "site"), [("pal", ON_TOP), ("bottleneck", "beside_layer")])
def test_a_gate_is_a_learned_factor_within_its_bound(
    kind: str, site: str, bound: float, encoder_folder: Any
) -> None:
    gated = row(kind, site, per=with_gate(kind, ("task",)), scale=0.1, bound=bound)
    first = build_network(SharingPlan(name="first", additions=(gated,)), encoder_folder("bert"))
    network = moved(gated, encoder_folder)

    def factor_of(network: Network, task: str) -> Tensor:
        gate: Any = network.bank[f"new_gate/{task}"]
        return bound * torch.tanh(gate.gate / bound) if bound else gate.gate

    def added(task: str) -> Added:
        return by_hand(network, kind, site, task, factor_of(network, task).item())

    for task in TASKS:
        assert factor_of(first, task).item() == pytest.approx(0.1)
        assert factor_of(network, task).item() != pytest.approx(0.1)
    assert_states(network, added, tops=int(site == ON_TOP))
    with torch.no_grad():
        gate: Any = network.bank["new_gate/sentiment"]
        gate.gate.fill_(100.0)
    assert factor_of(network, "sentiment").item() == pytest.approx(bound or 100.0)
    assert_states(network, added, tops=int(site == ON_TOP))


# ------------------------------------------------------------------ owners


def test_an_adapter_of_some_layers(encoder_folder: Any) -> None:
    network = moved(row("bottleneck", "after_feedforward", layers=(1, 2)), encoder_folder)
    names = {owner for owner in network.bank if owner.startswith("new_down")}
    tasks = network.layout.tasks
    assert names == {f"new_down/layer0{n}/{task}" for n in (1, 2) for task in tasks}

    def added(task: str) -> Added:
        inside = by_hand(network, "bottleneck", "after_feedforward", task)["after_feedforward"]
        return {
            "after_feedforward": lambda n, x: inside(n, x) if n in (1, 2) else torch.zeros_like(x)
        }

    assert_states(network, added)


def test_tasks_of_a_group_share_an_adapter(encoder_folder: Any) -> None:
    grouped = row("lora", "in_attention", groups=(("sentiment", "similarity"),))
    network = moved(grouped, encoder_folder)
    names = {owner.split("/")[-1] for owner in network.bank if owner.startswith("new_")}
    assert names == {"sentiment+similarity", "paraphrase"}
    assert_states(
        network, lambda _: by_hand(network, "lora", "in_attention", "sentiment+similarity")
    )


def test_parts_may_be_shared_differently(encoder_folder: Any) -> None:
    network = moved(row("bottleneck", ON_TOP, per={"down": (), "up": ("task",)}), encoder_folder)

    def added(task: str) -> Added:
        parts = parts_of(network, "new", "bottleneck", {"down": "", "up": f"/{task}"})
        return {ON_TOP: lambda n, x: BY_HAND["bottleneck"](parts, x, 0)}

    assert_states(network, added, tops=1)


def test_one_adapter_at_several_sites_has_the_same_weights(encoder_folder: Any) -> None:
    """And as many heads as each site has: 6 beside a layer, 12 on top."""
    network = moved("pals:both-same", encoder_folder)
    assert sum(owner.startswith("pal_") for owner in network.bank) == 3 * 3

    def added(task: str) -> Added:
        parts = parts_of(network, "pal", "pal", f"/{task}")
        return {
            "beside_layer": lambda n, x: BY_HAND["pal"](parts, x, 6),
            ON_TOP: lambda n, x: BY_HAND["pal"](parts, x, 12),
        }

    assert_states(network, added, tops=1)


def test_six_on_top_share_projections_but_not_attentions(
    encoder_folder: Any,
) -> None:
    shared = {"down": ("task",), "attend": OWN, "up": ("task",)}
    network = moved(row("pal", ON_TOP, per=shared, depth=6), encoder_folder)
    assert sum(owner.startswith("new_attend") for owner in network.bank) == 6 * 3
    assert sum(owner.startswith(("new_down", "new_up")) for owner in network.bank) == 2 * 3

    def added(task: str) -> Added:
        def top(n: int, x: Tensor) -> Tensor:
            tails = {"down": f"/{task}", "attend": f"/top{n:02d}/{task}", "up": f"/{task}"}
            return BY_HAND["pal"](parts_of(network, "new", "pal", tails), x, 12)

        return {ON_TOP: top}

    assert_states(network, added, tops=6)


def test_adapters_at_one_site_add_up(encoder_folder: Any) -> None:
    """The second has the same input as the first, not its output."""
    site = "after_attention"
    bias = Addition(name="bias", kind="task_embedding", sites=(site,), per={"vector": ("task",)})
    rows = bias, row("bottleneck", site)
    network = moved(SharingPlan(name="two", additions=rows), encoder_folder)

    def added(task: str) -> Added:
        first = by_hand(network, "bottleneck", site, task)[site]
        second: Any = network.bank[f"bias_vector/{task}"]
        return {site: lambda n, x: first(n, x) + second.vector}

    assert_states(network, added)


# ------------------------------------------------------------------ the short forms


def test_lora_is_a_change_of_the_weights(encoder_folder: Any) -> None:
    """W + 2 B A in the rows of the queries and of the values gives the same hidden states."""
    network = moved("lora:3", encoder_folder)
    merged = build_network("shared", encoder_folder("bert")).double()
    with torch.no_grad():
        for n in range(DEPTH):
            weight = merged.bank[f"attention/layer{n:02d}"].query_key_value.weight  # type: ignore
            up: Any = network.bank[f"lora_up/layer{n:02d}/sentiment"]
            down: Any = network.bank[f"lora_down/layer{n:02d}/sentiment"]
            assert down.weight.shape == (2 * 3, WIDTH) and up.query.shape == (WIDTH, 3)
            weight[:WIDTH] += 2 * up.query @ down.weight[:3]
            weight[2 * WIDTH :] += 2 * up.value @ down.weight[3:]
    segments = [segment(n, n, ("sentiment",)) for n in (1, 6, 19)]
    for ours, theirs in zip(
        *(hidden_of(each, segments, "sentiment") for each in (network, merged)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_a_vector_added_to_all_keys_changes_nothing(encoder_folder: Any) -> None:
    """softmax(q k + q c) = softmax(q k): only two thirds of an embedding have an effect."""
    plain = build_network("shared", encoder_folder("bert")).double()
    for third, has_effect in enumerate((True, False, True)):
        network = build_network("embert", encoder_folder("bert")).double()
        for n in range(DEPTH):
            vector: Any = network.bank[f"task_embedding_vector/layer{n:02d}/sentiment"]
            with torch.no_grad():
                vector.vector[third * WIDTH : (third + 1) * WIDTH].normal_()
        (ours,), (theirs,) = (
            hidden_of(each, [segment(11, 1, TASKS[:1])], TASKS[0]) for each in (network, plain)
        )
        assert bool((ours - theirs).abs().max() > 1e-3) == has_effect
        assert has_effect or torch.allclose(ours, theirs, rtol=1e-9, atol=1e-10)


def test_parallel_pals_share_projections_over_the_layers(encoder_folder: Any) -> None:
    network = moved("pals:parallel-weighted", encoder_folder)

    def added(task: str) -> Added:
        def beside(n: int, x: Tensor) -> Tensor:
            tails = {"down": f"/{task}", "attend": f"/layer{n:02d}/{task}", "up": f"/{task}"}
            gate: Any = network.bank[f"pal_gate/layer{n:02d}"]
            return gate.gate * BY_HAND["pal"](parts_of(network, "pal", "pal", tails), x, 6)

        return {"beside_layer": beside}

    assert_states(network, added)


def test_bitfit_adds_a_bias_wherever_the_encoder_has_one(encoder_folder: Any) -> None:
    network = moved("bitfit", encoder_folder)
    for owner, module in network.bank.items():
        if owner.startswith("norms"):
            shake(module, seed=3)
    sites = ("in_attention", "after_attention", "in_feedforward", "after_feedforward")

    def added(task: str) -> Added:
        def bias(site: str) -> Callable[[int, Tensor], Tensor]:
            def vector(n: int, x: Tensor) -> Tensor:
                part: Any = network.bank[f"bias_{site}_vector/layer{n:02d}/{task}"]
                return part.vector

            return vector

        return {site: bias(site) for site in sites}

    assert_states(network, added, norms="norms/layer{:02d}/TASK")
