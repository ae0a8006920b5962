"""A row of a product has the same bits whatever the other rows are."""

from __future__ import annotations

import pytest
import torch

from mops.model.blocks import Dense

SHAPES = ((384, 1536), (1536, 384), (1152, 384), (1024, 512), (1536, 312), (768, 5), (384, 1))
ROWS = (1, 2, 11, 17, 40, 57, 64, 100, 128, 150, 192, 193, 300)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES)
def test_a_row_does_not_depend_on_the_others(n_in: int, n_out: int, threads: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    layer, inputs = Dense(n_in, n_out), torch.randn(1000, n_in)
    with torch.inference_mode():
        together = layer(inputs)
        for rows in ROWS:
            assert torch.equal(layer(inputs[:rows]), together[:rows]), rows
    expected = inputs.double() @ layer.weight.double().T + layer.bias.double()
    assert torch.allclose(together.double(), expected, atol=1e-5)
