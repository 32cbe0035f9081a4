"""Every program of the test cluster, built from the versions that tools/go.mod pins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.steps import run_logged

TOOLS = Path(__file__).parent / "tools"

# What `go build` is asked for. The first two change with go.mod only, the last with the sources beside it too.
PINNED = ("tool",)
KIND = ("sigs.k8s.io/kind",)
OWN = ("./cmd/...",)


@dataclass(frozen=True)
class Binaries:
    """Folders of static programs: kind, and for a node from source kubelet, kube-apiserver and the others."""

    folders: tuple[Path, ...]

    def __getitem__(self, name: str) -> Path:
        for folder in self.folders:
            if (folder / name).exists():
                return folder / name
        raise KeyError(f"no {name} in {', '.join(map(str, self.folders))}")


def build_all() -> Binaries:
    """Build every program at the first call for these sources (some ten minutes on two cores)."""
    pinned = _build(PINNED, f"Kubernetes {kubernetes_version()} and the other programs, from source")
    return Binaries((pinned, _build(OWN, "the nodes' own programs, from source")))


def build_tooling() -> Binaries:
    """Build only what a cluster of ready-made node images needs: kind and the fake GPUs' plugin."""
    return Binaries((_build(KIND, "kind, from source"), _build(OWN, "the fake GPUs' plugin, from source")))


def binaries_folder(packages: Sequence[str]) -> Path:
    """Where the programs of these packages, in these versions, are or will be."""
    sources = [TOOLS] if packages == OWN else [TOOLS / "go.mod", TOOLS / "go.sum"]
    return cache_root() / "cluster" / "bin" / digest_of(*sources, _linker_flags(), " ".join(packages))


def _build(packages: Sequence[str], title: str) -> Path:
    folder = binaries_folder(packages)
    if not folder.exists():
        with publish(folder) as draft:
            draft.mkdir()
            run_logged(
                title,
                ["go", "build", "-v", "-trimpath", "-ldflags", _linker_flags(), "-o", f"{draft}/", *packages],
                log_name="go-build",
                cwd=TOOLS,
                env={"CGO_ENABLED": "0"},
            )
            if (draft / "server").exists():  # the root package of etcd's server module
                (draft / "server").rename(draft / "etcd")
    return folder


def module_version(module: str) -> str:
    """The version of a Go module that go.mod pins, such as `v1.35.4`."""
    found = re.search(rf"^\s+{re.escape(module)} (v\S+)", (TOOLS / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise LookupError(f"{TOOLS / 'go.mod'} does not require {module}")
    return found.group(1)


def kubernetes_version() -> str:
    """The version of Kubernetes, such as `v1.35.4`."""
    return module_version("k8s.io/kubernetes")


def _linker_flags() -> str:
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    # kubeadm derives the image names from these; without them the programs call themselves v0.0.0-master.
    facts = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "0",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    settings = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items()]
    settings.append(f"-X k8s.io/client-go/pkg/version.gitVersion={version}")
    return " ".join(["-s", "-w", *settings])
