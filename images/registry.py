"""Packages from the Python package index, through the pip and the pip configuration of this host.

Everything fetched is named by version and sha256; pip refuses a file whose hash differs.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.debian_packages import ensure_pip
from images.steps import run_logged

IMAGE_PYTHON_VERSION = "3.11"
# glibc versions that package authors build for, up to the one of the images' Debian (2.36).
IMAGE_GLIBC_MINORS = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35)


@dataclass(frozen=True, slots=True)
class PinnedPackage:
    """One file of the package index."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line of a requirements file that accepts this file alone."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@contextmanager
def requirements_file(package: PinnedPackage) -> Iterator[Path]:
    """A requirements file with one line; pip takes hashes from nowhere else."""
    with tempfile.NamedTemporaryFile("w", prefix="requirements-", suffix=".txt") as file:
        file.write(package.requirement + "\n")
        file.flush()
        yield Path(file.name)


def pip(title: str, *arguments: str | Path, log_name: str, env: Mapping[str, str] | None = None) -> None:
    """Run the running interpreter's pip as a logged step; raise StepError if it fails."""
    ensure_pip()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    run_logged(title, command, log_name=log_name, env=env)


def wheelhouse(*lock_files: Path) -> Path:
    """A folder with one wheel per package of the lock files, for the images' Python; cached by content."""
    machine = platform.machine()
    key = digest_of(*lock_files, IMAGE_PYTHON_VERSION, machine, str(IMAGE_GLIBC_MINORS))
    folder = cache_root() / "wheelhouse" / key
    if folder.exists():
        return folder
    names = ", ".join(path.stem for path in lock_files)
    platforms = [
        f"manylinux2014_{machine}",
        *(f"manylinux_2_{minor}_{machine}" for minor in IMAGE_GLIBC_MINORS),
    ]
    with publish(folder) as draft:
        draft.mkdir()
        pip(
            f"wheels of {names}",
            *("download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", draft),
            *("--implementation", "cp", "--python-version", IMAGE_PYTHON_VERSION),
            *(argument for abi in ("cp311", "abi3", "none") for argument in ("--abi", abi)),
            *(argument for name in platforms for argument in ("--platform", name)),
            *(argument for path in lock_files for argument in ("--requirement", path)),
            log_name=f"wheelhouse-{key}",
        )
    return folder
