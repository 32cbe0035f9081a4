"""Reading raw API objects without trusting their shape: what is absent or of another type reads as empty."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from modelbackend_operator.api import FINALIZER, GROUP, LABEL_BACKEND_UID, LABEL_MANAGED_BY, MANAGED_BY
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.timestamps import parse_time

Raw = Mapping[str, Any]
Word = TypeVar("Word", bound=StrEnum)

_LONG_AGO = datetime.fromtimestamp(0, UTC)


def mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def entries(value: object) -> list[Raw]:
    """The objects of a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def json_object(text: object) -> Raw:
    """An annotation's content; nothing when it is no JSON object."""
    try:
        return mapping(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def word(vocabulary: type[Word], value: object) -> Word | None:
    """The member of that name, or None for a name that this version does not know."""
    return next((member for member in vocabulary if member == value), None)


def ref(raw: Raw) -> Ref:
    metadata = raw["metadata"]
    return Ref(metadata["name"], metadata["uid"], metadata["resourceVersion"], metadata.get("namespace", ""))


def labels(raw: Raw) -> Raw:
    return mapping(raw["metadata"].get("labels"))


def annotations(raw: Raw) -> Raw:
    return mapping(raw["metadata"].get("annotations"))


def has_finalizer(raw: Raw) -> bool:
    """Ours."""
    return FINALIZER in (raw["metadata"].get("finalizers") or ())


def owner_uid(raw: Raw) -> str:
    """Of the ModelBackend that controls this object, or empty.

    Labels are only a hint, because anybody may write them. One exception: an object that was orphaned on purpose
    (`kubectl delete --cascade=orphan`) has no owner left, but carries our finalizer and is still ours to end.
    """
    owners = raw["metadata"].get("ownerReferences") or ()
    for owner in owners:
        if owner.get("controller"):
            return str(owner["uid"]) if owner["apiVersion"].startswith(f"{GROUP}/") else ""
    return str(labels(raw).get(LABEL_BACKEND_UID, "")) if not owners and has_finalizer(raw) else ""


def terminating(raw: Raw) -> bool:
    return raw["metadata"].get("deletionTimestamp") is not None


def created_at(raw: Raw) -> datetime:
    return parse_time(raw["metadata"].get("creationTimestamp")) or _LONG_AGO


def labels_intact(raw: Raw) -> bool:
    """Still labelled as ours; a watch that asks for our label does not show what has lost it."""
    return bool(
        labels(raw).get(LABEL_MANAGED_BY) == MANAGED_BY and labels(raw).get(LABEL_BACKEND_UID) == owner_uid(raw)
    )


def conditions_by_type(conditions: object) -> dict[str, Raw]:
    return {condition["type"]: condition for condition in entries(conditions) if "type" in condition}


def is_true(conditions: Mapping[str, Raw], name: str) -> bool:
    return bool(conditions.get(name, {}).get("status") == "True")
