"""Bundles: complete in themselves, read strictly, and nothing in them can run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mops
from building import THREE_TASKS, build_network, outputs_of, segment, shake, tiny_tokenizer
from mops.config.training import TaskEntry
from mops.errors import EncoderError, MopsError
from mops.model.sources import EncoderSource
from mops.plans.picture import draw
from mops.plans.shapes import HeadShape, Reading
from mops.predict.bundle import Bundle, load_bundle, save_bundle
from mops.predict.card import format_score
from mops.tasks import Task
from running import COLUMNS, SOURCE, TRAIN_ROWS, run_python, world

ENTRIES = {
    task.name: TaskEntry(
        type=task.type, text=task.text, label=task.label, labels=task.labels, range=task.range
    )
    for task in THREE_TASKS
}
PLANS = (
    "shared", "separate", "hybrid:2", "layers:FSSI", "late:SIS", "late:SI/paraphrase+similarity",
    "frozen+late:I",
)  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A bundle that may be damaged."""
    return Path(shutil.copytree(world().run / "model", tmp_path / "model"))


# ------------------------------------------------------------------ there and back


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_comes_back_with_equal_answers(plan: str, tmp_path: Path) -> None:
    heads = {"sentiment": HeadShape(kind="mlp", width=8), "similarity": HeadShape(norm=True)}
    network = build_network(plan, reading=Reading(max_length=20, pool="pooler", heads=heads))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.3, 0.3)
    save_bundle(tmp_path / "model", network, tiny_tokenizer(), ENTRIES, {})
    again = load_bundle(tmp_path / "model").network
    assert again.layout.plan == network.layout.plan
    assert again.layout.reading == network.layout.reading
    segments = [segment(9, n, tuple(ENTRIES)) for n in range(4)]
    mine, theirs = outputs_of(network, segments), outputs_of(again, segments)
    for task, outputs in mine.items():
        assert torch.equal(outputs, theirs[task]), task
    assert not again.training


def test_all_files_have_the_permissions_of_the_user(tmp_path: Path) -> None:
    """Weights that only the owner may read are lost to a server in a container."""
    save_bundle(tmp_path / "model", build_network("shared"), tiny_tokenizer(), ENTRIES, {})
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs Linux")
def test_weights_stay_in_the_file(copy: Path) -> None:
    """Processes that load the same folder share their memory; none of them changes the file."""
    before = (copy / "model.safetensors").read_bytes()
    network = load_bundle(copy).network
    spans = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text("utf-8").splitlines()
        if line.endswith(str(copy / "model.safetensors"))
    ]
    for name, tensor in network.weights().items():
        assert any(start <= tensor.data_ptr() < end for start, end in spans), name
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert (copy / "model.safetensors").read_bytes() == before


@pytest.mark.skipif(torch.__version__ < "2.13", reason="older torch imports it for other reasons")
def test_a_bundle_loads_without_torch_s_compiler(copy: Path) -> None:
    code = f"import sys, mops; mops.load({str(copy)!r}); print('sympy' in sys.modules)"
    assert run_python("-c", code).stdout.strip() == "False"


