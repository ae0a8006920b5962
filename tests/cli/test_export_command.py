"""`mops export`: the folders it prints are there, and a plan that cannot be expressed exits 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from building import ENTRIES, build_network, tiny_tokenizer
from mops.predict.bundle import save_bundle


def test_the_printed_folders_are_complete(run_cli: Any, model: str, tmp_path: Path) -> None:
    code, out, _ = run_cli("export", model, "--to", "hf", "--out", str(tmp_path / "out"))
    assert code == 0
    folders = [Path(line) for line in out.splitlines()]
    assert [folder.name for folder in folders] == ["sentiment", "paraphrase", "similarity"]
    for folder in folders:
        names = {path.name for path in folder.iterdir()}
        files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
        assert files | {"README.md"} <= names


@pytest.mark.parametrize("plan", ["pals:parallel", "progressive"])
def test_a_plan_that_cannot_be_expressed_exits_2(plan: str, run_cli: Any, tmp_path: Path) -> None:
    save_bundle(tmp_path / "model", build_network(plan), tiny_tokenizer(), ENTRIES, {})
    code, _, err = run_cli(
        "export", str(tmp_path / "model"), "--to", "hf", "--out", str(tmp_path / "out")
    )
    assert code == 2 and err.startswith("mops: error: ") and "no place for" in err
    assert len(err.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_an_unknown_format_names_the_known_ones(run_cli: Any, model: str, tmp_path: Path) -> None:
    code, _, err = run_cli("export", model, "--to", "pickle", "--out", str(tmp_path / "out"))
    assert code == 2 and "hf" in err


def test_a_graph_is_not_a_model_to_export_or_to_grow(
    run_cli: Any, model: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    graph = str(tmp_path / "graph")
    assert run_cli("export", model, "--to", "onnx", "--out", graph)[0] == 0
    new = ("--data", "sample", "--out", str(tmp_path / "out"))
    for command in (
        ("export", graph, "--to", "hf", *new[2:]),
        ("export", graph, "--to", "onnx", *new),
        ("add-task", graph, *new),
        ("remove-task", graph, "sentiment", *new[2:]),
        ("merge", model, graph, *new[2:]),
    ):
        code, _, err = run_cli(*command)
        assert (code, err) == (
            2,
            f"mops: error: {graph} is an exported graph, not the weights that this needs; name the "
            "model it was made from\n",
        )
