"""One thread, no hub, one set of tiny encoder folders for the whole session."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
# What tests keep between runs is not the user's; children inherit it.
os.environ["MOPS_CACHE"] = tempfile.mkdtemp(prefix="mops-cache-")
os.environ["MOPS_CACHE_LIMIT"] = ""
# Ray kills workers when the machine is short of memory, whoever uses it; here nobody else counts.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from building import write_encoder

torch.set_num_threads(1)
atexit.register(shutil.rmtree, os.environ["MOPS_CACHE"], ignore_errors=True)

EncoderFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Training sets the threads of the whole process; every test starts with one."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> EncoderFolder:
    """`encoder_folder(family)`: a tiny random encoder, written once; leave it as it is."""

    @cache
    def folder(family: str = "bert", model_class: str = "", pooler: bool = True) -> Path:
        place = tmp_path_factory.mktemp(f"{family}-{model_class or 'plain'}-{pooler}")
        options = {} if pooler else {"add_pooling_layer": False}
        return write_encoder(place, family, model_class, **options)

    return folder


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """One small Ray cluster for all tests that need it; mops uses a session that is open."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'mops-nlp[ray]'")
    from mops.surveys.executors import ray_session

    with ray_session() as module:
        yield module
