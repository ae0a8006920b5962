"""What is decided about folders as people have them, and that its recipe needs no editing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layouts import LAYOUTS, Layout
from mops.config.recipe import to_recipe
from mops.data.compose import relative_to
from mops.data.dataset import read_dataset
from mops.data.folders import infer_tasks
from mops.data.starter import starter
from mops.tasks import KINDS
from mops.yaml_io import parse_yaml


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_layout_is_decided_and_read_without_editing(layout: Layout, tmp_path: Path) -> None:
    folder = tmp_path / layout.name.split(" ")[0].replace("/", "")
    folder.mkdir()
    layout.write(folder)
    tasks, skipped = infer_tasks(folder)
    found = {name: proposal.entry for name, proposal in tasks.items()}
    trained = {name: entry for name, entry in layout.tasks.items() if entry["type"] in KINDS}
    others = [entry for name, entry in layout.tasks.items() if name not in trained]
    missing = [f": {entry['type']}, which mops does not train" for entry in others]
    assert found.keys() == trained.keys(), skipped
    assert sum("which mops does not train" in reason for reason in skipped) == len(others)
    for name, expected in trained.items():
        assert {key: found[name].get(key) for key in expected} == expected
    text = starter(tasks, skipped, folder)
    said = "\n".join(skipped) + "\n".join(w for p in tasks.values() for w in p.why.values())
    for part in (*layout.reasons, *layout.comments, *missing):
        assert part in said
        assert part in text
    assert str(folder) not in text
    recipe: dict[str, Any] = parse_yaml(text)
    if tasks:
        dataset = read_dataset(to_recipe(relative_to(recipe, folder)))
        assert all(splits["validation"].good for splits in dataset.splits.values())
