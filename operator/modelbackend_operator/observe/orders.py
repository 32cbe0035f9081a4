"""What people order, or attest, by annotation."""

from modelbackend_operator.api import ANNOTATION_ATTEST, ANNOTATION_EXTEND, ANNOTATION_FORCE
from modelbackend_operator.model.backend import Attestation, OrderKind
from modelbackend_operator.reading import Raw, annotations


def orders_from(found: Raw) -> dict[OrderKind, str]:
    names = {
        OrderKind.FORCE: ANNOTATION_FORCE,
        OrderKind.EXTEND: ANNOTATION_EXTEND,
        OrderKind.ATTEST: ANNOTATION_ATTEST,
    }
    given = {kind: found.get(name) for kind, name in names.items()}
    return {kind: text for kind, text in given.items() if isinstance(text, str)}


def attestation_from(raw: Raw) -> Attestation | None:
    """`<pod uid> <reason>`; the reason may be missing, and is then asked for."""
    pod_uid, _, reason = str(annotations(raw).get(ANNOTATION_ATTEST, "")).strip().partition(" ")
    return Attestation(pod_uid, reason.strip()) if pod_uid else None
