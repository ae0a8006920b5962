"""manifest.json: size and SHA-256 of every file of a bundle or of an exported folder."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from mops.errors import EncoderError
from mops.files import DRAFT, atomic_write, file_digest, sync, write_text
from mops.yaml_io import read_json, to_value

MANIFEST = "manifest.json"
FORMAT = 1
# The card is for people, who may edit it: `mops verify` alone looks at it.
LOADED = (
    "config.json", "plan.yaml", "tasks.yaml", "tokenizer.json", "vocab.txt",
    "tokenizer_config.json", "model.safetensors", "model.onnx", "model.onnx.data",
)  # fmt: skip
Facts = dict[str, int | str]  # size, sha256


def write_manifest(folder: Path) -> None:
    write_text(folder / MANIFEST, format_manifest(list_facts(folder)))


def format_manifest(files: Mapping[str, Facts]) -> str:
    facts = {"mops_manifest": FORMAT, "files": dict(sorted(files.items()))}
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"


def list_facts(folder: Path) -> dict[str, Facts]:
    return {name: file_facts(folder / name) for name in file_names(folder)}


def write_described(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files of a bundle, and what its manifest says of them.

    What it says of the others stays: one that was added or changed since is still found out.
    Everything is on the disk before anything is replaced. While that happens there is no manifest:
    a bundle without one, as a kill would leave it, is still loaded.
    """
    is_listed, drafts = (folder / MANIFEST).exists(), dict[str, Path]()
    facts = read_manifest(folder) if is_listed else list_facts(folder)
    with ExitStack() as open_drafts:
        for name in (MANIFEST, *texts):  # the last is replaced first
            drafts[name] = open_drafts.enter_context(atomic_write(folder / name))
        for name, text in texts.items():
            drafts[name].write_text(text, "utf-8")
            facts[name] = file_facts(drafts[name])
        drafts[MANIFEST].write_text(format_manifest(facts), "utf-8")
        for draft in drafts.values():
            sync(draft)
        (folder / MANIFEST).unlink(missing_ok=True)


def check_manifest(folder: Path) -> None:
    """Refuse files that are not as they were written; a bundle without a manifest is not checked.

    Earlier versions wrote none. 90 MB take 0.05 s of one core.
    """
    if not (folder / MANIFEST).exists():
        return
    listed = read_manifest(folder)
    names = [name for name in LOADED if name in listed or (folder / name).exists()]
    for difference in find_differences(folder, {name: listed.get(name, {}) for name in names}):
        raise EncoderError(
            f"{folder}: {difference}; fetch the folder again, or delete {MANIFEST} if you changed "
            "the file yourself"
        )


def read_manifest(folder: Path) -> dict[str, Facts]:
    """The facts of each file that the manifest lists."""
    path = folder / MANIFEST
    if not path.exists():
        raise EncoderError(
            f"{folder} has no {MANIFEST}: it was removed, or an older version wrote the folder; "
            "nothing can be verified"
        )
    facts = read_json(path, EncoderError)
    if facts.get("mops_manifest") != FORMAT:
        raise EncoderError(f"{path} is not a manifest that this version of mops reads")
    kind: Any = dict[str, Facts]
    files: dict[str, Facts] = to_value(
        kind, facts.get("files"), where=str(path), error=EncoderError
    )
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise EncoderError(f"{path} lists {name!r}, which is not in the folder")
    return files


def find_differences(folder: Path, listed: Mapping[str, Facts]) -> Iterator[str]:
    """The first difference of each file from what is listed."""
    for name, expected in listed.items():
        path = folder / name
        if not expected:
            yield f"{name} is not listed in {MANIFEST}"
        elif not path.is_file():
            yield f"{name} is missing or is not a regular file"
        elif (found := path.stat().st_size) != expected.get("size"):
            yield f"{name} has {found:,} bytes, {MANIFEST} says {expected.get('size')}"
        elif (digest := file_digest(path)) != expected.get("sha256"):
            yield f"{name} has the SHA-256 {digest}, {MANIFEST} says {expected.get('sha256')}"


def verify(folder: Path) -> tuple[dict[str, Facts], list[str]]:
    """The listed files, and what differs, is missing or was added."""
    listed = read_manifest(folder)
    more = [name for name in entry_names(folder) if name not in listed]
    return listed, list(find_differences(folder, listed | {name: {} for name in more}))


def file_names(folder: Path) -> list[str]:
    """The files of a folder but the manifest, without drafts of killed processes."""
    return [name for name in entry_names(folder) if (folder / name).is_file()]


def entry_names(folder: Path) -> list[str]:
    """All that is in a folder but the manifest: also links, pipes and devices, no folders."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in paths if not path.match(DRAFT))
    return sorted(name for name in names if name != MANIFEST)


def file_facts(path: Path) -> Facts:
    return {"size": path.stat().st_size, "sha256": file_digest(path)}
