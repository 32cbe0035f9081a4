"""What went wrong with a call, with the details that a program can act on."""

from __future__ import annotations

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "modelbackend.dev"
NEVER_SENT = "failed to connect to all addresses"
"""gRPC's own words for a call that found no connection to be sent on."""


class CallError(Exception):
    """`reason` as inference.proto lists them; "" where the error is not the server's own (no connection, say).

    `not_started` promises that the model never saw the request: sending it again is safe. Without it, the model
    may have worked on it. `field` is the path of the request's field at fault, if one is.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        not_started: bool = False,
        retry_after_seconds: float | None = None,
        field: str = "",
        is_no_connection: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.not_started = not_started
        self.retry_after_seconds = retry_after_seconds
        self.field = field
        self.is_no_connection = is_no_connection

    def __str__(self) -> str:
        return f"{self.code.name}{f' ({self.reason})' if self.reason else ''}: {self.message}"


def from_rpc(error: grpc.RpcError | grpc.aio.AioRpcError, *, begun: bool = False) -> CallError:
    """Reads an error of either gRPC API. `begun`: something of the answer has come, whatever the error says."""
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    code, message = error.code(), error.details() or ""
    info, retry, bad = ErrorInfo(), RetryInfo(), BadRequest()
    details = _details(error)
    # Another program's details promise nothing of ours.
    ours = any(detail.Is(info.DESCRIPTOR) and _unpacked(detail).domain == DOMAIN for detail in details)
    for detail in details if ours else ():
        for wanted in (info, retry, bad):
            if detail.Is(wanted.DESCRIPTOR):
                detail.Unpack(wanted)
    unsent = code is grpc.StatusCode.UNAVAILABLE and message.startswith(NEVER_SENT) and not details and not begun
    return CallError(
        code,
        message,
        reason=info.reason,
        not_started=unsent or (info.metadata.get("not_started") == "true" and not begun),
        is_no_connection=unsent,
        retry_after_seconds=retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None,
        field=bad.field_violations[0].field if bad.field_violations else "",
    )


def _unpacked(detail: Any) -> ErrorInfo:
    info = ErrorInfo()
    detail.Unpack(info)
    return info


def _details(error: grpc.Call | grpc.aio.AioRpcError) -> list[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            try:
                return list(Status.FromString(value).details)
            except DecodeError:
                return []
    return []
