"""Broken input: handled and counted, or refused in one line with nothing half-written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from building import WORDS
from mops.yaml_io import format_yaml, parse_yaml
from running import World, run_python, world


@dataclass(frozen=True)
class Place:
    """A healthy project of one task, to be broken."""

    root: Path

    @property
    def train(self) -> Path:
        return self.root / "train.csv"

    @property
    def config(self) -> Path:
        return self.root / "mops.yaml"

    @property
    def encoder(self) -> Path:
        """The encoder's folder as a copy of its own."""
        copy = self.root / "encoder"
        if not copy.exists():
            shutil.copytree(world().encoder, copy)
            self.change(lambda recipe: recipe.update(encoder=str(copy)))
        return copy

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        recipe = parse_yaml(self.config.read_text())
        change(recipe)
        self.config.write_text(format_yaml(recipe))

    def task(self, **keys: Any) -> None:
        self.change(lambda recipe: recipe["tasks"]["reviews"].update(keys))

    def training(self, **keys: Any) -> None:
        self.change(lambda recipe: recipe["training"].update(keys))

    def append(self, *lines: str) -> None:
        with self.train.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def replace(self, old: str, new: str) -> None:
        self.train.write_text(self.train.read_text().replace(old, new))


@pytest.fixture
def place(made: World, tmp_path: Path) -> Place:
    found = Place(tmp_path)
    for name, count in (("train", 30), ("validation", 20)):
        rows = [f"{n},{WORDS[n]} {WORDS[(n * 7) % 40]},{n % 2}" for n in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,text,label", *rows]) + "\n")
    task = {
        "type": "classification", "text": "text", "label": "label", "labels": [0, 1],
        "train": "train.csv", "validation": "validation.csv",
    }  # fmt: skip
    training = {"max_steps": 1, "max_length": 32, "threads": 1}
    recipe = {
        "encoder": str(made.encoder), "tasks": {"reviews": task}, "plan": "shared",
        "training": training,
    }  # fmt: skip
    found.config.write_text(format_yaml(recipe))
    return found


def similarity(place: Place, label: str) -> None:
    """The task as pairs with a value between 0 and 5, one of them broken."""
    for file in ("train.csv", "validation.csv"):
        rows = [f"{n},{WORDS[n]},{WORDS[n + 1]},{n % 5}" for n in range(20)]
        (place.root / file).write_text("\n".join(["id,one,two,label", *rows]) + "\n")
    place.append(f"99,ban,bat,{label}")
    task = {
        "type": "similarity", "text": ["one", "two"], "label": "label", "range": [0, 5],
        "train": "train.csv", "validation": "validation.csv",
    }  # fmt: skip
    place.change(lambda recipe: recipe["tasks"].update(reviews=task))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_config(place: Place, **keys: Any) -> None:
    path = place.encoder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def one_class(place: Place) -> None:
    place.train.write_text(place.train.read_text().replace(",1\n", ",0\n"))
    place.task(labels=[])


# what is broken -> (how, words of the one line, exit code)
REFUSED: dict[str, tuple[Callable[[Place], Any], tuple[str, ...]]] = {
    "wrong delimiter": (lambda p: p.replace(",", "^"), ("no column 'text'", "id^text^label")),
    "ragged rows": (lambda p: p.append("97,ban", "98,a,b,c,d"), ("train.csv:32", "fields")),
    "latin-1": (
        lambda p: p.train.write_bytes(p.train.read_bytes() + b"98,caf\xe9,1\n"),
        ("train.csv:32", "not UTF-8", "iconv"),
    ),
    "NUL bytes": (lambda p: p.append("98,b\0n,1"), ("train.csv:32", "NUL")),
    "missing column": (lambda p: p.task(text="txt"), ("no column 'txt'", "Did you mean 'text'")),
    "label out of the list": (lambda p: p.append("98,ban,7"), ("train.csv:32", "'7'", "0, 1")),
    "label out of the range": (lambda p: similarity(p, "9"), ("train.csv:22", "between 0 and 5")),
    "text instead of a number": (lambda p: similarity(p, "high"), ("'high' is not a number",)),
    "nan as a number": (lambda p: similarity(p, "nan"), ("train.csv:22",)),
    "empty file": (lambda p: p.train.write_text(""), ("train.csv", "no rows")),
    "header alone": (lambda p: p.train.write_text("id,text,label\n"), ("no rows",)),
    "empty text": (lambda p: p.append("98,,1"), ("train.csv:32", "text is empty", "on_bad_row")),
    "no label": (lambda p: p.append("98,ban,"), ("train.csv:32", "has no label")),
    "only one class": (one_class, ("nothing to learn",)),
    "missing data file": (
        lambda p: p.task(train="trian.csv"),
        ("trian.csv does not exist", "Did you mean 'train.csv'"),
    ),
    "no weights": (lambda p: (p.encoder / "model.safetensors").unlink(), ("model.safetensors",)),
    "truncated weights": (
        lambda p: shorten(p.encoder / "model.safetensors"),
        ("model.safetensors cannot be read",),
    ),
    "truncated tokenizer": (lambda p: shorten(p.encoder / "tokenizer.json"), ("tokenizer.json",)),
    "vocabulary of another size": (lambda p: change_config(p, vocab_size=50), ("50",)),
    "vocabulary larger than the weights": (lambda p: change_config(p, vocab_size=90), ("90",)),
    "config.json of another kind": (
        lambda p: change_config(p, model_type="llama"), ("'llama'", "bert, distilbert, electra"),
    ),
    "no such encoder": (
        lambda p: p.change(lambda r: r.update(encoder="./nowhere")), ("nowhere", "minilm"),
    ),
    "plan for more layers": (
        lambda p: p.change(lambda r: r.update(plan="hybrid:9")), ("hybrid:9", "only 3"),
    ),
    "plan with letters for other layers": (
        lambda p: p.change(lambda r: r.update(plan="layers:SSSSII")), ("6 layers", "has 3"),
    ),
    "unknown plan": (lambda p: p.change(lambda r: r.update(plan="hybird:1")), ("hybird",)),
    "unknown task in a plan": (
        lambda p: p.change(lambda r: r.update(plan="late:SI/reviews+movies")), ("'movies'",),
    ),
    "unknown key": (lambda p: p.training(learning_rte=1), ("Did you mean 'learning_rate'",)),
    "transformers' old key": (lambda p: p.training(warmup_ratio=0.1), ("warmup_steps",)),
    "a value of the wrong kind": (lambda p: p.training(max_steps="many"), ("training.max_steps",)),
    "label that is also an input": (lambda p: p.task(label="text"), ("also an input",)),
    "config that is not YAML": (lambda p: p.config.write_text("a: [1"), ("not valid YAML",)),
    "config that is a list": (lambda p: p.config.write_text("- a\n- b\n"), ("not a mapping",)),
    "tasks that are a list": (
        lambda p: p.change(lambda r: r.update(tasks=["reviews"])), ("tasks",),
    ),
    "training that is a number": (
        lambda p: p.change(lambda r: r.update(training=5)), ("training",),
    ),
    "no training file": (lambda p: p.task(train=None), ("no `train` file",)),
    "nothing to validate on": (lambda p: p.task(validation=None), ("neither", "split: 0.1")),
    "one label for all rows": (lambda p: p.replace(",1\n", ",0\n"), ("nothing to learn",)),
    "no tasks": (lambda p: p.change(lambda r: r.update(tasks={})), ("no tasks",)),
    "a cosine head on one sequence": (
        lambda p: (similarity(p, "1"), p.training(head="cosine")), ("training.pair: bi",),
    ),
}  # fmt: skip


def assert_refused(found: tuple[int, str, str], code: int, words: tuple[str, ...]) -> None:
    """One line on stderr, the right exit code, no trace, and it is no surprise to mops."""
    exit_code, out, err = found
    assert err.startswith("mops: error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert (exit_code, out) == (code, ""), err
    assert "Traceback" not in err and "unexpected" not in err, err
    for word in words:
        assert word in err, err


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line_and_nothing_is_written(
    name: str, place: Place, run_cli: Any
) -> None:
    breaking, words = REFUSED[name]
    breaking(place)
    before = sorted(place.root.rglob("*"))
    found = run_cli("train", "--config", str(place.config), "--out", str(place.root / "out"))
    assert_refused(found, 2, words)
    assert sorted(place.root.rglob("*")) == before


OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "--set without '='": (("--set", "training.max_steps"), ("KEY=VALUE",)),
    "--set with broken YAML": (("--set", "training.seed=["), ("training.seed",)),
    "--set below a value": (("--set", "plan.x=1"), ("plan.x",)),
    "a device that is not there": (("--device", "mps"), ("'mps' is not available", "cpu")),
    "a second GPU that is not there": (
        ("--device", "cuda:1"),
        ("'cuda:1' is not available", "cpu"),
    ),
    "a device that is none": (("--device", "gpu"), ("gpu", "cuda")),
    "a task that is not there": (("--tasks", "review"), ("Did you mean 'reviews'",)),
    "a seed that is no number": (("--seed", "x"), ("--seed",)),
    "an unknown option": (("--plam", "shared"), ("--plam",)),
    "no such config": (("--config", "/nowhere/mops.yaml"), ("/nowhere/mops.yaml",)),
    "no such data": (("--data", "/nowhere"), ("/nowhere",)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_is_refused_in_one_line(name: str, place: Place, run_cli: Any) -> None:
    options, words = OPTIONS[name]
    out = ("--out", str(place.root / "out"))
    assert_refused(run_cli("train", "--config", str(place.config), *out, *options), 2, words)
    assert not (place.root / "out").exists()


# ------------------------------------------------------------------ handled and counted

HANDLED: dict[str, tuple[Callable[[Place], Any], str]] = {
    "byte order mark": (
        lambda p: p.train.write_bytes(b"\xef\xbb\xbf" + p.train.read_bytes()), '"rows": 30',
    ),
    "duplicate ids": (
        lambda p: p.append("1,ban,1", "2,bat,0"), "reviews: train.csv: 2 ids occur twice or more",
    ),
    "very long text": (lambda p: p.append("98," + "ban " * 25_000 + ",1"), '"cut": 1'),
    "bad rows that may be skipped": (
        lambda p: (p.append("98,,1", "99,ban,7"), p.task(on_bad_row="skip")),
        "2 of 32 rows left out: train.csv:32 text is empty, train.csv:33 label is '7'",
    ),
    "Windows line ends": (
        lambda p: p.train.write_bytes(p.train.read_bytes().replace(b"\n", b"\r\n")), '"rows": 30',
    ),
    "labels written as fractions": (lambda p: p.replace(",1\n", ",1.0\n"), '"rows": 30'),
}  # fmt: skip


@pytest.mark.parametrize("name", HANDLED)
def test_it_is_handled_and_counted(name: str, place: Place, run_cli: Any) -> None:
    breaking, counted = HANDLED[name]
    breaking(place)
    code, out, err = run_cli("check", "--config", str(place.config), "--json")
    assert code == 0, err
    assert counted in out
    run = place.root / "out"
    code, _, err = run_cli("train", "--config", str(place.config), "--out", str(run))
    assert code == 0, err
    assert (run / "record.json").is_file()


# ------------------------------------------------------------------ the disk


def test_a_folder_below_a_file_is_refused(place: Place, run_cli: Any) -> None:
    (place.root / "file").write_text("mine")
    out = str(place.root / "file" / "run")
    found = run_cli("train", "--config", str(place.config), "--out", out)
    assert_refused(found, 1, ("cannot write", "as `out`"))
    assert (place.root / "file").read_text() == "mine"


# 40 kB: text files fit, weights and states do not. The signal is ignored, so that writing fails.
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
from mops.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_full_disk_is_said_in_one_line_and_leaves_no_drafts(place: Place, run_cli: Any) -> None:
    out = place.root / "out"
    words = ("train", "--config", str(place.config), "--out", str(out))
    done = run_python("-c", LIMITED, *words)
    *progress, error = done.stderr.splitlines(keepends=True)
    budget = [line.split(":")[:2] for line in progress if not line.startswith("warning")]
    assert budget == [["shared", " reviews"]]
    assert_refused((done.returncode, done.stdout, error), 1, ("cannot write", "as `out`"))
    assert not [path for path in out.rglob("*") if ".part" in path.name]
    assert not (out / "record.json").exists() and not (out / "model").exists()
    assert run_cli(*words)[0] == 0  # with space again, the same command goes on
