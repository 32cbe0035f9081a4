"""helm 3 and 4, kstatus and a reader of Argo CD's scripts, built from the versions that tools/go.mod pins."""

from __future__ import annotations

import re
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.steps import run_logged

TOOLS = Path(__file__).parent / "tools"
HELM_3 = "helm.sh/helm/v3/cmd/helm"
HELM_4 = "helm.sh/helm/v4/cmd/helm"


def build() -> Path:
    """The folder with `helm`, `helm4` and all else that the module in tools/ makes; built once for its sources."""
    flags = _linker_flags((TOOLS / "go.mod").read_text())
    folder = cache_root() / "helm" / digest_of(TOOLS, flags)
    if not folder.exists():
        with publish(folder) as draft:
            draft.mkdir()
            _build("helm 3 and what judges status, from source", f"{draft}/", flags, HELM_3, "./cmd/...")
            _build("helm 4, from source", f"{draft}/helm4", flags, HELM_4)  # its own name for itself is "helm" too
    return folder


def _build(title: str, target: str, flags: str, *packages: str) -> None:
    run_logged(
        title,
        ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", target, *packages],
        log_name="go-build-helm4" if HELM_4 in packages else "go-build-helm",
        cwd=TOOLS,
        env={"CGO_ENABLED": "0"},
    )


def _linker_flags(pinned: str) -> str:
    """Without them helm 3 takes itself for one of Kubernetes 1.20, and refuses charts that ask for more."""
    found = re.search(r"helm\.sh/helm/v3 (v\S+)[\s\S]*k8s\.io/client-go v0\.(\d+)\.", pinned)
    assert found, "go.mod pins helm and client-go"
    helm, minor = found.groups()
    versions = [f"-X helm.sh/helm/v3/internal/version.version={helm}"]
    for package in ("chartutil", "lint/rules"):
        versions += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor=1"]
        versions += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}"]
    return " ".join(["-s", "-w", *versions])
