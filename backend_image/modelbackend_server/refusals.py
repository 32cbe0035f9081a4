"""Errors that a program can act on: a gRPC code, a reason, and the details of google.rpc (AIP-193).

A caller may send a refused request again where the details say `not_started`; after any other error the model
may have worked on it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

DOMAIN = "modelbackend.dev"
DETAILS_KEY = "grpc-status-details-bin"


class Reason(enum.Enum):
    """As inference.proto lists them for callers."""

    QUEUE_FULL = enum.auto()
    LOADING = enum.auto()
    DRAINING = enum.auto()
    STOPPED = enum.auto()
    BAD_REQUEST = enum.auto()
    PROMPT_TOO_LONG = enum.auto()
    UNSUPPORTED = enum.auto()
    MODEL_CANNOT = enum.auto()
    DEADLINE_IN_QUEUE = enum.auto()
    DEADLINE_RUNNING = enum.auto()
    STALLED = enum.auto()
    CANCELLED = enum.auto()
    # HTTP only: gRPC tells it by FINISH_REASON_CANCELLED.
    CUT = enum.auto()
    MODEL_MISMATCH = enum.auto()
    BACKEND_MISMATCH = enum.auto()
    INSTANCE_MISMATCH = enum.auto()
    NO_TOKEN = enum.auto()
    WRONG_TOKEN = enum.auto()
    DECODE_FAILED = enum.auto()


CODES = {
    Reason.QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.LOADING: grpc.StatusCode.UNAVAILABLE,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.STOPPED: grpc.StatusCode.UNAVAILABLE,
    Reason.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PROMPT_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    Reason.MODEL_CANNOT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DEADLINE_IN_QUEUE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.DEADLINE_RUNNING: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.STALLED: grpc.StatusCode.ABORTED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.CUT: grpc.StatusCode.UNAVAILABLE,
    Reason.MODEL_MISMATCH: grpc.StatusCode.NOT_FOUND,
    Reason.BACKEND_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INSTANCE_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NO_TOKEN: grpc.StatusCode.UNAUTHENTICATED,
    Reason.WRONG_TOKEN: grpc.StatusCode.PERMISSION_DENIED,
    Reason.DECODE_FAILED: grpc.StatusCode.INTERNAL,
}
MAY_HAVE_STARTED = frozenset(
    {Reason.DEADLINE_RUNNING, Reason.STALLED, Reason.CANCELLED, Reason.CUT, Reason.DECODE_FAILED}
)
# Where waiting helps. Behind a Service the next try may reach another instance, so the waits are short.
RETRY_SECONDS = {Reason.QUEUE_FULL: 1.0, Reason.LOADING: 2.0, Reason.DRAINING: 1.0, Reason.STOPPED: 1.0}


def was_not_started(reason: Reason) -> bool:
    """Whether the request never reached the model, so that sending it again is safe."""
    return reason not in MAY_HAVE_STARTED


def retry_seconds(reason: Reason) -> float | None:
    """After how long the same request may do better; None where waiting does not help."""
    return RETRY_SECONDS.get(reason)


@dataclass(frozen=True, slots=True)
class Refusal:
    """`field` is the path of the request's field at fault, if one is."""

    reason: Reason
    message: str
    field: str = ""


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], refusal: Refusal, *trailing_metadata: tuple[str, str]
) -> NoReturn:
    """Ends the call. grpc.aio has no abort_with_status, so the details go as the metadata they travel in."""
    trailing: tuple[tuple[str, str | bytes], ...] = ((DETAILS_KEY, details(refusal)), *trailing_metadata)
    await context.abort(CODES[refusal.reason], refusal.message, trailing_metadata=trailing)
    raise AssertionError("abort returned")


def details(refusal: Refusal) -> bytes:
    """A serialised google.rpc.Status."""
    reason = refusal.reason
    metadata = {"not_started": "true"} if was_not_started(reason) else {}
    messages: list[Message] = [ErrorInfo(reason=reason.name, domain=DOMAIN, metadata=metadata)]
    if (after_seconds := retry_seconds(reason)) is not None:
        delay = Duration()
        delay.FromMilliseconds(int(after_seconds * 1000))
        messages.append(RetryInfo(retry_delay=delay))
    if refusal.field:
        violation = BadRequest.FieldViolation(field=refusal.field, description=refusal.message)
        messages.append(BadRequest(field_violations=[violation]))
    packed = []
    for message in messages:
        envelope = any_pb2.Any()
        envelope.Pack(message)
        packed.append(envelope)
    status = Status(code=CODES[reason].value[0], message=refusal.message, details=packed)
    serialised: bytes = status.SerializeToString()
    return serialised
