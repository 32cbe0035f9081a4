"""`up`, `down`, `status` and `load`: what the command line does."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.binaries import OWN, Binaries, binaries_folder, build_all, build_tooling
from e2e.cluster.component_images import write_fake_gpu_image
from e2e.cluster.docker import Docker
from e2e.cluster.engine import OwnEngine, running_engine
from e2e.cluster.kind_cluster import KindCluster, cluster_folder
from e2e.cluster.load import load
from e2e.cluster.node_image import Origin, provide_node_image
from e2e.cluster.preflight import preflight, remove_policy
from images.cache import cache_root, publish, remove_abandoned_scratch
from images.steps import StepError, say, step

FAKE_GPU_MANIFEST = Path(__file__).parent / "manifests" / "fake-gpu.yaml"
DEVICES_SECONDS = 60.0


@contextmanager
def exclusive() -> Iterator[None]:
    """One `up` or `down` at a time: they share an engine, and `down` removes what seems to be nobody's."""
    with (cache_root() / "cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("    waiting for another `up` or `down` to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@exclusive()
def up(name: str, workers: int) -> None:
    """Make the cluster ready for use; one that already is stays, anything half made is replaced."""
    started = time.monotonic()
    docker = Docker()
    own_engine = None
    preflight()
    if not docker.succeeds("info", timeout_seconds=10.0):
        own_engine = OwnEngine()
        own_engine.start()
        own_engine.remove_leftovers()
        docker = own_engine.docker
    cluster = KindCluster(name, docker)
    if cluster.is_complete(workers):
        say(f"    cluster {name} is up already")
    else:
        cluster.delete()
        image = provide_node_image(docker, own_engine)
        binaries = build_all() if image.origin is Origin.BUILT else build_tooling()
        cluster.create(binaries["kind"], image.reference, workers)
        add_fake_gpus(cluster, binaries)
        cluster.wait_until_ready(workers + 1)
        wait_for_gpus(cluster)
        cluster.mark_complete(workers)
    say(f"==> cluster {name} is ready after {time.monotonic() - started:.0f} s\n{environment(name)}")


def add_fake_gpus(cluster: KindCluster, binaries: Binaries) -> None:
    """Give every worker devices of nvidia.com/gpu."""
    archive = cache_root() / "cluster" / f"fake-gpu-{binaries_folder(OWN).name}.tar"
    if not archive.exists():
        with publish(archive) as draft:
            write_fake_gpu_image(draft, binaries)
    load(cluster.docker, cluster.workers(), archive)
    cluster.kubectl("apply", "--filename", str(FAKE_GPU_MANIFEST))


def wait_for_gpus(cluster: KindCluster) -> None:
    """Wait until the scheduler can see every worker's devices."""
    with step("Fake GPUs"):
        deadline = time.monotonic() + DEVICES_SECONDS
        while missing := [node for node in cluster.workers() if gpus(cluster, node) == 0]:
            if time.monotonic() > deadline:
                raise StepError(f"no nvidia.com/gpu on {', '.join(missing)} after {DEVICES_SECONDS:.0f} s")
            time.sleep(0.5)


def gpus(cluster: KindCluster, node: str) -> int:
    """How many nvidia.com/gpu a pod can ask for on a node."""
    return int(json.loads(cluster.kubectl("get", "node", node, "--output=json"))["status"]["allocatable"].get(
        "nvidia.com/gpu", 0))  # fmt: skip


@exclusive()
def down(name: str) -> None:
    """Remove the cluster and, after the last one, our engine with all that it left on the host."""
    own_engine = OwnEngine()
    users_engine = Docker()
    if users_engine.succeeds("info", timeout_seconds=10.0):
        KindCluster(name, users_engine).delete()
    if own_engine.pid() or own_engine.holds_containers():
        own_engine.start()
        KindCluster(name, own_engine.docker).delete()
        own_engine.remove_leftovers()
    if own_engine.holds_containers():
        say("    the engine stays: it has other clusters")
    else:
        own_engine.stop()
    remove_policy()
    remove_abandoned_scratch()
    say(f"==> cluster {name} is gone")


def status(name: str) -> None:
    """Print what exists of the cluster."""
    docker = running_engine()
    if docker is None:
        say("no Docker engine runs, so no cluster does")
        return
    cluster = KindCluster(name, docker)
    if not cluster.nodes():
        say(f"there is no cluster {name}: make one with python3 -m e2e.cluster up --name {name}")
        return
    for container in cluster.nodes():
        state = docker.output("inspect", "--format={{.State.Status}}", container).strip()
        say(f"{container:<24} {state:<8} {cluster.address(container)}")
    if cluster.kubeconfig.exists():
        say(cluster.kubectl("get", "nodes", "--output=wide"))
    say(environment(name))


def load_archive(name: str, archive: Path) -> None:
    """Put an image archive on every node that runs ordinary pods."""
    docker = running_engine()
    if docker is None or not KindCluster(name, docker).nodes():
        raise StepError(f"there is no cluster {name}: make one with python3 -m e2e.cluster up --name {name}")
    load(docker, KindCluster(name, docker).workers(), archive)


def environment(name: str) -> str:
    """Shell lines that put this cluster's kubectl on the PATH and point it there."""
    folder = cluster_folder(name)
    return f'export KUBECONFIG={folder / "kubeconfig"}\nexport PATH={folder / "bin"}:"$PATH"'
