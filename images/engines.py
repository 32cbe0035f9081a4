"""What builds images from Dockerfiles: a Docker engine where one answers, otherwise buildah."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from images.cache import cache_root
from images.debian_packages import ensure_command
from images.steps import run_logged


class Engine(Protocol):
    """Builds, inspects and exports images; image names are full references such as `localhost/name:tag`."""

    def has(self, image: str) -> bool:
        """Whether the engine's storage holds the image."""

    def build(self, image: str, context: Path, dockerfile: Path, arguments: Mapping[str, str]) -> None:
        """Build `image`; the output goes to a log. Raises StepError if the build fails."""

    def save(self, image: str, archive: Path) -> None:
        """Write the image as a docker-archive, which `kind load image-archive` and `docker load` read."""

    def discard(self, images: Sequence[str]) -> None:
        """Forget the images and what was cached for building them."""


def find_engine() -> Engine:
    """A Docker engine, if one answers to the environment's `docker`; or buildah, installed if need be."""
    if _succeeds(["docker", "version", "--format", "{{.Server.Version}}"]):
        return Docker()
    ensure_command("buildah", "buildah")
    return Buildah()


class Docker:
    """The `docker` command."""

    def has(self, image: str) -> bool:
        return _succeeds(["docker", "image", "inspect", image])

    def build(self, image: str, context: Path, dockerfile: Path, arguments: Mapping[str, str]) -> None:
        command = ["docker", "build", *_build_options(image, dockerfile, arguments), str(context)]
        run_logged(f"docker build {image}", command, log_name=_log_name(image))

    def save(self, image: str, archive: Path) -> None:
        subprocess.run(["docker", "save", "--output", archive, image], check=True)

    def discard(self, images: Sequence[str]) -> None:
        for image in filter(self.has, images):
            subprocess.run(["docker", "image", "rm", "--force", image], check=True)


class Buildah:
    """buildah as root, without a daemon, cgroups or network set-up of its own.

    Each call runs in a mount namespace of its own, so that no mount outlives it. The storage, with the cache
    of layers, is in `$CACHE/images/storage`.
    """

    def __init__(self) -> None:
        self._storage = cache_root() / "images" / "storage"
        self._storage.mkdir(parents=True, exist_ok=True)
        self._driver = "overlay" if _overlay_works_in(self._storage) else "vfs"

    def has(self, image: str) -> bool:
        with self._buildah("inspect", "--type", "image", image) as command:
            return _succeeds(command)

    def build(self, image: str, context: Path, dockerfile: Path, arguments: Mapping[str, str]) -> None:
        options = ("--isolation=chroot", "--format=docker", "--layers", "--http-proxy=false")
        with self._buildah("build", *options, *_build_options(image, dockerfile, arguments), str(context)) as command:
            run_logged(f"buildah build {image}", command, log_name=_log_name(image))

    def save(self, image: str, archive: Path) -> None:
        with self._buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}") as command:
            subprocess.run(command, check=True)
        # The archive is what is kept. This frees the final stage's layers, and not those that a next build reuses.
        with self._buildah("rmi", image) as command:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def discard(self, images: Sequence[str]) -> None:  # noqa: ARG002 - the storage holds no other images
        shutil.rmtree(self._storage)

    @contextmanager
    def _buildah(self, *arguments: str) -> Iterator[list[str]]:
        """The whole command line; its run root lasts as long as the context."""
        with tempfile.TemporaryDirectory(prefix="buildah-run-") as run_root:
            yield [
                *("unshare", "--mount", "--propagation", "private"),
                *("buildah", "--root", str(self._storage), "--runroot", run_root),
                *("--storage-driver", self._driver, *arguments),
            ]


def _overlay_works_in(folder: Path) -> bool:
    """Try a real mount: it depends on the kernel and on the file system that the folder is on."""
    with tempfile.TemporaryDirectory(prefix="overlay-", dir=folder.parent) as trial:
        for name in ("lower", "upper", "work", "merged"):
            (Path(trial) / name).mkdir()
        options = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, f"{trial}/merged"]
        return os.geteuid() == 0 and _succeeds(["unshare", "--mount", "--propagation", "private", *mount])


def _build_options(image: str, dockerfile: Path, arguments: Mapping[str, str]) -> list[str]:
    build_arguments = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    return ["--tag", image, "--file", str(dockerfile), *build_arguments]


def _log_name(image: str) -> str:
    return "image-" + image.rpartition("/")[2].partition(":")[0]


def _succeeds(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
