"""What the commands print, kept as golden texts, which docs/kubectl.md shows.

    python -m tests.kubectl.examples      writes the pure ones anew, and the document's blocks from all of them

The others are transcripts of tests against a real API server: `GOLDEN=1 pytest tests/kubectl` writes those.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kubectl_mb import drawing, listing, watching
from kubectl_mb.causes import causes_of
from kubectl_mb.clock import clock_time
from kubectl_mb.commands.planning import plan_words
from kubectl_mb.planning import plan_of
from kubectl_mb.sight import Sight
from kubectl_mb.tables import table
from kubectl_mb.timeline import timeline_of
from kubectl_mb.why import words
from modelbackend_operator.api import ANNOTATION_STOP, ANNOTATION_TEMPLATE_HASH, READINESS_GATE
from modelbackend_operator.pod_template import template_hash
from modelbackend_operator.spec import ModelBackendSpec, read_spec
from modelbackend_operator.timestamps import rfc3339
from tests.kubectl.situations import SITUATIONS, drains, raw_backend, raw_claim, raw_node
from tests.unit.builders import BACKEND_UID, NODE, NOW, POD_UID, PORT, later

FOLDER = Path(__file__).parent / "golden"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "timeline.svg"
DOCUMENT = Path(__file__).parents[2] / "docs" / "kubectl.md"
_BLOCK = re.compile(r"(<!-- golden: (?P<name>[\w-]+) -->\n```text\n)(?P<text>.*?)(```)", re.DOTALL)

Raw = dict[str, Any]


def why() -> str:
    told = (f"# {s.title}\n\n{words(s.sight, causes_of(s.sight), s.now)}\n" for s in SITUATIONS)
    return click.unstyle("\n\n".join(told))


def serving() -> Raw:
    status = {
        "replicas": 1,
        "readyReplicas": 1,
        "model": {"name": "smollm2"},
        "endpoints": [{"ordinal": 0, "role": "Grpc", "podUID": POD_UID, "address": f"10.0.0.1:{PORT}"}],
        "instances": [
            {
                "ordinal": 0,
                "phase": "Serving",
                "pod": {"name": "smollm2-0", "uid": POD_UID},
                "node": {"name": NODE.name, "uid": NODE.uid},
                "port": PORT,
                "address": f"10.0.0.1:{PORT}",
            }
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "serving",
                "lastTransitionTime": rfc3339(later(-300)),
            }
        ],
    }
    return raw_backend(status, resources={"limits": {"nvidia.com/gpu": 1}})


def list_of_three() -> str:
    backends = [serving(), *(raw for s in SITUATIONS[2:4] if (raw := s.sight.backend) is not None)]
    named = [{**raw, "metadata": {**raw["metadata"], "name": f"model-{n}"}} for n, raw in enumerate(backends)]
    rows = [listing.backend_row(backend, later(75)) for backend in named]
    return table(*listing.columns(listing.BACKENDS, rows))


def ledger() -> tuple[Raw, ...]:
    pod, node = {"name": "smollm2-0", "uid": POD_UID}, {"name": NODE.name, "uid": NODE.uid}
    past = {"pod": {"name": "smollm2-0-1", "uid": "p0"}, "since": rfc3339(later(-900)), "until": rfc3339(later(-400))}
    history = [{**past, "evidence": "ContainersTerminated"}]
    lost = {
        "pod": {"name": "gemma-0", "uid": "6f1c2d30"},
        "node": {"name": "node-2", "uid": "n2"},
        "reason": "Unconfirmed",
    }
    ended = {"evidence": "ContainersTerminated", "pod": {"name": "qwen-0", "uid": "q0"}}
    return (
        raw_claim(PORT, pod=pod, node=node, history=history),
        raw_claim(30012, "Withheld", owner="gemma", **lost),
        raw_claim(30041, "Cooling", owner="qwen", **ended),
    )


def ports() -> str:
    rows = [listing.port_row(claim, later(95)) for claim in ledger()]
    return table(*listing.columns(listing.PORTS, rows))


def watched() -> str:
    """Three looks at a drain that ends."""
    first = drains().sight.backend
    assert first is not None
    instance = first["status"]["instances"][0]
    looks = [first]
    for change in ({"inFlight": 1}, {"phase": "Terminating", "inFlight": None, "message": "waiting for the kubelet"}):
        entry = {key: value for key, value in {**instance, **change}.items() if value is not None}
        looks.append({**first, "status": {**first["status"], "instances": [entry]}})
    lines, before = [], tuple[watching.Seen, ...]()
    for seconds, look in enumerate(looks):
        now, now_seen = later(5 + 9 * seconds), watching.seen(look)
        lines += [f"{clock_time(now, now)}  {entry.line(now)}" for entry in watching.changes(before, now_seen)]
        before = now_seen
    last = {"outcome": "Drained", "pod": instance["pod"], "seconds": 24, "finished": rfc3339(later(24))}
    ended = watching.ending_words({**first, "status": {**first["status"], "lastShutdown": last}})
    return "\n".join([*lines, f"smollm2 is gone. {ended}"])


def a_pod(spec: Raw, **special: Any) -> Raw:
    """Serving, as made from this spec."""
    read = read_spec(spec)
    assert isinstance(read, ModelBackendSpec)
    gate = {"type": READINESS_GATE, "status": "True", "lastTransitionTime": rfc3339(later(-480))}
    owner = {"apiVersion": "modelbackend.dev/v1alpha1", "kind": "ModelBackend", "uid": BACKEND_UID, "controller": True}
    metadata = {
        "name": "smollm2-12345678-0",
        "namespace": "models",
        "uid": POD_UID,
        "resourceVersion": "1",
        "creationTimestamp": rfc3339(later(-560)),
        "ownerReferences": [owner],
        "finalizers": ["modelbackend.dev/termination"],
        **special.get("metadata", {}),
        "annotations": {ANNOTATION_TEMPLATE_HASH: template_hash(read), **special.get("annotations", {})},
    }
    state = {"running": {"startedAt": rfc3339(later(-540))}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": NODE.name},
        "status": {
            "phase": "Running",
            "conditions": [gate],
            "containerStatuses": [{"name": "server", "state": state}],
            **special.get("status", {}),
        },
    }


def planned(change: Raw) -> str:
    backend = serving()
    claim = raw_claim(PORT, pod={"name": "smollm2-12345678-0", "uid": POD_UID})
    sight = Sight("models", "smollm2", backend=backend, pods=(a_pod(backend["spec"]),), ledger=(claim,))
    edited = {**backend, "spec": {**backend["spec"], **change}}
    return click.unstyle(plan_words(plan_of(sight, edited)))


def plan() -> str:
    return planned({"runtime": {"contextLength": 8192}, "replicas": 2, "shutdown": {"drainSeconds": 120}})


def a_life() -> Sight:
    """Served, deleted, and its node lost in the middle of the end."""
    backend = serving()
    stop = '{"since": "%s", "reason": "BackendDeleted", "deadline": "%s", "epoch": "l/0"}'
    annotations = {
        ANNOTATION_STOP: stop % (rfc3339(later(-120)), rfc3339(later(-90))),
        "modelbackend.dev/unconfirmed": rfc3339(later(-15)),
    }
    metadata = {"deletionTimestamp": rfc3339(later(-75)), "deletionGracePeriodSeconds": 15}
    pod = a_pod(backend["spec"], annotations=annotations, metadata=metadata)
    past, claim = (
        ledger()[0]["status"]["history"],
        raw_claim(PORT, "Withheld", pod={"name": "smollm2-12345678-0", "uid": POD_UID}),
    )
    claim["status"] |= {"since": rfc3339(later(-15)), "history": past}
    told = (
        (-560, "Normal", "PodCreated", "created pod smollm2-12345678-0 for instance 0"),
        (-480, "Normal", "Serving", "instance 0 (pod smollm2-12345678-0) serves"),
        (
            -120,
            "Normal",
            "Stopping",
            "stopping instance 0 (pod smollm2-12345678-0): BackendDeleted; draining for at most 30 s",
        ),
        (-90, "Warning", "Forced", "drain deadline passed for pod smollm2-12345678-0, with 2 requests in flight"),
        (
            -15,
            "Warning",
            "PortWithheld",
            f"port {PORT} stays withheld: pod smollm2-12345678-0 on node node-1 should have ended <& nothing proves it",
        ),
    )
    events = tuple(
        {"firstTimestamp": rfc3339(later(at)), "type": kind, "reason": reason, "message": message}
        for at, kind, reason, message in told
    )
    deleted = {**backend, "metadata": {**backend["metadata"], "deletionTimestamp": rfc3339(later(-120))}}
    nodes = {NODE.name: raw_node(trouble="Kubelet stopped posting node status.")}
    return Sight("models", "smollm2", backend=deleted, pods=(pod,), ledger=(claim,), events=events, nodes=nodes)


def timeline() -> str:
    return drawing.as_text(timeline_of(a_life(), NOW))


EXAMPLES: dict[str, Callable[[], str]] = {
    "why": why,
    "list": list_of_three,
    "ports": ports,
    "watch": watched,
    "plan": plan,
    "timeline": timeline,
    "timeline-svg": lambda: drawing.as_svg(timeline_of(a_life(), NOW)),
    "timeline-html": lambda: drawing.as_html(timeline_of(replace(a_life(), hidden=frozenset()), NOW)),
}


def file_of(name: str) -> Path:
    return PICTURE if name == "timeline-svg" else FOLDER / f"{name}.txt"


def golden(name: str) -> str:
    return file_of(name).read_text()


def document() -> str:
    """docs/kubectl.md, with each block as its golden text is."""
    return _BLOCK.sub(lambda found: f"{found[1]}{golden(found['name'])}{found[4]}", DOCUMENT.read_text())


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        file_of(name).write_text(f"{example().rstrip()}\n")
    if DOCUMENT.exists():
        DOCUMENT.write_text(document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
