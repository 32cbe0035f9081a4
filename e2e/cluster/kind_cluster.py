"""A cluster made by kind: one control plane and some workers, set up for tests of faults."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.docker import KIND_LABEL, Docker
from e2e.cluster.engine import has_capability_sys_resource
from images.cache import cache_root
from images.steps import StepError, run_logged, step

READY_SECONDS = 180.0

# A lost node shows NotReady after twelve seconds instead of fifty. Its kubelet says every four seconds (a quarter
# of the lease) that it lives, and what has changed on it.
NODE_MONITOR_GRACE_PERIOD = "12s"
NODE_LEASE_SECONDS = 16
NODE_STATUS_FREQUENCY = "4s"


@dataclass(frozen=True)
class KindCluster:
    """One cluster by name, in one engine; `folder` has its kubeconfig, kubectl and marks of its state."""

    name: str
    docker: Docker

    @property
    def folder(self) -> Path:
        return cluster_folder(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def kubectl_program(self) -> Path:
        return self.folder / "bin" / "kubectl"

    def nodes(self) -> list[str]:
        """The names of its containers, which are the names of its nodes."""
        template, label = "{{.Names}}", f"label={KIND_LABEL}={self.name}"
        return sorted(self.docker.output("ps", "--all", f"--format={template}", f"--filter={label}").split())

    def workers(self) -> list[str]:
        """The nodes that run ordinary pods: all but the control plane, or that one if it is alone."""
        return [node for node in self.nodes() if node != self.control_plane] or [self.control_plane]

    @property
    def control_plane(self) -> str:
        return f"{self.name}-control-plane"

    def address(self, node: str) -> str:
        """A node's address, which may change when the container starts again."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self.docker.output("inspect", "--format", template, node).strip()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """kubectl as the cluster's administrator; StepError with its own words when it fails."""
        command = [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StepError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def create(self, kind: Path, image: str, workers: int) -> None:
        """Create it; its nodes become Ready some time later."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "kind.json"
        version = self.docker.output("run", "--rm", "--network=none", "--entrypoint=cat", image, "/kind/version")
        config.write_text(json.dumps(kind_config(version.strip(), workers), indent=2))
        run_logged(
            f"Cluster {self.name} with {workers} workers",
            [kind, "create", "cluster", f"--name={self.name}", f"--image={image}", f"--config={config}",
             f"--kubeconfig={self.folder / 'kubeconfig.kind'}"],
            log_name=f"kind-{self.name}",
            env=self.docker.env,
        )  # fmt: skip
        self.write_access()

    def write_access(self) -> None:
        """Write kubectl, of the cluster's own version, and a kubeconfig with the control plane's address."""
        self.kubectl_program.parent.mkdir(exist_ok=True)
        if not self.kubectl_program.exists():
            self.docker.output("cp", f"{self.control_plane}:/usr/bin/kubectl", self.kubectl_program)
        config = json.loads(
            self.docker.output(
                "exec", self.control_plane, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
                "config", "view", "--raw", "--output=json",
            )
        )  # fmt: skip
        config["clusters"][0]["cluster"]["server"] = f"https://{self.address(self.control_plane)}:6443"
        draft = self.folder / ".kubeconfig"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(config, indent=2))
        draft.rename(self.kubeconfig)

    def wait_until_ready(self, count: int) -> None:
        """Wait until all nodes and all of kube-system's workloads are ready, not only the control plane."""
        with step(f"All {count} nodes and the system's pods ready"):
            deadline = time.monotonic() + READY_SECONDS
            while missing := self._not_ready(count):
                if time.monotonic() > deadline:
                    raise StepError(f"not ready after {READY_SECONDS:.0f} s: {', '.join(missing)}")
                time.sleep(0.5)

    def _not_ready(self, count: int) -> list[str]:
        try:
            nodes = json.loads(self.kubectl("get", "nodes", "--output=json"))["items"]
            workloads = json.loads(
                self.kubectl("get", "daemonsets,deployments", "--namespace=kube-system", "--output=json")
            )["items"]
        except StepError as failure:
            return [str(failure)]
        missing = [node["metadata"]["name"] for node in nodes if not is_ready(node)]
        if len(nodes) < count:
            missing.append(f"{count - len(nodes)} nodes that have not joined")
        for workload in workloads:
            status = workload["status"]
            wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas", 0))
            if status.get("numberReady", status.get("readyReplicas", 0)) < wanted:
                missing.append(workload["metadata"]["name"])
        return missing

    def mark_complete(self, workers: int) -> None:
        """Remember that nothing is missing any more."""
        self._mark.write_text(str(workers))

    def is_complete(self, workers: int) -> bool:
        """Whether it was made to the end, with this many workers, and answers."""
        if not self._mark.exists() or self._mark.read_text() != str(workers):
            return False
        if len(self.nodes()) != workers + 1:
            return False
        self.write_access()
        return not self._not_ready(workers + 1)

    @property
    def _mark(self) -> Path:
        return self.folder / "complete"

    def delete(self) -> None:
        """Remove its containers with their volumes, and its folder; harmless when there is nothing."""
        containers = self.nodes()
        if containers:
            with step(f"Deleting cluster {self.name}"):
                self.docker.remove_containers(containers)
        shutil.rmtree(self.folder, ignore_errors=True)


def cluster_folder(name: str) -> Path:
    """Where a cluster's kubeconfig and programs are."""
    return cache_root() / "clusters" / name


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a Node object's condition Ready is True."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", ())
    )


def kind_config(version: str, workers: int) -> dict[str, Any]:
    """kind's Cluster configuration for a node image of this Kubernetes version (`v1.35.4`)."""
    patches = [
        {
            "kind": "ClusterConfiguration",
            "controllerManager": {
                "extraArgs": _extra_args(version, {"node-monitor-grace-period": NODE_MONITOR_GRACE_PERIOD})
            },
            # The data need not survive a power cut, and fsync is most of what etcd waits for.
            "etcd": {"local": {"extraArgs": _extra_args(version, {"unsafe-no-fsync": "true"})}},
        },
        {
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "nodeLeaseDurationSeconds": NODE_LEASE_SECONDS,
            "nodeStatusUpdateFrequency": NODE_STATUS_FREQUENCY,
        },
    ]
    config: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *({"role": "worker"} for _ in range(workers))],
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
    }
    if not has_capability_sys_resource():
        # A container's score cannot go below its parent's there.
        config["containerdConfigPatches"] = ['[plugins."io.containerd.grpc.v1.cri"]\n  restrict_oom_score_adj = true']
    return config


def _extra_args(version: str, arguments: Mapping[str, str]) -> Any:
    # kind writes kubeadm's v1beta3 (a map) before Kubernetes 1.36 and v1beta4 (a list) from then on.
    minor = int(version.split(".")[1])
    if minor < 36:
        return dict(arguments)
    return [{"name": name, "value": value} for name, value in arguments.items()]
