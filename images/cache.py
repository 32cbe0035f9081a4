"""The cache outside the tree: everything in it is named by a digest of what it was made from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """`$MODELBACKEND_CACHE`, or `~/.cache/modelbackend-operator`; made if missing."""
    configured = os.environ.get("MODELBACKEND_CACHE")
    root = Path(configured) if configured else Path.home() / ".cache" / "modelbackend-operator"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def digest_of(*parts: str | bytes | Path) -> str:
    """Twelve hex digits that change with any part: text, bytes, a file's content, or a folder's files."""
    total = hashlib.sha256()
    for part in parts:
        for name, content in _contents(part):
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
    return total.hexdigest()[:12]


def _contents(part: str | bytes | Path) -> Iterator[tuple[str, bytes]]:
    if isinstance(part, str):
        yield "", part.encode()
    elif isinstance(part, bytes):
        yield "", part
    elif part.is_dir():
        for path in sorted(part.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(part)), path.read_bytes()
    else:
        yield part.name, part.read_bytes()


@contextmanager
def publish(target: Path) -> Iterator[Path]:
    """A path to write a file or folder to; it becomes `target` in one rename, or nothing is left of it.

    The rename makes a cache entry either whole or absent, however the maker ends.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as folder:
        draft = folder / target.name
        yield draft
        draft.rename(target)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder in the cache that is removed afterwards, or by a later call if this process is killed."""
    remove_abandoned_scratch()
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}.", dir=_scratch_root()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned_scratch() -> None:
    """Remove the scratch folders whose makers no longer run."""
    for folder in _scratch_root().iterdir():
        if not Path("/proc", folder.name.partition(".")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _scratch_root() -> Path:
    root = cache_root() / "scratch"
    root.mkdir(exist_ok=True)
    return root
