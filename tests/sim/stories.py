"""Steps in words: one line each, for people who read why a promise broke, and for the golden logs."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from modelbackend_operator import actions as do
from modelbackend_operator.actions import Action


def told(action: Action) -> str:
    """`BindClaim port-30003 to p-1` and the like; never a resource version."""
    name = type(action).__name__
    match action:
        case do.CreateClaim(backend=backend, ordinal=ordinal, port=port):
            return f"{name} port-{port} for {backend.ref.uid}/{ordinal}"
        case do.CreatePod(backend=backend, ordinal=ordinal, port=port):
            return f"{name} of {backend.ref.uid}/{ordinal}" + (f" for port {port}" if port else "")
        case do.CreateService(node_port=node_port, pod_uid=pod_uid):
            return f"{name} port {node_port} -> {pod_uid}" if node_port else f"{name} for callers inside"
        case do.BindClaim(claim=claim, pod=pod):
            return f"{name} {claim.ref.name} to {pod.ref.uid}"
        case do.CoolClaim(claim=claim, evidence=evidence):
            return f"{name} {claim.ref.name} of {claim.pod_uid} ({evidence})"
        case do.AcquireLease(holder=holder):
            return f"{name} for {holder.pod_uid} ({holder.purpose})"
        case do.WriteStopRecord(pod=pod, record=record):
            return f"{name} on {pod.ref.uid} ({record.reason})"
        case do.DeletePod(pod=pod, grace_seconds=grace_seconds):
            return f"{name} {pod.ref.uid} with {grace_seconds} s"
        case do.SetServing(pod=pod, serving=serving):
            return f"{name} {pod.ref.uid} {serving}"
        case do.PointService(service=service, pod_uid=pod_uid):
            return f"{name} {service.ref.uid} -> {pod_uid or 'all'}"
        case do.WriteStatus(backend=backend, status=status):
            return f"{name} of {backend.ref.uid} ({_summary(status)})"
    targets = (getattr(action, field.name) for field in fields(action))
    refs = [target.ref for target in targets if hasattr(target, "ref")]
    named = [ref.name if ref.name.startswith("port-") else ref.uid for ref in refs]
    return " ".join([name, *named])


def _summary(status: Mapping[str, Any]) -> str:
    words = [f"{entry['type']}={entry['status']} {entry['reason']}" for entry in status.get("conditions") or ()]
    return ", ".join(words)
