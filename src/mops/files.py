"""Atomic writes: files that matter are written to a draft beside their place and renamed."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mops.errors import RecipeError, RunError

DRAFT = ".*.part"


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A draft next to `path`, which replaces `path` at the end.

    On any error the draft is removed and `path` is unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        if draft.is_dir() and path.exists():
            shutil.rmtree(path)
        draft.replace(path)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed. "
            "Free some space or choose another folder with --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


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
        raise RecipeError(
            f"{folder} is not empty and holds no {kind}; name a new folder with --out"
        )
    return False


def remove_drafts(folder: Path) -> None:
    for draft in list(folder.rglob(DRAFT)):
        shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def file_digest(file: str | Path) -> str:
    """The SHA-256 of a file; empty for a data set on the hub, which is not one file."""
    if str(file).startswith("hub:"):
        return ""
    with Path(file).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")
