"""The image that every node runs, from the first of three sources that this host has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from e2e.cluster import component_images
from e2e.cluster.binaries import OWN, PINNED, TOOLS, Binaries, binaries_folder, build_all, kubernetes_version
from e2e.cluster.docker import Docker
from e2e.cluster.engine import PULL_SECONDS, OwnEngine
from images import debian_base
from images.cache import digest_of, scratch_folder
from images.debian_packages import ensure_command
from images.steps import run_logged, say, step

CONTEXT = Path(__file__).parent / "node_image"

# kind's own list (images/base/Dockerfile) without network file systems, and with what it fetches instead.
NODE_PACKAGES = (
    "bash", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "curl", "e2fsprogs",
    "ethtool", "iproute2", "iptables", "jq", "kmod", "mount", "nftables", "procps", "runc", "socat", "systemd",
    "systemd-sysv", "util-linux",
)  # fmt: skip

# /var of every node is a volume of its own, copied from the image when the node starts. So that this takes no time,
# the unpacked layers stay in the image, where all nodes share them, and containerd's store only points there.
# containerd unpacks on a volume because its snapshotter does not work on a container's own file system.
IMPORT_SCRIPT = """\
set -e
containerd --root /store --log-level error &
until ctr version > /dev/null 2>&1; do sleep 0.1; done
ctr --namespace k8s.io images import /images.tar
ctr --namespace k8s.io content list | awk '/containerd.io.uncompressed/ { print $1 }' \
  | xargs ctr --namespace k8s.io content remove
ctr --namespace k8s.io content list --quiet | cut -d: -f2 > /tmp/kept
kill $!
wait
cd /store/io.containerd.content.v1.content/blobs/sha256 && ls | grep -vFf /tmp/kept | xargs rm
mkdir /kind/image-layers
for snapshot in /store/io.containerd.snapshotter.v1.overlayfs/snapshots/*; do
  layer=/kind/image-layers/$(basename $snapshot)
  mv $snapshot/fs $layer
  ln -s $layer $snapshot/fs
done
cp -a /store/. /var/lib/containerd/
"""


class Origin(Enum):
    """Where a node image came from, in words for the person who waits."""

    GIVEN = "given by KIND_NODE_IMAGE"
    PULLED = "pulled: the one that this version of kind is tested with"
    BUILT = "built from source, because no registry answers"


@dataclass(frozen=True)
class NodeImage:
    """An image that the engine holds."""

    reference: str
    origin: Origin


def provide_node_image(docker: Docker, own_engine: OwnEngine | None) -> NodeImage:
    """Find, pull or build the node image; says aloud which it is. A pull restarts an engine of our own."""
    image = _choose(docker, own_engine)
    say(f"    node image: {image.reference} ({image.origin.value})")
    return image


def _choose(docker: Docker, own_engine: OwnEngine | None) -> NodeImage:
    given = os.environ.get("KIND_NODE_IMAGE")
    if given:
        if not docker.succeeds("image", "inspect", given):
            _pull(docker, own_engine, given)
        return NodeImage(given, Origin.GIVEN)
    built = built_reference()
    if docker.succeeds("image", "inspect", built):
        return NodeImage(built, Origin.BUILT)
    published = published_reference()
    if docker.succeeds("image", "inspect", published) or _pull(docker, own_engine, published):
        return NodeImage(published, Origin.PULLED)
    build_node_image(docker, build_all(), built)
    _remove_older(docker, built)
    return NodeImage(built, Origin.BUILT)


def published_reference() -> str:
    """The image, with its digest, that the pinned kind uses by default."""
    source = (_kind_module() / "pkg/apis/config/defaults/image.go").read_text()
    found = re.search(r'^const Image = "([^"]+)"', source, re.MULTILINE)
    if not found:
        raise LookupError(f"{_kind_module()} names no default image")
    return found.group(1)


def built_reference() -> str:
    """The name of the image that would be built here: it changes with everything that goes into it."""
    inputs = digest_of(
        *(binaries_folder(packages).name for packages in (PINNED, OWN)),
        *(debian_base.archive_path(packages).name for packages in (NODE_PACKAGES, component_images.NETWORK_PACKAGES)),
        CONTEXT,
        Path(component_images.__file__),
        IMPORT_SCRIPT,
    )
    return f"localhost/kind-node:{kubernetes_version()}-{inputs}"


def build_node_image(docker: Docker, binaries: Binaries, reference: str) -> None:
    """Build the node image in the engine, from Go modules and Debian packages alone."""
    ensure_command("debootstrap", "debootstrap")
    ensure_command("catatonit", "catatonit")
    rootfs = debian_base.rootfs_archive(NODE_PACKAGES)
    with scratch_folder() as folder:
        context = folder / "context"
        with step("Build context of the node image"):
            shutil.copytree(CONTEXT, context)
            shutil.copytree(_kind_module() / "images/base/files", context / "kind-files")
            (context / "bin").mkdir()
            for name in ("kubeadm", "kubectl", "kubelet"):
                os.link(binaries[name], context / "bin" / name)
            os.link(rootfs, context / "rootfs.tar")
        pause = component_images.pause_image(component_images.kubeadm_images(binaries))
        without_images = f"{reference}-without-images"
        run_logged(
            "Node image: Debian, kind's files and the kubelet",
            ["docker", "build", "--network=none", "--force-rm", "--tag", without_images,
             "--build-arg", f"PAUSE_IMAGE={pause}",
             "--build-arg", f"KUBERNETES_VERSION={kubernetes_version()}", context],
            log_name="node-image",
            env={**docker.env, "DOCKER_BUILDKIT": "0"},  # the builder that needs no plugin of the client
        )  # fmt: skip
        archive = folder / "images.tar"
        component_images.write_component_images(archive, binaries)
        _import_images(docker, without_images, archive, reference)


def _import_images(docker: Docker, image: str, archive: Path, result: str) -> None:
    """Import and unpack the archive into the image's containerd store once, so that no node has to."""
    container = f"node-image-{os.getpid()}"
    try:
        run_logged(
            "Node image: the components' images",
            ["docker", "run", f"--name={container}", "--privileged", "--network=none", "--entrypoint=sh",
             "--mount=type=volume,destination=/store", f"--volume={archive}:/images.tar:ro",
             image, "-c", IMPORT_SCRIPT],
            log_name="node-image-import",
            env=docker.env,
        )  # fmt: skip
        entrypoint = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
        docker.output("commit", "--change", entrypoint, "--change", "CMD []", container, result)
    finally:
        docker.succeeds("rm", "--force", "--volumes", container)


def _remove_older(docker: Docker, current: str) -> None:
    repository, _, _ = current.partition(":")
    for reference in docker.output("images", "--format={{.Repository}}:{{.Tag}}", repository).split():
        if not reference.startswith(current):
            docker.succeeds("image", "rm", reference)  # a cluster that still runs it keeps it


def _pull(docker: Docker, own_engine: OwnEngine | None, reference: str) -> bool:
    with step(f"Trying to pull {reference}"):
        if own_engine:
            return own_engine.pull(reference)
        return docker.succeeds("pull", reference, timeout_seconds=PULL_SECONDS)


def _kind_module() -> Path:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"]
    done = subprocess.run(command, cwd=TOOLS, check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())
