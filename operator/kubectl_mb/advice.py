"""What would end each wait: one sentence a reason, with the commands to type.

`{name}`, `{pod}`, `{node}`, `{port}`, `{uid}` (of the pod) and `{other}` stand for what the wait is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from modelbackend_operator.reasons import Reason

_PROOF = (
    "the kubelet's report once node {node} is back, its reboot, its out-of-service taint, or your word that no process "
    "of the pod runs: kubectl mb attest {port} --pod {uid} --reason WHY"
)
_PROOF_WITHOUT_POD = (
    "a later reboot of node {node}, its out-of-service taint, or your word that no process of the pod runs: "
    "kubectl mb attest {port} --pod {uid} --reason WHY"
)
_PICK_PORT = "the end of the holder, or another exposure.nodePort, or none"
_EDIT = "a change of the spec that does what the sentence says"

ADVICE: Final[Mapping[Reason, str]] = {
    Reason.NO_INSTANCES: "kubectl scale mb/{name} --replicas=1",
    Reason.SUSPENDED: "kubectl mb resume {name}",
    Reason.ROLLING_OUT: "the instance that the sentence names, once it serves: see its own entry",
    Reason.STARTING: "nothing to do: an instance is being made",
    Reason.PREPARING: "its node, once the image is there; what is missing is in kubectl describe pod {pod}",
    Reason.FETCHING: "the download; kubectl mb logs {name} -c fetch-model -f shows how far it is",
    Reason.LOADING: "its server, once the model is read; kubectl mb logs {name} -f shows how far it is",
    Reason.DRAINING: (
        "the end of the requests, at the latest the deadline; "
        "kubectl mb extend {name} SECONDS gives more time, kubectl mb force {name} --reason WHY cuts them"
    ),
    Reason.BUSY: "the end of the requests, or kubectl mb force {name} --reason WHY, which cuts them",
    Reason.FORCED: "the kubelet's report that every container has ended",
    Reason.TERMINATING: "the kubelet's report that every container has ended; if it lasts, look at node {node}",
    Reason.WAITING_FOR_MODEL_LOCK: (
        "the end of that shutdown: kubectl mb watch {other}; kubectl mb force {other} --reason WHY cuts it short"
    ),
    Reason.UNSUPPORTED_FIELD: _EDIT,
    Reason.NAMESPACE_TERMINATING: "nothing: the namespace ends, and this backend with it",
    Reason.UNSCHEDULABLE: "a node with what the pod asks for: free or add one, or ask for less in spec.resources",
    Reason.IMAGE_UNAVAILABLE: (
        "an image that the node can pull: correct runtime.image, the tag, or the pull secret; the kubelet tries again"
    ),
    Reason.VOLUME_UNAVAILABLE: "the volume, claim or Secret that is missing: make it, or name another in the spec",
    Reason.MODEL_MISSING: "a file at model.source: put it there, or correct the path",
    Reason.MODEL_UNREADABLE: "another file, or the right model.sha256",
    Reason.ACCESS_DENIED: "the right credentials in the Secret that model.source names; it is tried again with them",
    Reason.WRONG_CHECKSUM: "another model.sha256, or the right file at the source",
    Reason.CACHE_FULL: "room on the cache volume: delete from it, or take a larger one",
    Reason.CACHE_UNUSABLE: "a cache volume that can be written to and locked",
    Reason.NOT_CACHED: "one download without model.cache.offline",
    Reason.UNKNOWN_HOST: "the right address, or the cluster's DNS",
    Reason.UNTRUSTED_SOURCE: "the authority that signs the source's certificate, in caBundleRef",
    Reason.SOURCE_UNREACHABLE: "the source, or the way to it: NetworkPolicies, a proxy in env; it is tried again",
    Reason.SOURCE_STALLED: "the source, or the way to it: NetworkPolicies, a proxy in env; it goes on where it was",
    Reason.SOURCE_UNEXPECTED: "an address that leads to a file",
    Reason.BAD_CONFIGURATION: _EDIT,
    Reason.PORT_TAKEN: "the end of the foreign process or Service, or another exposure",
    Reason.OUT_OF_MEMORY: "a higher resources.limits.memory, or a smaller runtime.contextLength",
    Reason.CRASHING: "what its last words ask for; kubectl mb logs {name} --previous has more of them",
    Reason.REJECTED_BY_NODE: "the next pod, when the sentence says; if it goes on, node {node} and its device plugin",
    Reason.SURGE_UNSCHEDULABLE: "room for a second pod, the change taken back, or rollout: Recreate",
    Reason.RESTART_BUDGET_EXHAUSTED: "any change of the spec, once the cause is mended",
    Reason.NODE_NOT_READY: "node {node}, once it reports again; nothing of it is released meanwhile",
    Reason.SERVER_SILENT: "the server's answer; a NetworkPolicy between the operator and the pod would stop it",
    Reason.TOKEN_REFUSED: "both made anew: delete the Secret that the sentence names, then pod {pod}",
    Reason.WRONG_IDENTITY: "this backend's own server in the pod: look at runtime.image",
    Reason.PORT_POOL_EXHAUSTED: "a port: delete a backend, wait for a Cooling one, or have the pool widened",
    Reason.PINNED_PORT_TAKEN: _PICK_PORT,
    Reason.PINNED_PORT_WITHHELD: "the end of the reuse delay, or proof (kubectl mb ports says which), or no pin",
    Reason.DENIED: "whoever owns the quota, the policy or the webhook; the write is tried again until then",
    Reason.PORT_WITHHELD: _PROOF_WITHOUT_POD,
    Reason.UNCONFIRMED: _PROOF,
    Reason.STILL_ANSWERING: "the end of that process on node {node}: it runs, whatever was said",
    Reason.ATTESTATION_REFUSED: "an attestation of the pod that the port is held for: {uid}",
    Reason.NODE_RETURNED: "a reboot of node {node}, or an attestation of {uid}; evidence.nodeRemoved is to be Withhold",
    Reason.VOLUME_HELD_BY_WITNESS: _PROOF,
    Reason.POD_MISSING: _PROOF_WITHOUT_POD,
}
"""Complete but for what needs nothing (`UNTOLD`); a test holds it so."""

UNTOLD = frozenset({Reason.READY, Reason.PORT_CLAIMED, Reason.BUSY_LIMIT, Reason.PORT_COOLING, Reason.NODE_LOSS_LIMIT})


@dataclass(frozen=True, slots=True)
class About:
    """What a wait is about, for the sentence; a word that is not known is left for the reader to fill in."""

    name: str
    """As it is typed: `smollm2 -n models`."""
    pod: str | None = None
    node: str | None = None
    port: int | None = None
    uid: str | None = None
    other: str | None = None
    """The backend that is waited for, as it is typed."""


def advice(reason: str, about: About) -> str:
    """Empty for a reason of a later version."""
    sentence = next((text for known, text in ADVICE.items() if known == reason), "")
    return sentence.format(
        name=about.name,
        pod=about.pod or "POD",
        node=about.node or "NODE",
        port=about.port or about.name,
        uid=about.uid or "UID",
        other=about.other or "NAME",
    )
