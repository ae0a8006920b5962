"""`mops predict` on several files and through Ray: the bytes of one machine, also after a kill."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mops
from building import ENTRIES, WORDS, build_network, tiny_tokenizer
from mops.cli.main import cli
from mops.data.tables import open_table
from mops.errors import DataError, UsageError
from mops.plans.shapes import Reading
from mops.predict.bundle import save_bundle
from mops.serve import bulk

on_ray = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
    ),
]


@pytest.fixture
def model(encoder_folder: Any, tmp_path: Path) -> Path:
    network = build_network("hybrid:2", encoder_folder("bert"), reading=Reading(max_length=24))
    save_bundle(tmp_path / "model", network, tiny_tokenizer(), ENTRIES, {})
    return tmp_path / "model"


def text(number: int) -> str:
    return " ".join(WORDS[number * k % len(WORDS)] for k in range(1, 2 + number % 9))


def records(rows: int, *columns: str) -> list[dict[str, str]]:
    """Every text and id is another one; some ids need quotes, some texts are empty."""
    return [
        {"id": f'{n}, "{n}"' if n % 7 == 0 else str(n)}
        | {column: "" if n % 31 == 30 else text(n * 3 + k) for k, column in enumerate(columns)}
        for n in range(rows)
    ]


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_csv(path: Path, rows: list[dict[str, str]]) -> str:
    quoted = ([f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row.values()] for row in rows)
    path.write_text("\n".join(",".join(cells) for cells in [list(rows[0]), *quoted]) + "\n")
    return str(path)


def write_parquet(path: Path, rows: list[dict[str, str]]) -> str:
    arrow = pytest.importorskip("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    return str(path)


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Different tasks fit them: two on pairs, all three, one."""
    return [
        write_csv(tmp_path / "pairs.csv", records(150, "one", "two")),
        write_parquet(tmp_path / "all.parquet", records(70, "sentence", "one", "two")),
        write_jsonl(tmp_path / "texts.jsonl", records(90, "sentence")),
    ]


def predict(*words: object) -> None:
    cli.main(["predict", *map(str, words)], "mops", standalone_mode=False)


# ------------------------------------------------------------------ several files


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["csv", "json"])
def test_several_files_have_the_outputs_of_one_by_one(
    model: Path, inputs: list[str], tmp_path: Path, form: list[str]
) -> None:
    out, ending = tmp_path / "out", ".jsonl" if form else ".csv"
    predict(model, *inputs, "--out", out, *form)
    assert {path.name for path in out.iterdir()} == {Path(s).stem + ending for s in inputs}
    for source in inputs:
        predict(model, source, "--out", tmp_path / "alone", *form)
        expected = (tmp_path / "alone").read_bytes()
        assert (out / (Path(source).stem + ending)).read_bytes() == expected
        assert len(expected.splitlines()) > 50


def test_outputs_that_would_replace_something_are_refused(
    model: Path, inputs: list[str], tmp_path: Path
) -> None:
    before = Path(inputs[0]).read_bytes()
    with pytest.raises(UsageError, match=r"another output or an input"):
        predict(model, *inputs, "--out", tmp_path)
    assert Path(inputs[0]).read_bytes() == before
    (tmp_path / "other").mkdir()
    twin = write_jsonl(tmp_path / "other" / "pairs.jsonl", records(2, "one", "two"))
    with pytest.raises(UsageError, match=r"another output or an input"):
        predict(model, *inputs, twin, "--out", tmp_path / "out")
    with pytest.raises(UsageError, match="3 inputs need --out DIR"):
        predict(model, *inputs)


def test_options_of_ray_need_ray(
    model: Path, inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="belong to --engine ray"):
        predict(model, inputs[0], "--jobs", 2)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs Ray, which is not installed; pip install .*ray"):
        predict(model, inputs[0], "--out", tmp_path / "out.csv", "--engine", "ray")
    assert not (tmp_path / "out.csv").exists()


