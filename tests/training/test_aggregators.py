"""Ways to combine two gradients, each against its definition."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from formulas import nearest_to_zero, pcgrad

from mops.config.training import AGGREGATORS
from mops.training.losses import Combined, build_aggregator

USABLE = [n for n, row in AGGREGATORS.items() if all(find_spec(p) for p in row.needs)]
G1, G2 = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([-2.0, 1.0, 0.5])  # in conflict


def combined(name: str, *rows: torch.Tensor) -> torch.Tensor:
    return build_aggregator(name)(torch.stack(rows))


def test_pcgrad() -> None:
    assert G1 @ G2 < 0
    torch.testing.assert_close(combined("pcgrad", G1, G2), pcgrad(G1, G2))
    torch.testing.assert_close(combined("pcgrad", G1, -G2), G1 - G2)  # nothing to mend: the sum


@pytest.mark.parametrize("two", [G2, G1 + G2, G1 * 4])  # inside, inside, at an end
def test_mgda(two: torch.Tensor) -> None:
    torch.testing.assert_close(
        combined("mgda", G1, two), nearest_to_zero(G1, two), atol=5e-3, rtol=5e-3
    )


def test_gradvac_begins_as_pcgrad() -> None:
    """Its goal for the cosine is 0 at first."""
    torch.testing.assert_close(combined("gradvac", G1, G2), pcgrad(G1, G2), atol=1e-5, rtol=1e-5)


def test_imtl_g_has_the_same_projection_onto_each_gradient() -> None:
    found = combined("imtl-g", G1, G2)
    assert float(found @ G1 / G1.norm()) == pytest.approx(float(found @ G2 / G2.norm()), rel=1e-4)


def test_config_has_the_same_angle_to_each_gradient_and_their_projected_length() -> None:
    found = combined("config", G1, G2)
    unit = found / found.norm()
    assert float(unit @ G1 / G1.norm()) == pytest.approx(float(unit @ G2 / G2.norm()), rel=1e-4)
    assert float(found.norm()) == pytest.approx(float((G1 + G2) @ unit), rel=1e-4)


def test_graddrop_keeps_one_sign_everywhere() -> None:
    torch.manual_seed(0)
    found = combined("graddrop", G1, G2)
    for n, value in enumerate(found.tolist()):
        positive = sum(float(g[n]) for g in (G1, G2) if g[n] > 0)
        negative = sum(float(g[n]) for g in (G1, G2) if g[n] < 0)
        assert value in (positive, negative)


@pytest.mark.parametrize("name", USABLE)
def test_every_name_is_a_function_of_torchs_seed(name: str) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(combined(name, G1, G2, G1 + torch.tensor([0.0, -2.0, 0.0])))
    assert torch.equal(*found) and found[0].isfinite().all() and found[0].any()


@pytest.mark.parametrize("name", USABLE)
def test_one_row_is_left_as_it_is(name: str) -> None:
    assert torch.equal(Combined(name).combine(("a",), G1[None]), G1)
