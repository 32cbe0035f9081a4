"""Tells the operator how far the download is, where it will ask the server later: GetStatus on the control port.

Of the service's calls it answers this one alone: there are no requests to drain, and SIGTERM ends it at once.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from modelbackend.v1 import control_pb2, model_info_pb2

from .log import logger
from .progress import Meter
from .settings import Settings

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class StatusService:
    def __init__(self, identity: model_info_pb2.Identity, token_file: Path, meter: Meter) -> None:
        self._identity = identity
        self._token_file = token_file
        self._meter = meter

    def handler(self) -> grpc.GenericRpcHandler:
        """Any other call of the service is UNIMPLEMENTED."""
        get_status = grpc.unary_unary_rpc_method_handler(
            self.get_status,
            request_deserializer=control_pb2.GetStatusRequest.FromString,
            response_serializer=control_pb2.GetStatusResponse.SerializeToString,
        )
        service = control_pb2.DESCRIPTOR.services_by_name["Control"].full_name
        return grpc.method_handlers_generic_handler(service, {"GetStatus": get_status})

    async def get_status(self, _: control_pb2.GetStatusRequest, context: Context) -> control_pb2.GetStatusResponse:
        if not self._is_operator(context):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this is not the token of this backend")
        status = control_pb2.Status(identity=self._identity, state=control_pb2.STATE_LOADING, message=self._meter.told)
        return control_pb2.GetStatusResponse(status=status)

    def _is_operator(self, context: Context) -> bool:
        """The token is read at each call: the Secret behind it may be made anew."""
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        try:
            wanted = self._token_file.read_bytes().strip()
        except OSError:
            return False
        return bool(wanted) and hmac.compare_digest(str(given).encode(), b"Bearer " + wanted)


@contextlib.asynccontextmanager
async def telling(settings: Settings, meter: Meter) -> AsyncIterator[int]:
    """The port while it is served; 0 where nobody is to be told. A port that cannot be had stops no download."""
    if settings.control_token_file is None:
        yield 0
        return
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    identity = model_info_pb2.Identity(backend_uid=settings.uid, model=settings.model, pod_uid=settings.pod_uid)
    server.add_generic_rpc_handlers([StatusService(identity, settings.control_token_file, meter).handler()])
    try:
        port = server.add_insecure_port(f"{settings.listen_address}:{settings.control_port}")
    except RuntimeError:
        logger().warning("nobody can be told how far it is: the port is taken", port=settings.control_port)
        yield 0
        return
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)
