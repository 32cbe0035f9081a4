"""Node faults: the one interface that tests use to stop, kill, pause and cut off a node.

match node_control(["mb-worker"]):
    case KindNodes() as nodes: nodes.stop("mb-worker")
    case UnsupportedNodes(reason): pytest.skip(reason)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from e2e.cluster.docker import KIND_LABEL, Docker
from e2e.cluster.engine import running_engine
from images.steps import StepError

BOOT_SECONDS = 60.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Drops what enters and leaves the node, as a pulled cable does; routes, sockets and the traffic between the
# node's own pods and kubelet stay as they are.
PARTITION_RULES = """\
table inet partition {
  chain incoming { type filter hook prerouting priority -400; iifname "eth0" drop; }
  chain outgoing { type filter hook postrouting priority 400; oifname "eth0" drop; }
}
"""


@dataclass(frozen=True)
class UnsupportedNodes:
    """A cluster whose nodes we cannot touch; tests of node faults skip with this reason."""

    reason: str


@dataclass(frozen=True)
class KindNodes:
    """Nodes that are containers of a Docker engine. Each call returns when the act is done, not when the
    API server has noticed it."""

    docker: Docker

    def stop(self, node: str) -> None:
        """Stop the kubelet: containers run on, nobody watches them, the node becomes NotReady."""
        self.docker.output("exec", node, "systemctl", "stop", "kubelet")

    def start(self, node: str) -> None:
        """Start what was stopped or killed: the machine (its address may change), then the kubelet."""
        self.docker.output("start", node)
        deadline = time.monotonic() + BOOT_SECONDS
        while not self.docker.succeeds("exec", node, "systemctl", "start", "kubelet"):
            if time.monotonic() > deadline:
                raise StepError(f"{node}: the kubelet does not start {BOOT_SECONDS:.0f} s after the machine")
            time.sleep(0.2)

    def kill(self, node: str) -> None:
        """Lose the machine: every process on it ends at once, without a word to anyone."""
        self.docker.output("kill", node)

    def pause(self, node: str) -> None:
        """Freeze every process of the node."""
        self.docker.output("pause", node)

    def unpause(self, node: str) -> None:
        """Let a paused node go on."""
        self.docker.output("unpause", node)

    def change_boot_id(self, node: str) -> None:
        """What a reboot changes beside ending every process (`kill` and `start` do that): the kubelet, started anew,
        reports another boot id. Containers share the host's; the next `start` shows that one again."""
        script = f"cat /proc/sys/kernel/random/uuid > /run/boot_id && mount --bind /run/boot_id {BOOT_ID}"
        self.docker.output("exec", node, "sh", "-c", script)
        self.docker.output("exec", node, "systemctl", "restart", "kubelet")

    def has_other_boot_id(self, node: str) -> bool:
        """Whether `change_boot_id` still tells: a machine that is killed and started shows the host's again."""
        return self.docker.succeeds("exec", node, "mountpoint", "--quiet", BOOT_ID)

    def put(self, node: str, file: Path, path: str) -> None:
        """Copy a file onto the node, where everybody may read it."""
        self.docker.output("exec", node, "mkdir", "-p", str(PurePosixPath(path).parent))
        self.docker.output("cp", file, f"{node}:{path}")
        self.docker.output("exec", node, "chmod", "0644", path)

    def containers(self, nodes: Sequence[str]) -> list[str]:
        """Their full ids, by which the control groups of what runs on them are named."""
        return self.docker.output("inspect", "--format={{.Id}}", *nodes).split()

    def kill_process(self, node: str, command: str) -> None:
        """SIGKILL to every process of the node whose command line contains `command`; it may be that there is none."""
        self.docker.succeeds("exec", node, "pkill", "-KILL", "-f", command)

    def partition(self, node: str) -> None:
        """Cut the node's network off from every other machine; what runs on it runs on."""
        self.docker.output("exec", node, "nft", PARTITION_RULES)

    def heal(self, node: str) -> None:
        """Connect a partitioned node again; harmless when it is connected."""
        self.docker.output("exec", node, "nft", "add table inet partition; delete table inet partition")


NodeControl = KindNodes | UnsupportedNodes

ACTS = ("stop", "start", "kill", "pause", "unpause", "partition", "heal")


def node_control(nodes: Sequence[str]) -> NodeControl:
    """The control of these nodes (names as the API server has them), if they are containers of an engine here."""
    docker = running_engine()
    if docker is None:
        return UnsupportedNodes("no Docker engine runs here, so the cluster's nodes are not its containers")
    containers = docker.output("ps", "--all", "--format={{.Names}}", f"--filter=label={KIND_LABEL}").split()
    missing = [node for node in nodes if node not in containers]
    if missing:
        return UnsupportedNodes(f"not kind nodes of the engine here: {', '.join(missing)}")
    return KindNodes(docker)


def act(name: str, node: str) -> None:
    """Do one of ACTS by its name; StepError where the nodes are not ours."""
    match node_control([node]):
        case UnsupportedNodes(reason):
            raise StepError(reason)
        case KindNodes() as nodes:
            getattr(nodes, name)(node)
