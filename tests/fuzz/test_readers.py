"""Every reader on broken files: it reads them, or refuses them in one line, soon.

`make fuzz INPUTS=10000` reads so many over all readers. A file that fails is kept.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from mutating import change_bytes, change_text

import mops
from building import build_network
from mops.data.inference import take_rows
from mops.data.tables import open_table
from mops.errors import MopsError
from mops.model.pretrained import load_pretrained
from mops.model.sources import find_encoder
from mops.plans.catalog import read_plan
from mops.predict.manifest import MANIFEST, write_manifest
from mops.record import read_curve, read_record
from mops.store import Store
from mops.surveys.design import read_survey
from mops.surveys.ledger import Ledger
from mops.surveys.pack import read_pack
from mops.surveys.results.results import read_results
from mops.yaml_io import read_yaml
from running import world

INPUTS = int(os.environ.get("MOPS_FUZZ_INPUTS", "360"))  # over all readers
SEED = int(os.environ.get("MOPS_FUZZ_SEED", "0"))
SOON = 2.0  # seconds of processor time
LATE = 20.0  # seconds on the clock, of which others may take most
FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXTS = {"similarity": ["dat", ("a bot", "bin")], "sentiment": ["dat bin"]}


@dataclass(frozen=True)
class Reader:
    """What is read: a file, among files that stay as they are."""

    make: Callable[[Path], None]  # writes valid files into a folder
    file: str  # the one that is broken; a pattern
    read: Callable[[Path, Path], object]  # of the folder, and of the file


def copy_bundle(place: Path) -> None:
    shutil.copytree(world().run / "model", place, dirs_exist_ok=True)


def copy_encoder(place: Path) -> None:
    shutil.copytree(world().encoder, place, dirs_exist_ok=True)


def write_recipe(place: Path) -> None:
    (place / "recipe.yaml").write_text(world().recipe().to_yaml(), "utf-8")


def write_plan(place: Path) -> None:
    from mops.yaml_io import format_yaml

    plan = read_plan("hybrid:2").to_data() | {"rates": [{"owner": "*/layer00*", "factor": 0.5}]}
    (place / "plan.yaml").write_text(format_yaml(plan), "utf-8")


def write_block(place: Path) -> None:
    arrays = {"one": np.arange(50.0), "two": np.arange(12).reshape(3, 4)}
    Store(place).add("kind", "key", arrays, {"about": 1})


def write_table(suffix: str) -> Callable[[Path], None]:
    rows = [("the film is dat", "1"), ('she said "bin", twice', "0"), ("häuser; und\ttab", "1")] * 5

    def write(place: Path) -> None:
        path = place / f"rows.{suffix}"
        if suffix == "parquet":
            import pyarrow
            import pyarrow.parquet

            table = pyarrow.table({"text": [t for t, _ in rows], "label": [y for _, y in rows]})
            pyarrow.parquet.write_table(table, path)
        elif suffix in ("jsonl", "json"):
            lines = [{"text": text, "label": label} for text, label in rows]
            whole = "\n".join(map(json.dumps, lines)) if suffix == "jsonl" else json.dumps(lines)
            path.write_text(whole, "utf-8")
        else:
            mark = {"csv": ",", "tsv": "\t"}[suffix]
            cells = [mark.join(f'"{x.replace(chr(34), chr(34) * 2)}"' for x in row) for row in rows]
            path.write_text("\n".join([f"text{mark}label", *cells]) + "\n", "utf-8")

    return write


def read_table(folder: Path, file: Path) -> None:
    table = open_table(file)
    for row in islice(table.records(), 1000):
        str(row)
    take_rows(str(file))


def read_recipe(folder: Path, file: Path) -> None:
    mops.recipe(config=str(file)).sharing_plan()


def predict(folder: Path, file: Path) -> None:
    predictor = mops.load(folder)
    predictor.predict("sentiment", TEXTS["sentiment"])


def load_encoder(folder: Path, file: Path) -> None:
    source = find_encoder(str(folder))
    source.tokenizer.encode("dat bin")
    load_pretrained(build_network("shared", shape=source.shape), source)


def copy_survey(place: Path) -> None:
    read_pack(FIXTURES / "survey.mops", place)


def read_ledger(folder: Path, file: Path) -> None:
    ledger = Ledger(folder)
    for trial in ledger.names():
        ledger.state(str(trial))
        ledger.progress(str(trial))


def copy_record(place: Path) -> None:
    for name in ("record.json", "curve.jsonl"):
        shutil.copy(FIXTURES / "run" / name, place)


def copy_pack(place: Path) -> None:
    shutil.copy(FIXTURES / "survey.mops", place)


READERS: dict[str, Reader] = {
    **{s: Reader(write_table(s), f"rows.{s}", read_table) for s in ("csv", "tsv", "jsonl", "json")},
    "parquet": Reader(write_table("parquet"), "rows.parquet", read_table),
    "recipe": Reader(write_recipe, "recipe.yaml", read_recipe),
    "plan": Reader(write_plan, "plan.yaml", lambda _, file: read_plan(read_yaml(file))),
    "bundle": Reader(copy_bundle, "*", predict),
    "encoder": Reader(copy_encoder, "*", load_encoder),
    "record": Reader(copy_record, "record.json", lambda _, file: read_record(file)),
    "curve": Reader(copy_record, "curve.jsonl", lambda _, file: list(read_curve(file))),
    "survey": Reader(copy_survey, "survey.yaml", lambda _, file: read_survey(file)),
    "summary": Reader(copy_survey, "summary.json", lambda _, file: read_results(file)),
    "ledger": Reader(copy_survey, "names.json", read_ledger),
    "pack": Reader(copy_pack, "survey.mops", lambda folder, file: read_pack(file, folder / "out")),
    "cache": Reader(write_block, "kind/key/*", lambda folder, _: Store(folder).read("kind", "key")),
}


@pytest.fixture(scope="module", params=list(READERS))
def sound(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Reader, Path]]:
    """A reader, and a folder that it can read."""
    reader, place = READERS[request.param], tmp_path_factory.mktemp(request.param)
    reader.make(place)
    yield reader, place


def read_broken(reader: Reader, place: Path, file: Path) -> str:
    """What is wrong with how a file is read or refused; empty if nothing is."""
    begin, clock, wrong = time.process_time(), time.monotonic(), ""
    try:
        reader.read(place, file)
    except MopsError as error:
        wrong = "" if str(error).strip() else "no message"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of a library is no Exception
        *_, last = traceback.extract_tb(error.__traceback__)
        wrong = f"{type(error).__name__}: {str(error)[:80]} at {last.filename}:{last.lineno}"
    seconds, waited = time.process_time() - begin, time.monotonic() - clock
    is_slow = seconds > SOON or waited > LATE
    return wrong or (f"{seconds:.1f} s, on the clock {waited:.1f} s" if is_slow else "")


def damage(content: bytes, draw: random.Random, file: Path) -> None:
    """Write a broken file; in half of the cases into a manifest too, so that its parser sees it."""
    file.write_bytes(broken(content, draw, file.name))
    manifest = file.parent / MANIFEST
    if manifest.exists() and file != manifest and draw.random() < 0.5:
        write_manifest(file.parent)


def test_valid_files_are_read(sound: tuple[Reader, Path]) -> None:
    reader, place = sound
    for file in place.glob(reader.file):
        reader.read(place, file)
    shutil.rmtree(place / "out", ignore_errors=True)


@pytest.mark.filterwarnings("ignore")
def test_broken_files_are_refused_in_one_line(sound: tuple[Reader, Path], tmp_path: Path) -> None:
    reader, place = sound
    files = [file for file in sorted(place.glob(reader.file)) if file.is_file()]
    before = {file: file.read_bytes() for file in files}
    wrong: dict[str, Path] = {}
    for number in range(max(1, INPUTS // len(READERS))):
        draw = random.Random(f"{SEED} {reader.file} {number}")
        file = draw.choice(files)
        damage(before[file], draw, file)
        if found := read_broken(reader, place, file):
            wrong[found] = shutil.copy(file, tmp_path / f"{number}-{file.name}")
        for path, content in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        shutil.rmtree(place / "out", ignore_errors=True)
    assert not wrong


def broken(content: bytes, draw: random.Random, name: str) -> bytes:
    try:
        return change_text(content.decode(), draw, name)
    except UnicodeDecodeError:
        return change_bytes(content, draw)
