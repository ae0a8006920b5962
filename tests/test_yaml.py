"""YAML files from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.errors import PlanError, RecipeError
from mops.yaml_io import format_yaml, read_yaml


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "not valid YAML"),
        (b"- 1\n- 2\n", "not a mapping"),
        (b"a: \xff\xfe", "not UTF-8"),
        (b"a: !!python/object:os.system x", "not valid YAML"),
        (b"a: 1\na: 2\n", "not valid YAML"),
        (b'a: ["x\\0y"]', "a NUL character"),
        (b'"x\\uD800": 1', "half of a surrogate pair"),
    ],
)
def test_yaml_files_that_cannot_be_read(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        read_yaml(path, PlanError)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_files_that_can(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    value = {"a": [1, "1", 1e-05, None, True, "true", "1e-3", ""], "b": {"c": ["ä", "x: y"]}}
    path.write_bytes(b"\xef\xbb\xbf" + format_yaml(value).encode())  # as some editors save it
    assert read_yaml(path) == value
    with pytest.raises(RecipeError, match="cannot read"):
        read_yaml(tmp_path / "none.yaml")
