"""helm and kstatus, built from the versions that tools/go.mod pins, after the test cluster's own programs."""

from __future__ import annotations

import re
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.steps import run_logged

TOOLS = Path(__file__).parent / "tools"
HELM_4 = Path(__file__).parent / "tools4"


def build(tools: Path = TOOLS) -> Path:
    """The folder with `helm` and whatever else the module of `tools` makes; built at the first call for its sources."""
    flags = _linker_flags(tools)
    folder = cache_root() / "helm" / digest_of(tools, flags)
    if not folder.exists():
        with publish(folder) as draft:
            draft.mkdir()
            packages = ["tool", *(["./cmd/..."] if (tools / "cmd").is_dir() else [])]
            run_logged(
                f"the programs of {tools.name}, from source",
                ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{draft}/", *packages],
                log_name=f"go-build-helm-{tools.name}",
                cwd=tools,
                env={"CGO_ENABLED": "0"},
            )
    return folder


def _linker_flags(tools: Path) -> str:
    """Without them helm 3 takes itself for one of Kubernetes 1.20, and refuses charts that ask for more."""
    pinned = (tools / "go.mod").read_text()
    found = re.search(r"helm\.sh/helm/v3 (v\S+)[\s\S]*k8s\.io/client-go v0\.(\d+)\.", pinned)
    if not found:
        return "-s -w"
    helm, minor = found.groups()
    versions = [f"-X helm.sh/helm/v3/internal/version.version={helm}"]
    for package in ("chartutil", "lint/rules"):
        versions += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor=1"]
        versions += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}"]
    return " ".join(["-s", "-w", *versions])
