"""Records: what a run wrote down, read and written as JSON."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.files import write_text

PACKAGES = ("mops", "torch", "torchjd", "numpy", "tokenizers", "safetensors", "pydantic")


@dataclass(frozen=True)
class Record:
    """Everything that tables, reports and surveys need of one run."""

    run_info: Mapping[str, Any]
    train_info: Mapping[str, Any]
    scores: Mapping[str, Any]
    costs: Mapping[str, Any]
    warnings: tuple[str, ...]
    meta_info: Mapping[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def write_record(path: Path, record: Record) -> None:
    write_text(path, record.to_json())


def read_record(path: str | Path) -> Record:
    """The record of a run, from its record.json."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        return Record(**{**data, "warnings": tuple(data["warnings"])})
    except (OSError, ValueError, TypeError, KeyError) as cause:
        raise UsageError(f"{path} is no record of a run: {cause}") from cause


def machine_info() -> dict[str, Any]:
    """Versions and hardware."""
    return {
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": processor_name(),
        "command": " ".join(["mops", *sys.argv[1:]]),
    }


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
