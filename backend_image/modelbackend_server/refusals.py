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
    DEADLINE_IN_QUEUE = enum.auto()
    DEADLINE_RUNNING = enum.auto()
    MODEL_MISMATCH = enum.auto()
    BACKEND_MISMATCH = enum.auto()
    DECODE_FAILED = enum.auto()


CODES = {
    Reason.QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.LOADING: grpc.StatusCode.UNAVAILABLE,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.STOPPED: grpc.StatusCode.UNAVAILABLE,
    Reason.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PROMPT_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DEADLINE_IN_QUEUE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.DEADLINE_RUNNING: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.MODEL_MISMATCH: grpc.StatusCode.NOT_FOUND,
    Reason.BACKEND_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DECODE_FAILED: grpc.StatusCode.INTERNAL,
}
MAY_HAVE_STARTED = frozenset({Reason.DEADLINE_RUNNING, Reason.DECODE_FAILED})
# Where waiting helps. Behind a Service the next try may reach another instance, so the waits are short.
RETRY_SECONDS = {Reason.QUEUE_FULL: 1.0, Reason.LOADING: 2.0, Reason.DRAINING: 1.0, Reason.STOPPED: 1.0}


@dataclass(frozen=True, slots=True)
class Refusal:
    """`field` is the path of the request's field at fault, if one is."""

    reason: Reason
    message: str
    field: str = ""


async def abort(context: grpc.aio.ServicerContext[Any, Any], refusal: Refusal) -> NoReturn:
    """Ends the call. grpc.aio has no abort_with_status, so the details go as the metadata they travel in."""
    trailing = ((DETAILS_KEY, details(refusal)),)
    await context.abort(CODES[refusal.reason], refusal.message, trailing_metadata=trailing)
    raise AssertionError("abort returned")


def details(refusal: Refusal) -> bytes:
    """A serialised google.rpc.Status."""
    reason = refusal.reason
    metadata = {} if reason in MAY_HAVE_STARTED else {"not_started": "true"}
    messages: list[Message] = [ErrorInfo(reason=reason.name, domain=DOMAIN, metadata=metadata)]
    if reason in RETRY_SECONDS:
        delay = Duration()
        delay.FromMilliseconds(int(RETRY_SECONDS[reason] * 1000))
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
