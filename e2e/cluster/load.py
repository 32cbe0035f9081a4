"""Put an image archive into the nodes' container stores, once."""

from __future__ import annotations

import json
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.docker import Docker
from images.steps import StepError, step

# On the node's image record: the digest of the image configuration that this reference was loaded with.
LOADED_LABEL = "modelbackend.dev/loaded"
CTR = ("ctr", "--namespace=k8s.io", "images")


@dataclass(frozen=True)
class ArchivedImage:
    """One image of an archive; the digest of its configuration changes with its content."""

    reference: str
    config_digest: str


def archived_images(archive: Path) -> list[ArchivedImage]:
    """What an archive holds, in the format of `docker save` or as an OCI layout in a tar."""
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
        if "manifest.json" in names:
            return [
                ArchivedImage(canonical(reference), Path(entry["Config"]).name.removesuffix(".json"))
                for entry in _read(tar, "manifest.json")
                for reference in entry["RepoTags"] or ()
            ]
        if "index.json" in names:
            return [_oci_image(tar, archive, entry) for entry in _read(tar, "index.json")["manifests"]]
    raise StepError(f"{archive} is no image archive: it has neither manifest.json nor index.json")


def _oci_image(tar: tarfile.TarFile, archive: Path, entry: dict[str, Any]) -> ArchivedImage:
    annotations = entry.get("annotations", {})
    reference = annotations.get("io.containerd.image.name") or annotations.get("org.opencontainers.image.ref.name")
    if not reference:
        raise StepError(f"{archive} names no image: it needs org.opencontainers.image.ref.name")
    manifest = _read(tar, f"blobs/{entry['digest'].replace(':', '/')}")
    # An index of several platforms has no configuration of its own; its digest serves as well.
    digest = manifest["config"]["digest"] if "config" in manifest else entry["digest"]
    return ArchivedImage(canonical(reference), digest.removeprefix("sha256:"))


def canonical(reference: str) -> str:
    """The name under which containerd keeps an image: with its registry and tag."""
    first, _, rest = reference.partition("/")
    if not rest:
        reference = f"docker.io/library/{reference}"
    elif "." not in first and ":" not in first and first != "localhost":
        reference = f"docker.io/{reference}"
    return reference if ":" in reference.rsplit("/", 1)[1] else f"{reference}:latest"


def _read(tar: tarfile.TarFile, name: str) -> Any:
    member = tar.extractfile(name)
    if member is None:
        raise StepError(f"{name} in the archive is not a file")
    return json.load(member)


def load(docker: Docker, nodes: list[str], archive: Path) -> None:
    """Import the archive on each node that does not have these very images yet, on all at once."""
    images = archived_images(archive)
    names = ", ".join(image.reference for image in images)
    missing = [node for node in nodes if not _has(docker, node, images)]
    with step(f"Loading {names} on {', '.join(missing) or 'no node: all have it'}"), ThreadPoolExecutor() as pool:
        for loaded in [pool.submit(_load_one, docker, node, archive, images) for node in missing]:
            loaded.result()


def _has(docker: Docker, node: str, images: list[ArchivedImage]) -> bool:
    labels = {line.split()[0]: line for line in docker.output("exec", node, *CTR, "list").splitlines() if line.strip()}
    return all(f"{LOADED_LABEL}={image.config_digest}" in labels.get(image.reference, "") for image in images)


def _load_one(docker: Docker, node: str, archive: Path, images: list[ArchivedImage]) -> None:
    command = ["docker", "exec", "--interactive", node, *CTR, "import", "--all-platforms", "-"]
    with archive.open("rb") as content:
        done = subprocess.run(command, stdin=content, env=docker.env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepError(f"loading {archive} on {node}: {done.stderr.strip()}")
    for image in images:
        docker.output("exec", node, *CTR, "label", image.reference, f"{LOADED_LABEL}={image.config_digest}")
