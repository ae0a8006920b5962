"""Tensors to and from safetensors files; whatever goes wrong there is an OSError."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Write tensors and a few words about them."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt", **(facts or {})})
    except SafetensorError as cause:  # a full disk comes as this
        raise OSError(None, str(cause)) from cause


def read_facts(path: Path) -> dict[str, str]:
    """The words beside the tensors of a file, alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError as cause:
        raise OSError(None, f"{cause}; the file is damaged or incomplete") from cause


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file, and the words beside them."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as cause:
        raise OSError(None, f"{cause}; the file is damaged or incomplete") from cause
