"""A survey as one compressed file: recipes, records, predictions and costs, no models and no texts.

The file is a tar archive with a manifest of SHA-256 digests. Unpacked, it is the folder of a
survey that can be reported on or continued, on any machine.
"""

import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mops.data.compose import change_files
from mops.errors import UsageError
from mops.files import atomic_write, holds
from mops.yaml_io import read_yaml

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST = 2**30  # bytes of all files; a pack has no models
DAMAGED = (tarfile.TarError, lzma.LZMAError, EOFError)
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
    if file.is_file() and not is_pack(file):
        raise UsageError(f"{file} is there and is no packed survey; name another file with --pack")
    # By name, so that the predictions of all trials for the same rows lie side by side.
    paths = sorted(
        (path for pattern in PATTERNS for path in folder.glob(pattern)),
        key=lambda path: (path.name, path),
    )
    places = places_of(folder) | {folder.resolve()}
    contents = {
        path.relative_to(folder).as_posix(): without_machine(path.read_bytes(), places)
        for path in paths
    }
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = json.dumps({"mops_survey": FORMAT, "files": digests}, indent=1).encode()
    with atomic_write(file) as draft, tarfile.open(draft, "w:xz", preset=6) as archive:
        for name, data in {MANIFEST: manifest, **contents}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.stat().st_size


def is_pack(file: Path) -> bool:
    """Whether a file begins as a packed survey does."""
    try:
        with tarfile.open(file, "r:xz") as archive:
            return getattr(archive.next(), "name", "") == MANIFEST
    except (OSError, *DAMAGED):
        return False


def places_of(folder: Path) -> set[Path]:
    """The encoders of a survey, and the folders of its data files and of those that trials add."""
    first, *others = map(read_yaml, (folder / "survey.yaml", *folder.glob("recipes/*.yaml")))
    recipes = [first["recipe"], *others]
    own = data_folders(recipes[0])
    common = Path(os.path.commonpath(own)) if own else Path()
    places = {common} if common.name else own  # files may have only the root in common
    added = {place for recipe in others for place in data_folders(recipe)}
    added = {x for x in added if not any(x.is_relative_to(place) for place in places)}
    encoders = {Path(str(recipe.get("encoder", ""))) for recipe in recipes}
    return {place for place in (*places, *added, *encoders) if place.is_absolute()}


def data_folders(recipe: dict[str, Any]) -> set[Path]:
    """The folders of the files of all tasks that have absolute paths."""
    folders: set[Path] = set()

    def note(file: str) -> str:
        folders.add(Path(file).parent)
        return file

    change_files(recipe, note)
    return {folder for folder in folders if folder.is_absolute()}


def without_machine(content: bytes, places: set[Path]) -> bytes:
    """The content of a file with the names of these folders in place of their paths.

    As cs224n/quora-train.csv: a pack says nothing about the machine.
    """
    for place in sorted(places, reverse=True):  # a folder before those above it
        content = content.replace(str(place).encode(), place.name.encode())
    return content


def read_pack(file: Path, folder: Path) -> None:
    """Write the files of a packed survey into a folder; all of them are checked first.

    A folder that holds the same survey gets the files that it lacks.
    """
    contents = read_contents(file)
    if holds(folder, "survey.yaml", kind="survey"):
        stored = without_machine((folder / "survey.yaml").read_bytes(), places_of(folder))
        if stored != contents["survey.yaml"]:
            raise UsageError(f"{folder} holds another survey; name another folder as `out`")
        contents = {name: data for name, data in contents.items() if not (folder / name).exists()}
    for name, data in contents.items():
        with atomic_write(folder / name) as draft:
            draft.write_bytes(data)


def read_members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file; a few compressed bytes may say that there are many."""
    size = 0
    for member in archive:
        if (size := size + member.size) > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes unpacked")
        if part := archive.extractfile(member):
            yield member.name, part.read()


def read_contents(file: Path) -> dict[str, bytes]:
    """Name -> content, as it was packed."""
    try:
        with tarfile.open(file, "r:xz") as archive:
            contents = dict(read_members(archive))
        manifest = json.loads(contents.pop(MANIFEST))
        digests, number = dict(manifest["files"]), manifest["mops_survey"]
    except (OSError, *DAMAGED, ValueError, KeyError, TypeError, RecursionError) as cause:
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
