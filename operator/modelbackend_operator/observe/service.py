"""A Service, from the object as the API server sent it."""

from collections.abc import Mapping

from modelbackend_operator.api import HTTP_PORT, LABEL_ORDINAL, LABEL_POD_UID
from modelbackend_operator.manifests import INSTANCE_PORTS, SHARED_PORTS, instance_selector, shared_selector
from modelbackend_operator.model.service import Service
from modelbackend_operator.observe.pod import ordinal_from
from modelbackend_operator.reading import Raw, entries, labels, labels_intact, mapping, owner_uid, ref, terminating


def service_from(raw: Raw) -> Service:
    spec = mapping(raw.get("spec"))
    of_instance = spec.get("type") == "NodePort" or LABEL_ORDINAL in labels(raw)
    selector = mapping(spec.get("selector"))
    pod_uid = selector.get(LABEL_POD_UID, "")
    node_ports = [(port.get("port"), port["nodePort"]) for port in entries(spec.get("ports")) if port.get("nodePort")]
    made = instance_selector(pod_uid) if of_instance else shared_selector(owner_uid(raw))
    # Whether it has an HTTP port is a matter of claims; where such a port leads is one of the Service.
    instance_ports = SHARED_PORTS if any(number == HTTP_PORT for number, _ in node_ports) else INSTANCE_PORTS
    return Service(
        ref=ref(raw),
        ordinal=ordinal_from(raw) if of_instance else None,
        node_port=next((port for number, port in node_ports if number != HTTP_PORT), None),
        http_node_port=next((port for number, port in node_ports if number == HTTP_PORT), None),
        pod_uid=pod_uid,
        terminating=terminating(raw),
        intact=labels_intact(raw)
        and selector == made
        and (_leads(spec, "NodePort", instance_ports) if of_instance else _leads(spec, "ClusterIP", SHARED_PORTS)),
    )


def _leads(spec: Raw, of_type: str, ports: Mapping[int, str]) -> bool:
    """A port that others added beside ours is none of our business."""
    found = {port.get("port"): port.get("targetPort") for port in entries(spec.get("ports"))}
    leads_there = found.items() >= ports.items()
    return leads_there and spec.get("type") == of_type and spec.get("externalTrafficPolicy") != "Local"
