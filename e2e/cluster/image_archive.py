"""Container images written without an engine, in the archive format of `docker save`.

Format: https://github.com/moby/docker-image-spec/blob/main/v1.2.md#combined-image-json--filesystem-changeset-format
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's word -> Go's, which images use


@dataclass(frozen=True)
class Layer:
    """A gzipped tar; `diff_id` is the digest of the tar before compression."""

    path: Path
    diff_id: str


@dataclass(frozen=True)
class Image:
    """What a container of this image runs, and on which layers."""

    reference: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    )


def layer_of_files(target: Path, files: Mapping[str, Path | str]) -> Layer:
    """A layer of programs (mode 0755, root): path in the image -> file here, or the target of a symlink."""

    def write(stream: BinaryIO) -> None:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for name, source in files.items():
                header = tarfile.TarInfo(name.lstrip("/"))
                header.mode = 0o755
                if isinstance(source, str):
                    header.type, header.linkname = tarfile.SYMTYPE, source
                    tar.addfile(header)
                else:
                    header.size = source.stat().st_size
                    with source.open("rb") as content:
                        tar.addfile(header, content)

    return _compressed(target, write)


def layer_of_tar(target: Path, tar: Path) -> Layer:
    """A layer with the content of an uncompressed tar archive."""

    def write(stream: BinaryIO) -> None:
        with tar.open("rb") as content:
            shutil.copyfileobj(content, stream, 1 << 20)

    return _compressed(target, write)


class _HashingWriter(io.RawIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _compressed(target: Path, write: Any) -> Layer:
    with target.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0) as stream:
        hashing = _HashingWriter(cast(BinaryIO, stream))
        write(hashing)
    return Layer(target, f"sha256:{hashing.digest.hexdigest()}")


def write_archive(target: Path, images: Sequence[Image]) -> None:
    """One archive with all the images; layers that they share are in it once."""
    index = []
    written: set[Path] = set()
    with tarfile.open(target, "w") as archive:
        for image in images:
            for layer in image.layers:
                if layer.path not in written:
                    archive.add(layer.path, arcname=layer.path.name)
                    written.add(layer.path)
            config = json.dumps(_config(image)).encode()
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add_bytes(archive, config_name, config)
            index.append(
                {
                    "Config": config_name,
                    "RepoTags": [image.reference],
                    "Layers": [layer.path.name for layer in image.layers],
                }
            )
        _add_bytes(archive, "manifest.json", json.dumps(index).encode())


def _config(image: Image) -> dict[str, Any]:
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "Entrypoint": list(image.entrypoint),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in image.layers]},
    }


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    archive.addfile(header, io.BytesIO(content))
