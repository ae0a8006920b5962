"""One bit of a saved state that is not what was written: the run is not resumed from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mops
from mops.errors import RunError
from mops.model.pretrained import read_tensors, write_tensors
from mops.training.checkpoint import STATE
from running import StopAt, world


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a state, that was broken off."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(ZeroDivisionError):
        mops.train(world().recipe(training__save_steps=2), folder, StopAt(6))
    return folder


@pytest.mark.parametrize("where", [0.05, 0.4, 0.75, 0.999])
def test_a_flipped_bit_in_weights_or_moments_is_found(stopped: Path, where: float) -> None:
    path = stopped / STATE
    before = path.read_bytes()
    start = 8 + int.from_bytes(before[:8], "little")
    data = bytearray(before)
    data[start + int(where * (len(data) - start))] ^= 4
    path.write_bytes(data)
    try:
        with pytest.raises(RunError, match=r"checksum is wrong.*delete the run folder"):
            mops.train(world().recipe(training__save_steps=2), stopped)
    finally:
        path.write_bytes(before)


def test_changed_progress_is_found(stopped: Path) -> None:
    path = stopped / STATE
    before = path.read_bytes()
    path.write_bytes(before.replace(b'\\"tokens\\": ', b'\\"tokens\\":1', 1))
    assert path.read_bytes() != before
    try:
        with pytest.raises(RunError, match="checksum is wrong"):
            mops.train(world().recipe(training__save_steps=2), stopped)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_any_type_and_shape_has_a_checksum(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": torch.ones(2, 3).to(dtype).T, "b": torch.tensor(1).to(dtype)}
    write_tensors(tmp_path / "file", tensors, {"step": "3"})
    found, facts = read_tensors(tmp_path / "file")
    assert facts["step"] == "3" and all(torch.equal(found[n], t) for n, t in tensors.items())
