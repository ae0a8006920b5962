"""Files that matter are written beside their place and renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mops.errors import RunError

DRAFT = ".*.part"


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A temporary place next to `path`; what was written there takes its place at the end.

    On any error nothing is left behind and what stood at `path` is untouched.
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
            "Free some space or name another place with --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def is_draft(path: Path) -> bool:
    """What a killed process left beside a place."""
    return path.match(DRAFT)


def remove_drafts(folder: Path) -> None:
    for draft in list(folder.rglob(DRAFT)):
        shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with beside(path) as draft:
        draft.write_text(text, encoding="utf-8")
