"""A model's Lease, from the object as the API server sent it."""

from modelbackend_operator.api import ANNOTATION_HOLDER
from modelbackend_operator.model.lease import Holder, Lease
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.reading import Raw, annotations, json_object, mapping, ref, word
from modelbackend_operator.timestamps import parse_time


def lease_from(raw: Raw) -> Lease:
    record, spec = json_object(annotations(raw).get(ANNOTATION_HOLDER)), mapping(raw.get("spec"))
    return Lease(
        ref=ref(raw),
        holder=_holder(record),
        transitions=spec.get("leaseTransitions") or 0,
        description=str(record.get("description") or ""),
        acquired_at=parse_time(spec.get("acquireTime")),
    )


def _holder(record: Raw) -> Holder | None:
    backend_uid, ordinal, pod_uid = record.get("backendUID"), record.get("ordinal"), record.get("podUID")
    purpose = word(StopReason, record.get("purpose"))
    if not (isinstance(backend_uid, str) and isinstance(ordinal, int) and isinstance(pod_uid, str) and purpose):
        return None
    return Holder(backend_uid, ordinal, pod_uid, purpose)