# ------------------------------------------------------------------ through Ray


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """About fifteen rows."""
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 1000)


class TestRay:
    pytestmark = on_ray

    @pytest.mark.parametrize("form", [[], ["--json"]], ids=["csv", "json"])
    def test_ray_writes_the_bytes_of_local(
        self,
        ray: Any,
        small_blocks: None,
        model: Path,
        inputs: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        form: list[str],
    ) -> None:
        outputs, warnings = [], []
        for engine in ("local", "ray"):
            out = tmp_path / engine
            predict(model, *inputs, "--out", out, "--engine", engine, *form)
            outputs.append({path.name: path.read_bytes() for path in out.iterdir()})
            warnings.append(capsys.readouterr().err)
        assert outputs[0] == outputs[1]
        assert len(outputs[0]) == len(inputs)
        assert warnings[0] == warnings[1]
        assert "8 rows have a problem and were predicted anyway: pairs.csv:32" in warnings[0]

    def test_a_killed_worker_costs_its_block_and_no_answer(
        self, ray: Any, small_blocks: None, model: Path, tmp_path: Path
    ) -> None:
        source = write_jsonl(tmp_path / "texts.jsonl", records(120, "sentence"))
        tasks = (mops.load(model).bundle.layout.tasks["sentiment"],)
        inputs = [bulk.Input(open_table(source), tasks, bulk.JSON_LINES)]
        expected = "".join(each.text for _, each in bulk.answer_here(mops.load(model), inputs))
        loads, working, killed = (tmp_path / name for name in ("loads", "working", "killed"))

        def load() -> mops.Predictor:
            """A predictor that waits for its end when it sees row 60 for the first time."""
            with loads.open("a") as file:
                file.write(f"{os.getpid()}\n")
            predictor = mops.load(model)
            answer = predictor.predict_windows

            def wait_or_answer(groups: Any, windows: Any) -> Any:
                if any(row.id == "60" for row in windows[0]) and not killed.exists():
                    working.write_text(f"{os.getpid()}\n")
                    time.sleep(600)
                return answer(groups, windows)

            predictor.predict_windows = wait_or_answer  # type: ignore[method-assign]
            return predictor

        killer = threading.Thread(target=kill, args=(working, killed), daemon=True)
        killer.start()
        blocks = [block for _, block in bulk.answer_on_ray(ray, load, inputs, jobs=1)]
        killer.join()
        assert len(blocks) > 5
        assert len(set(loads.read_text().split())) == 2  # the first process and its successor
        assert "".join(block.text for block in blocks) == expected

    def test_the_error_of_a_worker_is_one_line(self, ray: Any, model: Path, tmp_path: Path) -> None:
        source = tmp_path / "texts.jsonl"
        write_jsonl(source, records(50, "sentence"))
        source.write_bytes(source.read_bytes() + b'{"sentence": "b\xe9t"}\n')
        with pytest.raises(DataError, match=r"texts.jsonl:51: not UTF-8 text, found byte 0xe9"):
            predict(model, source, "--out", tmp_path / "out.csv", "--engine", "ray")
        assert {path.name for path in tmp_path.iterdir()} == {"model", "texts.jsonl"}

    def test_more_copies_than_cores_are_refused(
        self, ray: Any, model: Path, inputs: list[str]
    ) -> None:
        with pytest.raises(UsageError, match="--jobs 1000: each copy of the model takes a core"):
            predict(model, inputs[0], "--engine", "ray", "--jobs", 1000)


def kill(working: Path, killed: Path, patience: float = 300.0) -> None:
    """Kill the process that wrote its number, once it is at work."""
    until = time.monotonic() + patience
    while not (working.exists() and working.read_text().endswith("\n")):
        assert time.monotonic() < until, "row 60 was never seen"
        time.sleep(0.1)
    killed.touch()
    os.kill(int(working.read_text()), signal.SIGKILL)
