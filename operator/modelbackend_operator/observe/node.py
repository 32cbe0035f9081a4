"""A machine, from its Node object."""

from modelbackend_operator.api import OUT_OF_SERVICE
from modelbackend_operator.model.node import Node
from modelbackend_operator.reading import Raw, conditions_by_type, entries, mapping
from modelbackend_operator.timestamps import parse_time

_INTERNAL_IP = "InternalIP"


def node_trouble(raw: Raw) -> str:
    """Why this node is not Ready, in its own or the node controller's words; empty while it is."""
    ready = _node_ready(raw)
    if ready.get("status", "True") == "True":
        return ""
    return ready.get("message") or ready.get("reason") or "it does not say why"


def node_from(raw: Raw) -> Node:
    """The heartbeat is that of the condition Ready, which a kubelet writes together with the boot id.

    A renewed Lease of the node would not do: the kubelet renews it apart from its status, which may be of before.
    """
    status, ready = mapping(raw.get("status")), _node_ready(raw)
    info, is_lost = mapping(status.get("nodeInfo")), ready.get("status", "True") != "True"
    taints = entries(mapping(raw.get("spec")).get("taints"))
    internal = (entry for entry in entries(status.get("addresses")) if entry.get("type") == _INTERNAL_IP)
    return Node(
        raw["metadata"]["name"],
        raw["metadata"]["uid"],
        info.get("bootID", ""),
        heartbeat_at=parse_time(ready.get("lastHeartbeatTime")),
        lost_since=parse_time(ready.get("lastTransitionTime")) if is_lost else None,
        out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in taints),
        address=next((entry["address"] for entry in internal if entry.get("address")), ""),
    )


def _node_ready(raw: Raw) -> Raw:
    return conditions_by_type(mapping(raw.get("status")).get("conditions")).get("Ready", {})
