"""A cluster of which the status page shows each kind of row."""

from typing import Any

from modelbackend_operator.timestamps import rfc3339
from tests.kubectl.examples import ledger, serving
from tests.kubectl.situations import SITUATIONS, raw_claim
from tests.unit.builders import later

Raw = dict[str, Any]

NAMES = ("gemma-3-1b", "llama-3.2-1b", "qwen2.5-7b", "smollm2")


def named(raw: Raw, name: str, **status: Any) -> Raw:
    return {
        **raw,
        "metadata": {**raw["metadata"], "name": name},
        "status": {**raw["status"], "model": {"name": name}, **status},
    }


def backends() -> tuple[Raw, ...]:
    """One that drains, one that finds no node, one that is busy, one that serves."""
    stuck = {s.title: s.sight.backend for s in SITUATIONS if s.sight.backend is not None}
    last = {"outcome": "Forced", "pod": {"name": "smollm2-0-1", "uid": "p0"}, "seconds": 45, "requestsCut": 2}
    drained = {"outcome": "Drained", "pod": {"name": "gemma-0", "uid": "g0"}, "seconds": 12}
    return (
        named(dict(stuck["deleted, and requests run"]), NAMES[0]),
        named(dict(stuck["no node has a GPU to spare"]), NAMES[1]),
        named(
            dict(stuck["busy, and not to be ended by force"]),
            NAMES[2],
            lastShutdown={**drained, "finished": rfc3339(later(-4000))},
        ),
        named(serving(), NAMES[3], lastShutdown={**last, "finished": rfc3339(later(-400))}),
    )


def claims() -> tuple[Raw, ...]:
    message = (
        "pod gemma-0 (6f1c2d30) on node node-2 should have ended and nothing proves it; proof is its kubelet's report "
        "once the node is back, the taint node.kubernetes.io/out-of-service on it, or the annotation "
        'modelbackend.dev/attest="6f1c2d30 <reason>" on this PortClaim'
    )
    bound, withheld, cooling = ledger()
    told = {**withheld, "status": {**withheld["status"], "message": message}}
    return (bound, told, cooling, raw_claim(30055, "Reserved", owner="llama-3.2-1b"))
