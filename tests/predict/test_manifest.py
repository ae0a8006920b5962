"""Every bundle lists its files; a changed one is not loaded, and `mops verify` names it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import mops
from mops.errors import EncoderError
from mops.predict.bundle import load_bundle, save_bundle
from mops.predict.manifest import MANIFEST, file_names, read_manifest
from running import run_cli_with

FIXTURE = Path(__file__).parents[1] / "fixtures/run/model"  # it was written without a manifest


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    stored = load_bundle(FIXTURE)
    out = tmp_path / "model"
    save_bundle(out, stored.network, stored.tokenizer, stored.entries, {})
    return out


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("COLUMNS", "250")
    return run_cli_with(monkeypatch, capsys)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_bundle_lists_all_its_files(bundle: Path) -> None:
    assert list(read_manifest(bundle)) == file_names(bundle)
    assert {"model.safetensors", "tokenizer.json", "README.md"} <= set(file_names(bundle))
    mops.load(bundle)


@pytest.mark.parametrize(
    "name", ["config.json", "plan.yaml", "tasks.yaml", "tokenizer.json", "model.safetensors"]
)
def test_one_flipped_bit_is_not_loaded(bundle: Path, run_cli: Any, name: str) -> None:
    flip(bundle / name)
    with pytest.raises(EncoderError, match=rf"{name} has the SHA-256 .* says"):
        mops.load(bundle)
    code, _, err = run_cli("verify", str(bundle))
    assert code == 1 and name in err and err.count("\n") == 1


def test_files_that_are_cut_missing_or_added(bundle: Path, run_cli: Any) -> None:
    assert run_cli("verify", str(bundle))[0] == 0
    (bundle / "notes.txt").write_text("mine")
    (bundle / "README.md").write_text("my own card")
    mops.load(bundle)  # none of what is loaded has changed
    code, out, err = run_cli("verify", str(bundle), "--json")
    assert code == 1 and len(json.loads(out)["problems"]) == 2
    assert "notes.txt is not listed" in err and "README.md has 11 bytes" in err
    (bundle / "vocab.txt").write_text("a\n")  # would be read where tokenizer.json is missing
    with pytest.raises(EncoderError, match=r"vocab\.txt is not listed"):
        mops.load(bundle)
    (bundle / "vocab.txt").unlink()
    (bundle / "plan.yaml").unlink()
    with pytest.raises(EncoderError, match=r"plan\.yaml is missing"):
        mops.load(bundle)


def test_whatever_was_added_is_told(bundle: Path, run_cli: Any) -> None:
    os.mkfifo(bundle / "pipe")
    (bundle / "sub").symlink_to("/etc")
    (bundle / "lost").symlink_to("nowhere")
    code, _, err = run_cli("verify", str(bundle))
    assert code == 1 and all(f"{name} is not listed" in err for name in ("pipe", "sub", "lost"))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"mops_manifest": 2, "files": {}}, "this version"),
        ({"mops_manifest": 1, "files": 3}, "mapping"),
        ({"mops_manifest": 1, "files": {"../x": {}}}, "not in the folder"),
        ({"mops_manifest": 1, "files": {"/etc/passwd": {}}}, "not in the folder"),
        ({"mops_manifest": 1, "files": {}}, "not listed"),
    ],
)
def test_a_manifest_that_cannot_be_used(bundle: Path, facts: Any, words: str) -> None:
    (bundle / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(EncoderError, match=words):
        mops.load(bundle)


def test_an_older_bundle_is_loaded_but_not_verified(tmp_path: Path, run_cli: Any) -> None:
    old = Path(shutil.copytree(FIXTURE, tmp_path / "old"))
    mops.load(old)
    code, _, err = run_cli("verify", str(old))
    assert code == 2 and "no manifest.json" in err


def test_edited_and_probed_bundles_have_one(bundle: Path, tmp_path: Path, run_cli: Any) -> None:
    smaller = tmp_path / "smaller"
    code, _, err = run_cli("remove-task", str(bundle), "similarity", "--out", str(smaller))
    assert code == 0, err
    code, _, err = run_cli("probe", str(smaller))
    assert code == 0, err
    assert "probe" in json.loads((smaller / "config.json").read_text())
    assert run_cli("verify", str(smaller))[0] == 0
