"""`mops predict` on long files: does its memory stay constant?

python -m benchmarks.million_rows --encoder DIR

The rows are short, distinct texts, so that no sequence is computed twice. The heads are untrained;
the predictions are counted, not scored.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import arguments, limit, write_result
from benchmarks.resident import MIB
from benchmarks.three_models import ENTRIES, build_predictor
from mops.model.sources import find_encoder
from mops.predict.bundle import save_bundle

ROWS = (10_000, 1_000_000)
TASK = "sentiment"
CHILD = """\
import sys
from benchmarks.resident import peak
from mops.cli.main import cli
model, rows, answers = sys.argv[1:]
cli.main(["predict", model, rows, "--out", answers], "mops", standalone_mode=False)
print(peak())
"""  # the command itself, in a process with nothing else, then its peak


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    options = parser.parse_args()
    sizes = (
        [min(count, 100) for count in limit(options.rows, options)]
        if options.quick
        else options.rows
    )
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        model = write_model(Path(scratch), options.encoder)
        cases = {str(count): measure(Path(scratch), model, count) for count in sizes}
    print(write_result("million_rows", {"cases": cases}, options.out))


def write_model(folder: Path, encoder: str) -> Path:
    source = find_encoder(encoder)
    entry = ENTRIES[TASK].model_copy(update={"train": "rows.csv"})
    network = build_predictor(source, "shared", "cross", [entry.task(TASK)]).bundle.network
    save_bundle(folder / "model", network, source.tokenizer, {TASK: entry}, {})
    return folder / "model"


def measure(folder: Path, model: Path, count: int) -> dict[str, Any]:
    """Predict a file of this many rows in a new process."""
    rows, answers = folder / "rows.csv", folder / "answers.csv"
    with rows.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        file.writelines(f"{n},no {n}\n" for n in range(count))
    started = time.monotonic()
    words = [sys.executable, "-c", CHILD, str(model), str(rows), str(answers)]
    root = Path(__file__).parents[1]
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    seconds, most = time.monotonic() - started, int(done.stdout)
    check_order(answers, count)
    print(f"{count:,} rows: peak {most / MIB:,.0f} MiB, {seconds:,.0f} s", flush=True)
    return {"rows": count, "peak_bytes": most, "seconds": seconds}


def check_order(answers: Path, count: int) -> None:
    with answers.open(encoding="utf-8") as file:
        next(file)
        is_right = all(line.startswith(f"{n},") for n, line in zip(range(count), file, strict=True))
    if not is_right:
        raise ValueError("the answers are not in the order of the rows")


if __name__ == "__main__":
    main()
