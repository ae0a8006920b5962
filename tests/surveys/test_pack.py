"""A survey as one file: the same results after unpacking, and no trust in foreign files."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from mops.errors import UsageError
from mops.surveys.pack import read_pack, write_pack

SURVEY = """recipe:
  tasks:
    a: {train: /home/me/cs224n/a.csv, validation: /home/me/cs224n/dev/a.csv}
    b: {train: {/home/me/cs224n/b.csv: 1, "hub:more:train": 0.5}}
"""


def made_folder(place: Path) -> Path:
    for name in (
        "survey.yaml",
        "trials/abc/record.json",
        "trials/abc/predictions/a-report.csv",
        "trials/abc/model/model.safetensors",
        "trials/abc/state/state.safetensors",
    ):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}, of /home/me/cs224n/a.csv\n")
    (place / "survey.yaml").write_text(SURVEY)
    return place


def test_all_but_models_and_states_is_packed_and_unpacked(tmp_path: Path) -> None:
    size = write_pack(made_folder(tmp_path / "one"), tmp_path / "survey.mops")
    assert size == (tmp_path / "survey.mops").stat().st_size
    read_pack(tmp_path / "survey.mops", tmp_path / "two")
    names = {p.relative_to(tmp_path / "two").as_posix() for p in (tmp_path / "two").rglob("*.*")}
    assert names == {
        "survey.yaml",
        "trials/abc/record.json",
        "trials/abc/predictions/a-report.csv",
    }
    text = (tmp_path / "two/survey.yaml").read_text()
    assert text == SURVEY.replace("/home/me/", "")  # nothing of the machine
    assert "of cs224n/a.csv" in (tmp_path / "two/trials/abc/record.json").read_text()


def test_a_training_file_elsewhere_leaves_no_path(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "one")
    (folder / "recipes").mkdir()
    more = "tasks: {a: {train: {/home/me/cs224n/a.csv: 1, /mnt/more/phrases/b.csv: 0.5}}}\n"
    (folder / "recipes/abc.yaml").write_text(more)
    write_pack(folder, tmp_path / "survey.mops")
    read_pack(tmp_path / "survey.mops", tmp_path / "two")
    text = (tmp_path / "two/recipes/abc.yaml").read_text()
    assert text == "tasks: {a: {train: {cs224n/a.csv: 1, phrases/b.csv: 0.5}}}\n"
    read_pack(tmp_path / "survey.mops", folder)  # the folder that was packed is the same survey


def test_an_encoder_and_files_without_a_common_folder_leave_no_path(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "one")
    lines = ("encoder: /mnt/encoders/small", "a: /mnt/encoders/small", "b: 1/2")
    text = "recipe: {tasks: {a: {train: /home/me/a.csv, validation: /mnt/data/a.csv}}, %s}\n"
    (folder / "survey.yaml").write_text(text % ", ".join(lines))
    (folder / "recipes").mkdir()
    (folder / "recipes/abc.yaml").write_text("{tasks: {}, encoder: /srv/large}\n")
    write_pack(folder, tmp_path / "survey.mops")
    read_pack(tmp_path / "survey.mops", tmp_path / "two")
    expected = "recipe: {tasks: {a: {train: me/a.csv, validation: data/a.csv}}, %s}\n"
    lines = ("encoder: small", "a: small", "b: 1/2")
    assert (tmp_path / "two/survey.yaml").read_text() == expected % ", ".join(lines)
    assert (tmp_path / "two/recipes/abc.yaml").read_text() == "{tasks: {}, encoder: large}\n"
    read_pack(tmp_path / "survey.mops", folder)


def test_a_folder_without_a_survey(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no survey"):
        write_pack(tmp_path, tmp_path / "file")


def test_a_pack_takes_the_place_of_a_pack_alone(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "one")
    record = folder / "trials/abc/record.json"
    content = record.read_bytes()
    for file in (record, folder / "survey.yaml"):
        with pytest.raises(UsageError, match="no packed survey"):
            write_pack(folder, file)
    assert record.read_bytes() == content
    assert write_pack(folder, tmp_path / "pack") == write_pack(folder, tmp_path / "pack")


def rewrite(file: Path, **changed: bytes | None) -> None:
    """The same archive with other contents."""
    with tarfile.open(file, "r:xz") as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    contents |= {name: data for name, data in changed.items() if data is not None}
    with tarfile.open(file, "w:xz") as archive:
        for name, data in contents.items():
            if name in changed and changed[name] is None:
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"survey.yaml": b"other"}, "not what was packed"),
        ({"survey.yaml": None}, "survey.yaml is missing"),
        ({"../evil.yaml": b"x"}, "no part of a survey"),
        ({"/elsewhere/survey.yaml": b"x"}, "no part of a survey"),
        ({"trials/abc/run.py": b"x"}, "no part of a survey"),
        ({"manifest.json": json.dumps({"mops_survey": 99, "files": {}}).encode()}, "format 99"),
        ({"manifest.json": b"nothing"}, "not a packed survey"),
    ],
)
def test_a_changed_file_is_refused(
    tmp_path: Path, changed: dict[str, bytes | None], words: str
) -> None:
    write_pack(made_folder(tmp_path / "one"), tmp_path / "file")
    rewrite(tmp_path / "file", **changed)
    with pytest.raises(UsageError, match=words):
        read_pack(tmp_path / "file", tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_file_of_another_kind_and_a_torn_one(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    write_pack(made_folder(tmp_path / "one"), tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "torn").write_bytes(whole[: len(whole) // 2])
    for name in ("text", "torn", "absent"):
        with pytest.raises(UsageError, match="not a packed survey"):
            read_pack(tmp_path / name, tmp_path / "two")
