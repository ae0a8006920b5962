"""Bounds and pins of other packages: every direct one is bounded, pinned within, and hashed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SHIPPED = ("report", "serve", "onnx", "ray", "tensorboard")
DIRECT = [
    Requirement(text)
    for text in (*PROJECT["dependencies"], *(text for extra in SHIPPED for text in EXTRAS[extra]))
]
PINNED = (ROOT / "constraints.txt").read_text("utf-8")


@pytest.mark.parametrize("needed", DIRECT, ids=str)
def test_what_is_shipped_is_bounded_and_pinned_within(needed: Requirement) -> None:
    assert {part.operator for part in needed.specifier} == {">=", "<"}
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", PINNED, re.MULTILINE))
    assert needed.specifier.contains(pins[canonicalize_name(needed.name)])


def test_every_pin_has_hashes_and_no_host() -> None:
    parts = re.split(r"^(?=[\w.-]+==)", PINNED, flags=re.MULTILINE)[1:]
    assert len(parts) > len(DIRECT) and all("--hash=sha256:" in part for part in parts)
    assert "://" not in PINNED and "--index" not in PINNED and "--find" not in PINNED
