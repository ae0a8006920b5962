"""Files that matter appear complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.errors import RecipeError, RunError
from mops.files import atomic_write, holds, write_text


def test_the_file_appears_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    write_text(path, "grüße\n")
    assert path.read_text("utf-8") == "grüße\n"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_nobody_sees_a_file_that_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with atomic_write(path) as draft:
        draft.write_text("ne")
        assert path.read_text() == "old"
        assert draft.parent == path.parent  # a rename must not cross file systems
    assert path.read_text() == "ne"


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(type(error)), atomic_write(path) as draft:
        draft.write_text("half of the n")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with atomic_write(path) as draft:
        draft.mkdir()
        (draft / "one").write_text("old")
    with pytest.raises(ValueError, match="mine"), atomic_write(path) as draft:
        draft.mkdir()
        (draft / "two").write_text("new")
        raise ValueError("mine")
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == [
        "model",
        "model/one",
    ]


def test_a_folder_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for name in ("one", "two"):
        with atomic_write(path) as draft:
            draft.mkdir()
            (draft / name).write_text(name)
    assert [p.name for p in path.iterdir()] == ["two"]


def test_a_disk_that_refuses_is_one_line_with_the_place_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file" / "record.json"
    with pytest.raises(RunError, match=r"cannot write .*record\.json.*--out"):
        write_text(path, "text")
    assert (tmp_path / "file").read_text() == "no folder"


def test_a_draft_that_cannot_be_written_names_the_place_and_keeps_the_old_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RunError, match="No space left"), atomic_write(path) as draft:
        draft.write_text("half")
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_and_empty_folders_are_not_content(tmp_path: Path) -> None:
    """A process killed in its first write leaves a draft, perhaps in a folder of its own."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".settings.json.77.part").write_text("{", "utf-8")
    (tmp_path / ".model.77.part").mkdir()
    (tmp_path / ".model.77.part" / "weights").write_text("half", "utf-8")
    assert not holds(tmp_path, "recipe.yaml", kind="run")
    assert not holds(tmp_path / "missing", "recipe.yaml", kind="run")
    (tmp_path / "state" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(RecipeError, match="not empty and holds no run"):
        holds(tmp_path, "recipe.yaml", kind="run")
    (tmp_path / "recipe.yaml").write_text("", "utf-8")
    assert holds(tmp_path, "pretrain.json", "recipe.yaml", kind="run")
