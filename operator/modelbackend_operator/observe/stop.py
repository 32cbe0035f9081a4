"""A stop record, from the annotation in which it is written on the pod."""

from collections.abc import Mapping

from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from modelbackend_operator.reading import json_object, word
from modelbackend_operator.timestamps import parse_time


def stop_record_from(annotation: object) -> StopRecord | None:
    """One that was damaged by hand is none: the instance is judged again, and recorded again where it must end."""
    record = json_object(annotation)
    since, deadline = parse_time(record.get("since")), parse_time(record.get("deadline"))
    reason = word(StopReason, record.get("reason"))
    if since is None or deadline is None or reason is None:
        return None
    return StopRecord(
        since,
        reason,
        deadline,
        epoch=str(record.get("epoch") or ""),
        extended=str(record.get("extended") or ""),
        cut=_cut(record.get("cut")),
        yielded_at=parse_time(record.get("yieldedAt")),
    )


def _cut(found: object) -> Cut | None:
    if not isinstance(found, Mapping):
        return None
    requests = found.get("requests")
    return Cut(str(found.get("order") or ""), requests if isinstance(requests, int) else None)
