"""Files that matter appear complete or not at all."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
import torch

from mops.errors import RecipeError, RunError
from mops.files import atomic_write, holds, write_text
from mops.model.pretrained import write_tensors


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
    with pytest.raises(RunError, match=r"cannot write .*record\.json.*as `out`"):
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


def test_a_device_and_a_pipe_are_written_and_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]
    write_text(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(RunError, match="cannot write /dev/null"), atomic_write(Path("/dev/null")):
        Path("/dev/null", "folder").mkdir()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_is_one_line() -> None:
    with pytest.raises(RunError, match=r"cannot write /dev/full: No space left"):
        write_text(Path("/dev/full"), "text")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, is_there: bool) -> None:
    target, link = tmp_path / "far" / "file.txt", tmp_path / "link.txt"
    if is_there:
        write_text(target, "old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.readlink() == target and target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "file.txt", "link.txt"]


def test_all_is_on_the_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, their folder, the rename, the folder above: in this order."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: done.append(name_of(file)) or fsync(file))
    monkeypatch.setattr(
        Path, "rename", lambda one, to: done.append(f"-> {to.name}") or rename(one, to)
    )

    def name_of(file: int) -> str:
        return re.sub(r"\.\w{8}\.", ".N.", Path(f"/proc/self/fd/{file}").readlink().name)

    path = tmp_path / "model"
    path.mkdir()
    with atomic_write(path) as draft:
        draft.mkdir()
        (draft / "weights").write_text("new")
    done = [re.sub(r"\.\w{8}\.", ".N.", line) for line in done]
    draft_name = ".model.N.part"
    assert done == [draft_name, "weights", "-> .model.N.old", "-> model", tmp_path.name]


def write_model(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.mkdir()
        (draft / "weights").write_text(text)


def test_a_folder_is_there_whichever_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = tmp_path / "model", Path.rename
    write_model(path, "old")
    for nth in (1, 2):
        left = [nth]

        def fail(one: Path, to: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(28, "No space left on device")
            return rename(one, to)

        with monkeypatch.context() as patch, pytest.raises(RunError, match="No space left"):
            patch.setattr(Path, "rename", fail)
            write_model(path, "new")
        assert (path / "weights").read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


class Killed(BaseException):
    """Nothing runs after it."""


def test_a_kill_between_the_renames_is_repaired_by_the_next_write(tmp_path: Path) -> None:
    path, aside = tmp_path / "model", tmp_path / ".model.0123abcd.old"
    write_model(path, "old")
    path.rename(aside)  # what such a kill leaves
    with pytest.raises(Killed), atomic_write(path):
        assert (path / "weights").read_text() == "old"
        raise Killed
    assert list(tmp_path.iterdir()) == [path]
    path.rename(aside)
    write_model(path, "new")
    assert (path / "weights").read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a" / "text", "text")
        with atomic_write(tmp_path / "weights") as draft:
            write_tensors(draft, {"one": torch.zeros(2)})
    finally:
        os.umask(before)
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    assert modes == {"a": 0o750, "text": 0o640, "weights": 0o640}
