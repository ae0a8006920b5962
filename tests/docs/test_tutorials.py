"""Every tutorial runs from top to bottom as they stand, on the sample and with the real encoder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mops

ROOT = Path(__file__).parent.parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    """`sh` blocks are run in order, named blocks are files, `output` blocks are what is printed."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "bin").mkdir()
    for name, words in {"mops": "-m mops", "python": ""}.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    child = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(mops.__file__).parents[1]),
        "OMP_NUM_THREADS": "2",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    printed = ""
    for language, name, body in BLOCK.findall(page.read_text("utf-8")):
        if name:
            (tmp_path / name).write_text(body, "utf-8")
        elif language == "sh":
            for line in body.splitlines():
                done = subprocess.run(
                    line, shell=True, cwd=tmp_path, env=child, capture_output=True, text=True,
                    check=False,
                )  # fmt: skip
                assert done.returncode == 0, f"{line}\n{done.stderr}"
                printed += done.stdout
        elif language == "output":
            assert body in printed, page