@pytest.mark.parametrize("plan", PLANS)
def test_what_tasks_share_is_shared_again_and_stored_once(plan: str, tmp_path: Path) -> None:
    """flair and tasknet lost their sharing here."""
    network = build_network(plan)
    save_bundle(tmp_path / "model", network, tiny_tokenizer(), ENTRIES, {})
    bundle = load_bundle(tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == network.layout.parameters
    owner = next((o for o, users in bundle.layout.users.items() if len(users) > 1), "")
    if owner:
        assert_changes_exactly_its_users(bundle, owner)
    else:
        assert plan == "separate"


def assert_changes_exactly_its_users(bundle: Bundle, owner: str) -> None:
    segments = [segment(9, n, tuple(ENTRIES)) for n in range(4)]
    before = outputs_of(bundle.network, segments)
    shake(bundle.network.bank[owner], seed=1)
    after = outputs_of(bundle.network, segments)
    changed = {task for task in ENTRIES if not torch.equal(before[task], after[task])}
    assert changed == set(bundle.layout.users[owner])


def test_a_bundle_needs_nothing_outside_its_folder(copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "far" / "away"
    shutil.move(copy, elsewhere)
    texts = ["ban bat", "bet"]
    expected = mops.load(world().run / "model").predict("sentiment", texts)
    assert mops.load(str(elsewhere)).predict("sentiment", texts) == expected


# ------------------------------------------------------------------ damage


def change_weights(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return damage


def change_config(**keys: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | keys
        kept = {key: value for key, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return damage


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text)


def truncate(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


DAMAGES = {
    "a missing tensor": (change_weights(lambda w: w.pop("head/sentiment.output.bias")), "head/s"),
    "a tensor too many": (
        change_weights(lambda w: w.update(more=torch.ones(1))),
        "more [1], not missing",
    ),
    "another shape": (
        change_weights(lambda w: w.update({"head/sentiment.output.bias": torch.ones(7)})),
        "head/sentiment.output.bias",
    ),
    "another plan": (write("plan.yaml", "name: separate\ncopies: []\n"), ""),
    "a plan that is none": (write("plan.yaml", "- 1\n- 2\n"), "plan.yaml"),
    "a truncated weight file": (truncate("model.safetensors"), "model.safetensors"),
    "a truncated tokenizer": (truncate("tokenizer.json"), "tokenizer.json"),
    "a truncated config": (truncate("config.json"), "config.json"),
    "no weights": (remove("model.safetensors"), "model.safetensors"),
    "no tasks": (remove("tasks.yaml"), "tasks.yaml"),
    "no plan": (remove("plan.yaml"), "plan.yaml"),
    "no tokenizer": (remove("tokenizer.json"), "tokenizer.json"),
    "a config of something else": (write("config.json", '{"model_type": "bert"}'), "not a bundle"),
    "a config that is a list": (write("config.json", "[]"), "not a bundle"),
    "another version": (change_config(mops_bundle=99), "version"),
    "a config without its reading": (change_config(pool=None), "pool"),
    "a config without its heads": (change_config(heads=None), "heads"),
    "a config without its encoder": (change_config(encoder=None), "encoder"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_bundle_is_refused_in_one_line(copy: Path, name: str) -> None:
    damage, said = DAMAGES[name]
    (copy / "manifest.json").unlink()  # it would be said that the file has changed
    damage(copy)
    with pytest.raises(MopsError) as refused:
        mops.load(copy)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_that_is_no_bundle_says_what_to_pass(tmp_path: Path, folder: str) -> None:
    with pytest.raises(EncoderError, match="pass the folder `model` of a run"):
        mops.load(tmp_path / folder)


def test_the_run_folder_itself_is_no_bundle() -> None:
    with pytest.raises(EncoderError, match="pass the folder `model` of a run"):
        mops.load(world().run)


# ------------------------------------------------------------------ safe and readable


def test_no_source_reads_or_writes_a_pickle() -> None:
    forbidden = re.compile(
        r"import pickle|pickle\.|torch\.(save|load)\(|joblib|allow_pickle=True"
        r"|import (shelve|marshal)"
        r"|[^_.\w]eval\(|[^_.\w]exec\("
    )
    sources = sorted((SOURCE / "mops").rglob("*.py"))
    assert len(sources) > 40
    for path in sources:
        assert not forbidden.search(path.read_text("utf-8")), path


def test_the_card_shows_the_picture_the_scores_and_how_to_use_it() -> None:
    card = (world().run / "model" / "README.md").read_text("utf-8")
    record = mops.read_record(world().run / "record.json")
    assert draw(load_bundle(world().run / "model").layout) in card
    for name, main in record.scores.main.items():
        part = record.scores.tasks[name]["report"]
        low, high = (part[main] + sign * 1.96 * part["stderr"] for sign in (-1, 1))
        low, high = max(low, -1.0 if main == "pearson" else 0.0), min(high, 1.0)
        assert f"{part[main]:.3f} ({low:.3f} to {high:.3f}), {part['rows']} rows" in card
    assert f"{record.costs.parameters:,} parameters" in card
    assert f"trained for {record.train_info.steps} steps" in card
    for name, rows in TRAIN_ROWS.items():
        assert f"| {name} | train | {COLUMNS[name][0]}-train.csv | {rows} |" in card
    for warning in record.warnings:
        assert warning in card or not warning.startswith(tuple(TRAIN_ROWS))
    assert str(world().data) not in card  # names of files, not their places here
    assert "mops predict" in card and "`hybrid:1`" in card


@pytest.mark.parametrize(
    ("main", "score", "ends"),
    [
        ("accuracy", 0.066, "0.000 to 0.164"),
        ("macro_f1", 0.95, "0.852 to 1.000"),
        ("pearson", 0.05, "-0.048 to 0.148"),
        ("matthews", -0.95, "-1.000 to -0.852"),
        ("r2", -1.2, "-1.298 to -1.102"),
    ],
)
def test_intervals_in_the_card_end_where_the_score_ends(main: str, score: float, ends: str) -> None:
    scores = {"x": {"report": {main: score, "stderr": 0.05, "rows": 30}}}
    config = {"scores": scores, "main_scores": {"x": main}}
    task = Task(name="x", type="regression", text=("text",), label="y")
    assert format_score(task, "report", config) == f"{score:.3f} ({ends}), 30 rows"


def test_a_bundle_without_scores_says_so(tmp_path: Path) -> None:
    save_bundle(tmp_path / "model", build_network("shared"), tiny_tokenizer(), ENTRIES, {})
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert card.count("not measured") == 3 * 2  # of each task: validation and test rows
    assert "Not recorded" in card and "licence: not known" in card


@pytest.mark.parametrize(
    ("card", "licence"),
    [("---\nlanguage: en\nlicense: mit\n---\n# Name\n", "mit"), ("# Name\n", ""), (None, "")],
)
def test_the_licence_is_that_of_the_encoders_card(
    card: str | None, licence: str, tmp_path: Path
) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert EncoderSource("mine", tmp_path).licence == licence
