"""A survey as one compressed file: recipes, records, predictions and costs, no models and no texts.

The file is a tar archive with a manifest of SHA-256 digests. Unpacked, it is the folder of a
survey that can be reported on or continued, on any machine.
"""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path, PurePosixPath

from mops.data.compose import change_files
from mops.errors import UsageError
from mops.files import atomic_write, holds
from mops.yaml_io import read_yaml

FORMAT = 1
MANIFEST = "manifest.json"
PATTERNS = (
    "survey.yaml",
    "names.json",
    "costs.json",
    "summary.json",
    "recipes/*.yaml",
    "failed/*.json",
    "paused/*.json",
    "trials/*/recipe.yaml",
    "trials/*/record.json",
    "trials/*/curve.jsonl",
    "trials/*/predictions/*.csv",
)


def write_pack(folder: Path, file: Path) -> int:
    """Write the survey in a folder as one file; returns the number of its bytes."""
    if not (folder / "survey.yaml").is_file():
        raise UsageError(f"{folder} holds no survey: there is no survey.yaml")
    # By name, so that the predictions of all trials for the same rows lie side by side.
    paths = sorted(
        (path for pattern in PATTERNS for path in folder.glob(pattern)),
        key=lambda path: (path.name, path),
    )
    place, own = data_place(folder), folder.resolve()
    contents = {}
    for path in paths:
        content = path.read_bytes().replace(*place).replace(str(own).encode(), own.name.encode())
        contents[path.relative_to(folder).as_posix()] = content
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = json.dumps({"mops_survey": FORMAT, "files": digests}, indent=1).encode()
    with atomic_write(file) as draft, tarfile.open(draft, "w:xz", preset=6) as archive:
        for name, data in {MANIFEST: manifest, **contents}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.stat().st_size


def data_place(folder: Path) -> tuple[bytes, bytes]:
    """The folder of a survey's data files, and what stands for it in a pack: its name.

    As cs224n/quora-train.csv: a pack says nothing about the machine.
    """
    folders: list[Path] = []

    def note(file: str) -> str:
        folders.append(Path(file).parent)
        return file

    change_files(read_yaml(folder / "survey.yaml")["recipe"], note)
    if not folders or not all(path.is_absolute() for path in folders):
        return b"", b""
    common = Path(os.path.commonpath(folders))
    return f"{common}/".encode(), f"{common.name}/".encode()


def read_pack(file: Path, folder: Path) -> None:
    """Write the files of a packed survey into a folder; all of them are checked first.

    A folder that holds the same survey gets the files that it lacks.
    """
    contents = read_contents(file)
    if holds(folder, "survey.yaml", kind="survey"):
        stored = (folder / "survey.yaml").read_bytes().replace(*data_place(folder))
        if stored != contents["survey.yaml"]:
            raise UsageError(f"{folder} holds another survey; name another folder with --out")
        contents = {name: data for name, data in contents.items() if not (folder / name).exists()}
    for name, data in contents.items():
        with atomic_write(folder / name) as draft:
            draft.write_bytes(data)


def read_contents(file: Path) -> dict[str, bytes]:
    """Name -> content, as it was packed."""
    try:
        with tarfile.open(file, "r:xz") as archive:
            members = {member.name: archive.extractfile(member) for member in archive}
            contents = {name: part.read() for name, part in members.items() if part}
        manifest = json.loads(contents.pop(MANIFEST))
        digests, number = dict(manifest["files"]), manifest["mops_survey"]
    except (OSError, tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as cause:
        what = "a packed survey (`mops survey --pack` writes one)"
        raise UsageError(f"{file} is not {what}: {cause}") from cause
    if number != FORMAT:
        raise UsageError(f"{file} has format {number}; this version of mops reads {FORMAT}")
    for name, data in contents.items():
        path = PurePosixPath("/") / name  # a pattern with a root matches the whole path
        if ".." in path.parts or not any(path.match(f"/{pattern}") for pattern in PATTERNS):
            raise UsageError(f"{file} has a file {name!r}, which is no part of a survey")
        if hashlib.sha256(data).hexdigest() != digests.get(name):
            raise UsageError(f"{file}: the content of {name} is not what was packed")
    for name in ("survey.yaml", *digests):
        if name not in contents:
            raise UsageError(f"{file}: {name} is missing")
    return contents
