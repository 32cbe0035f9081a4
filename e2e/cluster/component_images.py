"""The images that kubeadm and our manifests ask for, each around one static program, as one archive."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from e2e.cluster.binaries import Binaries, kubernetes_version
from e2e.cluster.image_archive import Image, Layer, layer_of_files, layer_of_tar, write_archive
from images.debian_base import rootfs_archive
from images.steps import step

CATATONIT = Path("/usr/bin/catatonit")

# kube-proxy, kube-router and node-network run these programs; xtables' plugins need their libraries too.
NETWORK_PACKAGES = ("conntrack", "ipset", "iproute2", "iptables", "kmod", "nftables")

NODE_NETWORK = "localhost/node-network:e2e"
KUBE_ROUTER = "localhost/kube-router:e2e"
NODE_VOLUMES = "localhost/node-volumes:e2e"
FAKE_GPU = "localhost/fake-gpu:e2e"


def pause_image(references: list[str]) -> str:
    """The sandbox image among kubeadm's references; containerd must name the same one."""
    return next(reference for reference in references if "/pause:" in reference)


def kubeadm_images(binaries: Binaries) -> list[str]:
    """The references that this kubeadm wants, such as `registry.k8s.io/etcd:3.6.6-0`."""
    options = ("--kubernetes-version", kubernetes_version())
    return subprocess.check_output([binaries["kubeadm"], "config", "images", "list", *options], text=True).split()


def write_component_images(target: Path, binaries: Binaries) -> None:
    """Write the archive of all images that a cluster needs before anything of ours runs in it."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, step("Component images"):
        network = layer_of_tar(Path(folder) / "network.tar.gz", rootfs_archive(NETWORK_PACKAGES))
        images = [_kubeadm_image(Path(folder), reference, binaries, network)
                  for reference in kubeadm_images(binaries)]  # fmt: skip
        for reference, program, below in (
            (NODE_NETWORK, "node-network", (network,)),
            (KUBE_ROUTER, "kube-router", (network,)),
            (NODE_VOLUMES, "node-volumes", ()),
        ):
            layer = program_layer(Path(folder), binaries[program])
            images.append(Image(reference, (*below, layer), entrypoint=(f"/usr/local/bin/{program}",)))
        write_archive(target, images)


def write_fake_gpu_image(target: Path, binaries: Binaries) -> None:
    """Write the archive of the device plugin's image, which is loaded into every cluster."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        layer = program_layer(Path(folder), binaries["fake-gpu"])
        write_archive(target, [Image(FAKE_GPU, (layer,), entrypoint=("/usr/local/bin/fake-gpu",))])


def program_layer(folder: Path, program: Path) -> Layer:
    """A layer that has the program on the image's PATH."""
    return layer_of_files(folder / f"{program.name}.tar.gz", {f"/usr/local/bin/{program.name}": program})


def _kubeadm_image(folder: Path, reference: str, binaries: Binaries, network: Layer) -> Image:
    name = reference.rsplit("/", 1)[1].split(":")[0]
    match name:
        case "pause":
            layer = layer_of_files(folder / "pause.tar.gz", {"/pause": CATATONIT})
            return Image(reference, (layer,), entrypoint=("/pause", "-P"))
        case "coredns":  # its Deployment gives arguments only
            layer = program_layer(folder, binaries[name])
            return Image(reference, (layer,), entrypoint=("/usr/local/bin/coredns",))
        case "kube-proxy":
            return Image(reference, (network, program_layer(folder, binaries[name])))
        case _:
            return Image(reference, (program_layer(folder, binaries[name]),))
