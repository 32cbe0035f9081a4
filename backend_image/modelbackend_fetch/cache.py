"""What lies on the volume: a folder per source, in it the files, what is known of each, and what is half received.

    <folder>/.lock                 held by the one process that may write here
    <folder>/<name>                a file that is whole and was checked; replaced in one step, never written to
    <folder>/<name>.json           its Record: size, time of change, sha256, what the source called it
    <folder>/<name>.partial        bytes received so far, all of one version
    <folder>/<name>.partial.json   its Mark: which version, and how many bytes are on the disk for certain
    <folder>/<name>.refused.json   a Record of what came and had another sha256, so that it is not fetched again

A server has the good file mapped while a newer one is fetched beside it: it keeps the old bytes until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .failures import Failure, FetchError
from .sources import Version

READ_BYTES = 8 * 2**20
SYNC_BYTES = 32 * 2**20
"""Written to the disk at least so often: so much a killed process may cost, or a machine without power."""
ASK_LOCK_SECONDS = 0.5
SPARE_BYTES = 16 * 2**20
"""Left on the volume for what is written beside the file."""

Told = TypeVar("Told", bound=BaseModel)

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)

    size_bytes: int
    changed_ns: int
    sha256: str
    version: Version


class Mark(BaseModel):
    model_config = ConfigDict(frozen=True)

    version: Version
    synced_bytes: int
    total_bytes: int | None


class Folder:
    """Of one source. To be written to under `locked` alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.asynccontextmanager
    async def locked(self, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """One process at a time. The kernel gives the lock back when its holder dies, however that happens.

        flock(2): on NFS the client turns it into a lock of the server, which outlives a dead machine by its lease
        (90 s by default); a mount with `nolock` keeps it to one machine, and two may then fetch at once.
        """
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        try:
            waits = False
            while not self._try(lock):
                if not waits:
                    on_wait()
                waits = True
                await asyncio.sleep(ASK_LOCK_SECONDS)
            yield
        finally:
            os.close(lock)

    def _try(self, lock: int) -> bool:
        with _told(self.path):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def good_copy(self, name: str) -> Record | None:
        """What is known of a file that is as it was when it was checked."""
        record = _read(self.path / f"{name}.json", Record)
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        unchanged = record is not None and (record.size_bytes, record.changed_ns) == (found.st_size, found.st_mtime_ns)
        return record if unchanged else None

    def publish(self, partial: Partial, version: Version) -> Record:
        """The file first and then what is known of it: after a crash between the two it is fetched again."""
        with _told(self.path):
            partial.finish()
            os.replace(partial.path, self.path / partial.name)
            (self.path / f"{partial.name}.partial.json").unlink(missing_ok=True)
            found = (self.path / partial.name).stat()
            record = Record(
                size_bytes=found.st_size, changed_ns=found.st_mtime_ns, sha256=partial.sha256, version=version
            )
            (self.path / f"{partial.name}.refused.json").unlink(missing_ok=True)
            _write(self.path / f"{partial.name}.json", record)
            _sync_folder(self.path)
        return record

    def renew(self, name: str, kept: Record, version: Version) -> Record:
        """The source says that the copy is good under another name of its own, too."""
        record = kept.model_copy(update={"version": version})
        with _told(self.path):
            _write(self.path / f"{name}.json", record)
        return record

    def refuse(self, partial: Partial) -> None:
        """Whole, and not what was wanted: remembered, so that the same is not fetched once more."""
        with _told(self.path):
            record = Record(size_bytes=partial.size_bytes, changed_ns=0, sha256=partial.sha256, version=partial.version)
            partial.discard()
            _write(self.path / f"{partial.name}.refused.json", record)

    def refused(self, name: str) -> Record | None:
        return _read(self.path / f"{name}.refused.json", Record)

    def check_space(self, more_bytes: int) -> None:
        """Raises FetchError where they do not fit. A quota may show only as one writes."""
        with _told(self.path):
            volume = os.statvfs(self.path)
        free_bytes = volume.f_bavail * volume.f_frsize
        if more_bytes + SPARE_BYTES > free_bytes:
            raise FetchError(
                Failure.NO_SPACE,
                f"the cache volume has {megabytes(free_bytes)} free and {megabytes(more_bytes)} are still to come. "
                "Delete what is not needed from it, or take a larger volume.",
            )


class Partial:
    """A file that is being received, and the hash of its bytes so far. Goes on where an earlier process was.

    As a context it keeps what has come, however the block ends, unless it was finished or discarded.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.path = folder.path / f"{name}.partial"
        self._mark_path = folder.path / f"{name}.partial.json"
        mark = _read(self._mark_path, Mark)
        self.version = mark.version if mark else Version()
        self.total_bytes = mark.total_bytes if mark else None
        self._hash = hashlib.sha256()
        self._size = self._synced = 0
        with _told(folder.path):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._take_over(mark.synced_bytes if mark else 0)

    def _take_over(self, known_bytes: int) -> None:
        """No more than what is certain to be on the disk, whichever machine wrote it."""
        while self._size < known_bytes and (block := os.read(self._file, min(READ_BYTES, known_bytes - self._size))):
            self._hash.update(block)
            self._size += len(block)
        os.ftruncate(self._file, self._size)
        self._synced = self._size

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def begin(self, version: Version, total_bytes: int | None) -> None:
        """The bytes to come are of this version, from the first one on."""
        with _told(self.path.parent):
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self._hash, self._size, self._synced = hashlib.sha256(), 0, 0
            self.version, self.total_bytes = version, total_bytes
            self._sync()

    def append(self, block: bytes) -> None:
        with _told(self.path.parent):
            rest = memoryview(block)
            while rest:
                written = os.write(self._file, rest)
                self._hash.update(rest[:written])
                self._size += written
                rest = rest[written:]
            if self._size - self._synced >= SYNC_BYTES:
                self._sync()

    def _sync(self) -> None:
        os.fdatasync(self._file)
        self._synced = self._size
        mark = Mark(version=self.version, synced_bytes=self._synced, total_bytes=self.total_bytes)
        _write(self._mark_path, mark)

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file < 0:
            return
        if not self._size:
            self.discard()
            return
        with contextlib.suppress(OSError):  # why it ends is told already
            self._sync()
        self._close()

    def finish(self) -> None:
        os.fsync(self._file)
        self._close()

    def discard(self) -> None:
        self._close()
        self.path.unlink(missing_ok=True)
        self._mark_path.unlink(missing_ok=True)

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB".replace(",", " ")


def _write(path: Path, told: BaseModel) -> None:
    """In one step: a reader finds the old words or the new ones."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(told.model_dump_json())
    os.replace(draft, path)


def _read(path: Path, kind: type[Told]) -> Told | None:
    """None for a file that is missing or damaged: what it was about is then fetched again."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _sync_folder(path: Path) -> None:
    """A rename is on the disk once its folder is (fsync(2))."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            words = "the cache volume is full. Delete what is not needed from it, or take a larger volume."
            raise FetchError(Failure.NO_SPACE, words) from None
        words = (
            f"the cache folder {path} cannot be used: {error.strerror}. It must be on a volume that user and group of "
            "this process may write to, and whose file system can lock files."
        )
        raise FetchError(Failure.CACHE_UNUSABLE, words) from None
