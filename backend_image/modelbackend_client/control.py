"""Status and drain, for people who debug; the operator has its own client."""

from __future__ import annotations

from collections.abc import Generator

import grpc

from modelbackend.v1 import control_pb2, control_pb2_grpc

from .errors import from_rpc


class ControlClient:
    """`token` is the content of the backend's control token; a server by itself on this machine needs none."""

    def __init__(self, address: str, *, token: str | None = None, timeout_seconds: float = 5) -> None:
        self._stub = control_pb2_grpc.ControlStub(grpc.insecure_channel(address))
        self._metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
        self._timeout_seconds = timeout_seconds

    def status(self) -> control_pb2.Status:
        request = control_pb2.GetStatusRequest()
        try:
            return self._stub.GetStatus(request, timeout=self._timeout_seconds, metadata=self._metadata).status
        except grpc.RpcError as error:
            raise from_rpc(error) from None

    def drain(self, deadline_seconds: float | None = None) -> control_pb2.Status:
        """Returns at once; the server takes nothing new from then on."""
        request = control_pb2.DrainRequest(deadline_seconds=deadline_seconds)
        try:
            return self._stub.Drain(request, timeout=self._timeout_seconds, metadata=self._metadata).status
        except grpc.RpcError as error:
            raise from_rpc(error) from None

    def watch(self) -> Generator[control_pb2.Status]:
        """The status now, and anew with each change, until the server has ended. Close it to leave earlier."""
        call = self._stub.WatchStatus(control_pb2.WatchStatusRequest(), metadata=self._metadata)
        try:
            for response in call:
                yield response.status
        except grpc.RpcError as error:
            raise from_rpc(error) from None
        finally:
            call.cancel()

    def cancel(self, request_id: str) -> int:
        """Ends the requests of this name; returns how many there were."""
        request = control_pb2.CancelRequestRequest(request_id=request_id)
        try:
            return self._stub.CancelRequest(request, timeout=self._timeout_seconds, metadata=self._metadata).cancelled
        except grpc.RpcError as error:
            raise from_rpc(error) from None

    def abort(self, reason: str) -> control_pb2.Status:
        """Ends the process now, whatever it is doing."""
        request = control_pb2.AbortRequest(reason=reason)
        try:
            return self._stub.Abort(request, timeout=self._timeout_seconds, metadata=self._metadata).status
        except grpc.RpcError as error:
            raise from_rpc(error) from None
