"""The page on reliability: what it shows was measured, and nothing in it was lost or wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running import run_python

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_result() -> None:
    done = run_python(str(ROOT / "scripts" / "make_reliability.py"), "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and cc")
def test_some_faults(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = ["--minutes", "0.5", "--lanes", "1", "--seed", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "faults", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text("utf-8"))["faults"]
