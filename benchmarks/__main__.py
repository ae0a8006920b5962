"""Run benchmarks one after the other, each in its own process, and print a summary.

python -m benchmarks                     all of them, on the sample
python -m benchmarks memory lengths      these two
python -m benchmarks --quick             one small case each, results discarded: does it run?
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def known() -> list[str]:
    """A benchmark is a module in this folder that has a `main`."""
    files = (file for file in sorted(HERE.glob("*.py")) if file != Path(__file__))
    return [file.stem for file in files if "\ndef main(" in file.read_text("utf-8")]


def main() -> None:
    options = read_arguments(known())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.quick else RESULTS
        failed = [name for name in options.names if not run(name, options, folder)]
        done = [name for name in options.names if name not in failed]
        print("\n" + table([row for name in done for row in rows(folder / f"{name}.json")]))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see their output above")


def read_arguments(names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(names)}; default: all")
    parser.add_argument("--data", help="folder of data; default: the sample")
    parser.add_argument("--encoder", help="name or folder; default: the bundled one")
    parser.add_argument("--quick", action="store_true", help="one round of the first case")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    options.names = options.names or list(names)
    return options


def run(name: str, options: argparse.Namespace, folder: Path) -> bool:
    """Whether it succeeded and left a result."""
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    words = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(folder)]
    words += ["--data", options.data] if options.data else []
    words += ["--encoder", options.encoder] if options.encoder else []
    words += ["--quick", "--rounds", "1"] if options.quick else []
    paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    one_thread = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    child = os.environ | one_thread | {"PYTHONPATH": paths}
    code = subprocess.run(words, env=child, check=False).returncode
    is_done = code == 0 and (folder / f"{name}.json").is_file()
    status = f"done in {time.monotonic() - started:.0f} s" if is_done else f"FAILED (exit {code})"
    print(f"=== {name}: {status}", flush=True)
    return is_done


def rows(path: Path) -> Iterator[tuple[str, ...]]:
    """(benchmark, case, alternative, speed relative to the reference, fraction of the peak)."""
    found = list(comparisons(json.loads(path.read_text("utf-8"))))
    for case, data in found:
        for name, facts in data["alternatives"].items():
            if name != data["reference"]:
                share = facts.get("share_of_peak")
                of_peak = "" if share is None else f"{share:.0%}"
                against = f"{facts['speedup']:.2f} x {data['reference']}"
                yield path.stem, case, name, against, of_peak
    if not found:
        yield path.stem, "", f"see benchmarks/results/{path.name}", "", ""


def comparisons(data: Mapping[str, Any], case: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it was found, comparison), however deep in a result."""
    if "alternatives" in data:
        yield case, data
        return
    for key, value in data.items():
        if isinstance(value, dict):
            yield from comparisons(value, f"{case} {key}".strip().removeprefix("cases "))


def table(cells: Sequence[tuple[str, ...]]) -> str:
    header = ("benchmark", "case", "alternative", "speed", "of peak")
    whole = [header, *cells]
    widths = [max(len(row[n]) for row in whole) for n in range(len(header))]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in whole)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
