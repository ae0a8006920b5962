"""Atomic writes: files that matter are written to a draft beside their place and renamed."""

import contextlib
import errno
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from mops.errors import RecipeError, RunError, UsageError

DRAFT, ASIDE = ".*.part", "old"
BLOCK = 2**20  # bytes that are read at once
UNSYNCED = (errno.EINVAL, errno.ENOTSUP)  # file systems that cannot sync a folder


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A draft next to `path`, which replaces `path` at the end, and survives a loss of power.

    On any error the draft is removed and `path` is unchanged. A symbolic link stays a link: its
    target is replaced. A device or a pipe cannot be replaced, so it is its own draft.
    """
    place = Path(os.path.realpath(path))
    is_stream = path.exists() and not (path.is_file() or path.is_dir())
    draft = path if is_stream else beside(place, "part")
    try:
        if is_stream:
            yield path
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        put_back(place)
        yield draft
        sync(draft)
        replace(draft, place)
        sync(place.parent, deep=False)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed. "
            "Free some space or choose another folder as `out`"
        ) from error
    finally:
        if not is_stream:
            remove(draft)


def beside(place: Path, ending: str) -> Path:
    """A new hidden name in the same folder; containers may share process numbers."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.{ending}")


def replace(draft: Path, place: Path) -> None:
    """Rename a draft to its place; an old folder is moved aside first, and then removed."""
    if not (draft.is_dir() and place.exists()):
        draft.replace(place)
        return
    old = beside(place, ASIDE)
    place.rename(old)
    try:
        draft.rename(place)
    except OSError:
        old.rename(place)
        raise
    remove(old)


def put_back(place: Path) -> None:
    """What a process that died between two renames has moved aside."""
    for old in place.parent.glob(f".{glob.escape(place.name)}.*.{ASIDE}"):
        remove(old) if place.exists() else old.rename(place)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def sync(path: Path, *, deep: bool = True) -> None:
    """Force a file or a folder, with all that it holds, to the disk."""
    for each in (path, *(path.rglob("*") if deep else ())):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in UNSYNCED or not each.is_dir():
                raise
        finally:
            os.close(descriptor)


def holds(folder: Path, *markers: str, kind: str) -> bool:
    """Whether a folder holds a `kind` of work, shown by any of its marker files.

    A folder with other content is refused. Drafts left by a killed process and empty folders do
    not count as content, so work that was killed in its first write can start again.
    """
    if any((folder / marker).is_file() for marker in markers):
        return True
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    is_content = (not any(Path(part).match(DRAFT) for part in path.parts) for path in files)
    if folder.is_file() or any(is_content):
        raise RecipeError(f"{folder} is not empty and holds no {kind}; name a new folder as `out`")
    return False


def to_path(given: object, what: str) -> Path:
    """The path that a caller gives."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise UsageError(f"{what} is {given!r}; allowed: the name of a folder or a file")


def remove_drafts(folder: Path) -> None:
    for draft in list(folder.rglob(DRAFT)):
        remove(draft)


def file_digest(file: str | Path, most: int | None = None) -> str:
    """The SHA-256 of a file, or of its first `most` bytes.

    Empty for a data set on the hub, which is not one file.
    """
    if str(file).startswith("hub:"):
        return ""
    with Path(file).open("rb") as opened:
        if most is None:
            return hashlib.file_digest(opened, "sha256").hexdigest()
        digest = hashlib.sha256()
        while most and (block := opened.read(min(most, BLOCK))):
            digest.update(block)
            most -= len(block)
        return digest.hexdigest()


def file_size(file: str) -> int:
    """The number of bytes; 0 for a data set on the hub."""
    return 0 if file.startswith("hub:") else Path(file).stat().st_size


def write_text(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")
