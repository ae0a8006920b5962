"""A tiny encoder for tests that train."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import write_long_encoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_encoder(tmp_path_factory.mktemp("encoder"))
