"""Break named lines of the package, one at a time, and see whether the tests notice.

python scripts/check_mutants.py              all of scripts/mutants.yaml
python scripts/check_mutants.py NAME...      some of them

The lines are broken in a copy of the package. Exit code 1 when one is not noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mops.yaml_io import read_yaml

ROOT = Path(__file__).parent.parent
ABANDONED = 900.0  # seconds


def broken(source: Path, mutant: Mapping[str, Any]) -> str:
    """The text of a file with one line replaced, which must be there once."""
    text = source.read_text("utf-8")
    if text.count(f"{mutant['old']}\n") != 1:
        sys.exit(f"{source}: not exactly one line {mutant['old']!r}; mend scripts/mutants.yaml")
    return text.replace(f"{mutant['old']}\n", f"{mutant['new']}\n")


def is_noticed(copy: Path, tests: list[str]) -> bool:
    words = ["-m", "pytest", "-x", "-q"]
    files = [str(ROOT / "tests" / name) for name in tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *words, *files],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=ABANDONED,
        )
    except subprocess.TimeoutExpired:  # it hangs: this is noticed too
        return True
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    return done.returncode == 1


def main() -> None:
    mutants = read_yaml(ROOT / "scripts" / "mutants.yaml")
    chosen = {name: mutants[name] for name in sys.argv[1:] or mutants}
    missed = []
    with tempfile.TemporaryDirectory(prefix="mops-mutants-") as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        for name, mutant in chosen.items():
            file, begin = Path(folder) / "mops" / mutant["file"], time.monotonic()
            sound = file.read_text("utf-8")
            file.write_text(broken(file, mutant), "utf-8")
            is_seen = is_noticed(Path(folder), mutant["tests"])
            file.write_text(sound, "utf-8")
            missed += [] if is_seen else [name]
            seconds = time.monotonic() - begin
            word = "noticed" if is_seen else "NOT NOTICED"
            print(f"{word:<12}{name} ({', '.join(mutant['tests'])}; {seconds:.0f} s)", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
