"""Combined gradients against closed forms, on vectors and on a real network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from formulas import nearest_to_zero, pcgrad

import mops
from building import THREE_TASKS, build_network, mixed_batch, shake
from mops.config.training import (
    AGGREGATORS,
    LOSS_WEIGHTS,
    SUM,
    Aggregator,
    Training,
    check_solver_installed,
)
from mops.data.batches import make_batch
from mops.errors import RecipeError
from mops.training.losses import (
    Combined,
    Sum,
    build_aggregator,
    build_gradients,
    shared_parameters,
)
from mops.training.optim import build_optimizer
from mops.training.prepare import build_trainer, prepare
from mops.training.step import compute_losses
from mops.training.step import take_step as step_of_learner
from running import world
from stepping import take_step

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS
USABLE = [n for n, row in AGGREGATORS.items() if all(find_spec(p) for p in row.needs)]
G1, G2 = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([-2.0, 1.0, 0.5])  # in conflict


def combined(name: str, *rows: torch.Tensor) -> torch.Tensor:
    return build_aggregator(name)(torch.stack(rows))


# ------------------------------------------------------------------ a network


def shaken(plan: str, tasks: Sequence[Any] = THREE_TASKS, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    network = build_network(plan, tasks=tasks, seed=seed)
    shake(network, seed)
    return network


def own_gradients(network: Any, weights: dict[str, float] | None = None) -> dict[str, Any]:
    """Of each task alone: owner and name -> gradient of its weighted loss."""
    found = {}
    for task, loss in compute_losses(network, mixed_batch(network)).items():
        names, parameters = zip(
            *(((o, n), p) for o, n, p in network.owner_parameters() if p.requires_grad), strict=True
        )
        term = (weights or {}).get(task, 1.0) * loss
        gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
        found[task] = {
            name: torch.zeros_like(p) if g is None else g.to_dense()
            for name, g, p in zip(names, gradients, parameters, strict=True)
        }
    return found


def after_backward(network: Any, gradients: Any, weights: dict[str, float] | None = None) -> Any:
    network.zero_grad(set_to_none=True)
    losses = compute_losses(network, mixed_batch(network))
    terms = {task: (weights or {}).get(task, 1.0) * loss for task, loss in losses.items()}
    total = gradients.backward(network, terms)
    assert float(total.detach()) == pytest.approx(sum(float(t.detach()) for t in terms.values()))
    return {
        (o, n): None if p.grad is None else p.grad.to_dense()
        for o, n, p in network.owner_parameters()
        if p.requires_grad
    }


def is_shared(network: Any, owner: str) -> bool:
    return len(network.layout.users[owner]) > 1


def flat_shared(network: Any, gradients: dict[Any, torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for (o, _), g in gradients.items() if is_shared(network, o)])


def pair_of_gradients(*, conflict: bool, tasks: Sequence[Any] = (SENTIMENT, SIMILARITY)) -> Any:
    """A network whose two tasks agree or disagree on what they share."""
    for seed in range(40):
        network = shaken("hybrid:2", tasks, seed)
        one, two = (flat_shared(network, g) for g in own_gradients(network).values())
        cosine = one @ two / (one.norm() * two.norm())
        if (cosine < -0.05) if conflict else (cosine > 0.05):
            return network, one, two
    raise AssertionError("no such network among these seeds")


@pytest.mark.parametrize("conflict", [True, False])
@pytest.mark.parametrize(("name", "formula"), [("pcgrad", pcgrad), ("mgda", nearest_to_zero)])
def test_shared_weights_get_the_formula_and_the_others_their_own_gradient(
    name: str, formula: Any, conflict: bool
) -> None:
    network, one, two = pair_of_gradients(conflict=conflict)
    alone = own_gradients(network)
    found = after_backward(network, Combined(name))
    torch.testing.assert_close(
        flat_shared(network, found), formula(one, two), rtol=2e-2 if name == "mgda" else 1e-4,
        atol=5e-3 if name == "mgda" else 1e-6,
    )  # fmt: skip
    for (owner, part), gradient in found.items():
        if not is_shared(network, owner):
            (user,) = network.layout.users[owner]
            torch.testing.assert_close(gradient, alone[user][owner, part], rtol=1e-4, atol=1e-7)


def test_without_conflict_pcgrad_is_the_sum() -> None:
    network, one, two = pair_of_gradients(conflict=False)
    assert one @ two > 0
    added, mended = after_backward(network, Sum()), after_backward(network, Combined("pcgrad"))
    for name, gradient in added.items():
        torch.testing.assert_close(mended[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_task_has_zeros_where_a_shared_weight_is_not_on_its_way() -> None:
    """Two of three tasks share a late layer: the mean there is still over three."""
    network = shaken("late:S/paraphrase+similarity")
    assert network.layout.users["late1/paraphrase+similarity"] == ("paraphrase", "similarity")
    alone = own_gradients(network)
    found = after_backward(network, Combined("mean"))
    for (owner, part), gradient in found.items():
        summed = sum(alone[task][owner, part] for task in alone)
        factor = 1 / 3 if is_shared(network, owner) else 1.0  # also where only two pass
        torch.testing.assert_close(gradient, factor * summed, rtol=1e-4, atol=1e-7)


def test_mgda_is_over_all_shared_weights_together() -> None:
    """One vector per task, not one per layer: its three weights are the same everywhere."""
    network = shaken("hybrid:2")
    alone = own_gradients(network)
    found = after_backward(network, Combined("mgda"))
    jacobian = torch.stack([flat_shared(network, g) for g in alone.values()])
    vector = flat_shared(network, found)
    shares = torch.linalg.lstsq(jacobian.T.double(), vector.double()).solution
    torch.testing.assert_close(shares.float() @ jacobian, vector, rtol=1e-3, atol=1e-5)
    assert float(shares.sum()) == pytest.approx(1.0, abs=1e-3) and (shares > -1e-3).all()


def test_a_task_of_weight_0_has_no_say() -> None:
    """The shortest vector between it and the others would be zero."""
    weights = {"sentiment": 0.0, "paraphrase": 1.0, "similarity": 1.0}
    network = shaken("shared")
    alone = own_gradients(network)
    found = after_backward(network, Combined("mgda"), weights)
    one, two = (flat_shared(network, alone[task]) for task in ("paraphrase", "similarity"))
    torch.testing.assert_close(
        flat_shared(network, found), nearest_to_zero(one, two), rtol=2e-2, atol=5e-3
    )


@pytest.mark.parametrize("plan", ["separate", "frozen+shared"])
def test_where_nothing_is_shared_and_learns_nothing_is_combined(plan: str) -> None:
    network = shaken(plan)
    assert shared_parameters(network, network.layout.tasks) == []
    added, kept = after_backward(network, Sum()), after_backward(network, Combined("mgda"))
    assert all(torch.equal(kept[name], gradient) for name, gradient in added.items())


def test_one_task_in_a_step_is_not_combined() -> None:
    network = shaken("shared")
    assert shared_parameters(network, ["sentiment"]) == []
    assert len(shared_parameters(network, ["sentiment", "similarity"])) > 10


def test_sum_is_bit_by_bit_one_backward_pass_of_the_weighted_sum() -> None:
    weights = {"sentiment": 0.3, "paraphrase": 1.0, "similarity": 2.0}
    network = shaken("hybrid:2")
    found = after_backward(network, Sum(), weights)
    network.zero_grad(set_to_none=True)
    losses = compute_losses(network, mixed_batch(network))
    sum((weights[t] * x for t, x in losses.items()), start=torch.zeros(())).backward()
    for owner, name, parameter in network.owner_parameters():
        assert torch.equal(found[owner, name], parameter.grad.to_dense()), (owner, name)


def test_gradients_that_are_no_numbers_stop_the_run_with_any_solver() -> None:
    network = shaken("shared")
    with torch.no_grad():
        network.bank["head/sentiment"].output.weight[0, 0] = float("nan")
    how = Training()
    facts = take_step(
        network, build_optimizer(network, how), mixed_batch(network), how, step=0, total=9,
        gradients=Combined("config"),
    )  # fmt: skip
    assert not facts.is_finite


def test_what_gradvac_remembers_comes_back() -> None:
    first, copy, fresh = Combined("gradvac"), Combined("gradvac"), Combined("gradvac")
    tasks, rows = ("a", "b"), torch.stack([G1, G2])
    first.combine(tasks, rows)
    copy.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    again = first.combine(tasks, rows)
    assert torch.equal(copy.combine(tasks, rows), again)
    assert not torch.equal(fresh.combine(tasks, rows), again)


# ------------------------------------------------------------------ learning


def methods() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"training__gradients": name} for name in (SUM, *USABLE)]
    found += [{"training__loss_weights": word} for word in LOSS_WEIGHTS]
    found.append({"training__loss_weights": "uncertainty", "training__gradients": "pcgrad"})
    return [*found, {"tasks__sentiment__loss": "ordinal"}]


@pytest.mark.parametrize(
    "settings", methods(), ids=lambda given: "-".join(map(str, given.values()))
)
def test_one_batch_is_learned(settings: dict[str, Any], tmp_path: Path) -> None:
    """Every loss on one batch of the toy world is lower after a few steps."""
    recipe = world().recipe(
        "hybrid:1", training__learning_rate=2e-3, training__head_learning_rate=5e-3,
        training__dropout=0.0, training__head_dropout=0.0, training__max_steps=40, **settings,
    )  # fmt: skip
    trainer = build_trainer(tmp_path, prepare(recipe, lambda phase: None))
    data, stage = trainer.objective.data, trainer.schedule.stages[0]
    batch = make_batch(data, {task: range(5) for task in data})
    seen = [step_of_learner(trainer.learner, batch, stage, step).losses for step in range(12)]
    for task, loss in seen[0].items():
        assert seen[-1][task] < 0.9 * loss, task


# ------------------------------------------------------------------ names


def test_names_that_do_not_exist() -> None:
    with pytest.raises(RecipeError, match=r"allowed: sum, pcgrad, .*Did you mean 'pcgrad'\?"):
        world().recipe(training__gradients="pcgard")
    with pytest.raises(RecipeError, match=r"per task, uncertainty, dwa\. Did you mean 'uncertain"):
        world().recipe(training__loss_weights="uncertainity")
    with pytest.raises(RecipeError, match=r"training\.loss_weights\.similarity .* at least 0"):
        world().recipe(training__loss_weights={"similarity": -1})


def test_a_solver_that_is_not_there_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Aggregator("UPGrad", "", needs=("no_such_solver",), extra="quadprog_projector")
    monkeypatch.setitem(AGGREGATORS, "upgrad", row)
    with pytest.raises(RecipeError, match=r"needs no_such_solver.*torchjd\[quadprog_projector\]"):
        mops.train(world().recipe(training__gradients="upgrad"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_solver_installed(SUM)


def test_every_row_names_a_class_of_torchjd() -> None:
    import torchjd.aggregation

    for row in AGGREGATORS.values():
        assert issubclass(getattr(torchjd.aggregation, row.kind), torchjd.aggregation.Aggregator)
    assert isinstance(build_gradients(SUM), Sum)
    assert {"pcgrad", "gradvac", "mgda", "imtl-g", "aligned-mtl", "config", "graddrop"} <= {*USABLE}
