"""Read a docker-archive: the image's configuration, and the file system that its layers add up to."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: the digest of its tar and that tar's size."""

    diff_id: str
    member: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """The first image in a docker-archive, with layers that are not compressed."""

    path: Path
    config: dict[str, Any]
    layers: tuple[Layer, ...]

    @classmethod
    def open(cls, path: Path) -> ImageArchive:
        """Read the manifest and the configuration; the layers are read later, when asked for."""
        with tarfile.open(path) as archive:
            manifest = _json_member(archive, "manifest.json")[0]
            config = cast("dict[str, Any]", _json_member(archive, manifest["Config"]))
            layers = tuple(
                Layer(diff_id, member, _target(archive, member).size)
                for diff_id, member in zip(config["rootfs"]["diff_ids"], manifest["Layers"], strict=True)
            )
        return cls(path, config, layers)

    @property
    def size_bytes(self) -> int:
        """Size of all layers, uncompressed."""
        return sum(layer.size_bytes for layer in self.layers)

    @property
    def bytes_beyond_first_layer(self) -> int:
        """What a build added to a base that is one layer."""
        return self.size_bytes - self.layers[0].size_bytes

    def extract(self, root: Path) -> None:
        """Unpack the layers over one another into the empty folder `root`, as root with the files' owners."""
        unpack = ["tar", "--extract", "--preserve-permissions", "--numeric-owner", "--directory", str(root)]
        with tarfile.open(self.path) as archive:
            for layer in self.layers:
                source = archive.extractfile(_target(archive, layer.member))
                with subprocess.Popen(unpack, stdin=subprocess.PIPE) as tar:
                    assert source is not None
                    assert tar.stdin is not None
                    shutil.copyfileobj(source, tar.stdin, length=1 << 20)
                if tar.returncode != 0:
                    raise ValueError(f"{self.path}: layer {layer.diff_id} is not a tar archive")
        if removed := next(root.rglob(".wh.*"), None):
            raise ValueError(f"{self.path} removes a file ({removed}); only layers that add are understood")


def _target(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """The member with the content: docker saves a layer that occurs twice as a link to the first."""
    member = archive.getmember(name)
    while member.issym():
        member = archive.getmember(posixpath.normpath(f"{posixpath.dirname(member.name)}/{member.linkname}"))
    return member


def _json_member(archive: tarfile.TarFile, name: str) -> Any:
    source = archive.extractfile(name)
    assert source is not None, f"{name} is no file"
    return json.load(source)
