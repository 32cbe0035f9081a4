"""An Event as the object that is posted (`events.k8s.io` is served from the same store as the core kind)."""

import time
from datetime import datetime

from modelbackend_operator.api import API_VERSION, MANAGED_BY
from modelbackend_operator.events import Event
from modelbackend_operator.timestamps import rfc3339


def namespace_of_events(event: Event) -> str:
    """Events are namespaced; those of objects that are in no namespace are kept in this one."""
    return event.namespace or "default"


def event_object(event: Event, now: datetime) -> dict[str, object]:
    moment = rfc3339(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{event.name[:200]}.{time.time_ns():x}", "namespace": namespace_of_events(event)},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": event.kind,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": MANAGED_BY},
        "reportingComponent": MANAGED_BY,
        "reportingInstance": "",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
