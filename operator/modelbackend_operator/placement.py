"""Where a pod may run, beside what its spec says."""

from collections.abc import Collection
from typing import Any

Raw = dict[str, Any]


def avoiding(affinity: Raw | None, nodes: Collection[str]) -> Raw:
    """The affinity (core/v1), narrowed to other nodes than these.

    Any one of the terms is enough for a node, so each of them is narrowed.
    """
    affinity = affinity or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in sorted(nodes)]
    terms: list[Raw] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    narrowed = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": {**node_affinity, "requiredDuringSchedulingIgnoredDuringExecution": narrowed}}
