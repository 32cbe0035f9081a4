"""The two container images, built from this source tree into archives that need no registry.

    python3 -m images build [--base-image REFERENCE]      prints `operator PATH` and `server PATH`

The base is a Debian made from Debian's packages, the Python packages come as wheels checked against the
lock files, and llama.cpp as the portable wheel. So the build itself needs no network, and the images carry
nothing of this host's package mirrors or certificates. Everything is cached by content.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from images.archive import ImageArchive
from images.cache import cache_root, digest_of, publish
from images.debian_base import rootfs_archive
from images.debian_packages import ensure_command
from images.engines import Engine, find_engine
from images.registry import wheelhouse
from images.steps import say, step
from images.wheel import portable_wheel

SOURCE_TREE = Path(__file__).parent.parent
# What .dockerignore lets into the build context, and so all that an image is made from.
SOURCES = (
    "Dockerfile",
    "LICENSE",
    "README.md",
    "backend_image",
    "images",
    "operator",
    "pyproject.toml",
    "requirements",
)

TAG = "dev"
BASE_PACKAGES = ("libgomp1", "python3")
BASE_GLIBC = (2, 36)
KEPT_BUILDS = 3


@dataclass(frozen=True, slots=True)
class Image:
    """What distinguishes one image's build from another's."""

    name: str
    dockerfile: str
    lock_file: str
    has_llama: bool

    @property
    def reference(self) -> str:
        """The name that the archive carries, and that the manifests use."""
        return f"localhost/modelbackend-{self.name}:{TAG}"


OPERATOR = Image("operator", "Dockerfile", "operator.txt", has_llama=False)
SERVER = Image("server", "backend_image/Dockerfile", "server.txt", has_llama=True)


@dataclass(frozen=True, slots=True)
class Archives:
    """Paths of the two docker-archives."""

    operator: Path
    server: Path


def build(base_image: str | None = None) -> Archives:
    """Both images as archives, built only where the cache has none of these sources.

    `base_image` is a reference that the engine can pull; None means the base made from Debian's packages.
    """
    key = digest_of(*(SOURCE_TREE / name for name in SOURCES), base_image or " ".join(BASE_PACKAGES))
    folder = cache_root() / "images" / key
    with _one_build_at_a_time():
        archives = Archives(
            operator=_build(OPERATOR, folder / "operator.tar", base_image),
            server=_build(SERVER, folder / "server.tar", base_image),
        )
        folder.touch()
        _forget_old_builds()
    return archives


def clean() -> None:
    """Remove the archives and the engine's images; wheels and base, which take long to make, stay."""
    find_engine().discard([OPERATOR.reference, SERVER.reference])
    shutil.rmtree(cache_root() / "images", ignore_errors=True)


def _build(image: Image, archive: Path, base_image: str | None) -> Path:
    if not archive.exists():
        engine = find_engine()
        base = base_image or _debian_base(engine)
        with _context(image) as context:
            arguments = {"BASE_IMAGE": base, "VERSION": _version()}
            engine.build(image.reference, context, context / image.dockerfile, arguments)
        with step(f"archive of {image.reference}"), publish(archive) as draft:
            engine.save(image.reference, draft)
    _say_size(image, archive, base_is_one_layer=base_image is None)
    return archive


def _debian_base(engine: Engine) -> str:
    """The reference of the base in the engine's storage, imported if it is not there."""
    ensure_command("debootstrap", "debootstrap")
    rootfs = rootfs_archive(BASE_PACKAGES)
    reference = f"localhost/modelbackend-base:{rootfs.stem}"
    if not engine.has(reference):
        with _folder_in_cache() as context:
            os.link(rootfs, context / "rootfs.tar")
            (context / "Dockerfile").write_text('FROM scratch\nADD rootfs.tar /\nCMD ["/bin/sh"]\n')
            engine.build(reference, context, context / "Dockerfile", {})
    return reference


@contextmanager
def _context(image: Image) -> Iterator[Path]:
    """A build context: the sources, and in images/wheelhouse every wheel that the image needs."""
    requirements = SOURCE_TREE / "requirements"
    wheels = list(wheelhouse(requirements / "image-tools.txt", requirements / image.lock_file).iterdir())
    # A wheel compiled against a newer C library than the base's cannot be loaded there: then the Dockerfile
    # compiles one.
    if image.has_llama and _glibc() <= BASE_GLIBC:
        wheels.append(portable_wheel())
    with _folder_in_cache() as context:
        for name in SOURCES:
            source = SOURCE_TREE / name
            if source.is_dir():
                shutil.copytree(source, context / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, context / name)
        for wheel in wheels:
            os.link(wheel, context / "images" / "wheelhouse" / wheel.name)
        yield context


@contextmanager
def _folder_in_cache() -> Iterator[Path]:
    """A temporary folder on the cache's file system, so that large files get there by a link."""
    with tempfile.TemporaryDirectory(prefix=".context-", dir=cache_root()) as name:
        yield Path(name)


@contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    folder = cache_root() / "images"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_old_builds() -> None:
    builds = [path for path in (cache_root() / "images").iterdir() if any(path.glob("*.tar"))]
    for old in sorted(builds, key=lambda path: path.stat().st_mtime)[:-KEPT_BUILDS]:
        shutil.rmtree(old)


def _say_size(image: Image, archive: Path, *, base_is_one_layer: bool) -> None:
    found = ImageArchive.open(archive)
    beyond = f", {found.bytes_beyond_first_layer / 1e6:.0f} MB beyond its base" if base_is_one_layer else ""
    say(f"    {image.reference}: {found.size_bytes / 1e6:.0f} MB{beyond} (uncompressed)")


def _version() -> str:
    project = tomllib.loads((SOURCE_TREE / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _glibc() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.libc_ver()[1].split("."))
