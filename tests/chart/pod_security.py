"""The Pod Security Standard `restricted`, as far as a pod template can break it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from collections.abc import Iterator
from typing import Any

VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "image",
    }
)


def breaches(pod_spec: dict[str, Any]) -> list[str]:
    return list(_breaches(pod_spec))


def _breaches(spec: dict[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", ()):
        yield from (f"volume of type {kind}" for kind in volume if kind != "name" and kind not in VOLUMES)
    pod_context = spec.get("securityContext", {})
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        context = {**pod_context, **container.get("securityContext", {})}
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            yield f"{container['name']} may run as root"
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{container['name']} may gain privileges"
        if "ALL" not in context.get("capabilities", {}).get("drop", ()) or context["capabilities"].get("add"):
            yield f"{container['name']} has capabilities"
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{container['name']} has no seccomp profile"
        if context.get("readOnlyRootFilesystem") is not True:  # more than the standard asks
            yield f"{container['name']} may write to its image"
        yield from (f"host port {p['hostPort']}" for p in container.get("ports", ()) if p.get("hostPort"))
