"""The checks of a call, as gRPC wants them: between its headers and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from .checks import Checks
from .refusals import Refusal, abort

HEALTH_PREFIX = "/grpc.health.v1.Health/"

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class CheckCalls(grpc.aio.ServerInterceptor):
    def __init__(self, checks: Checks, on_refusal: Callable[[Refusal], object] = lambda _: None) -> None:
        self._checks = checks
        self._on_refusal = on_refusal

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        # The kubelet's probes have no token to give, and health tells nothing worth one.
        with_token = not handler_call_details.method.startswith(HEALTH_PREFIX)
        metadata = handler_call_details.invocation_metadata
        refusal = self._checks.refusal(lambda key: value(metadata, key), with_token=with_token)
        if refusal is None:
            return await continuation(handler_call_details)
        self._on_refusal(refusal)
        return _refuser(refusal)


def value(metadata: Any, key: str) -> str | None:
    """The first value of a metadata key."""
    for name, found in metadata or ():
        if name == key:
            return found if isinstance(found, str) else bytes(found).decode(errors="replace")
    return None


def _refuser(refusal: Refusal) -> Handler:
    """A handler that only ends the call; no message flows, so its kind (unary or stream) does not matter."""

    async def handle(_request: object, context: Context) -> NoReturn:
        await abort(context, refusal)

    return grpc.unary_unary_rpc_method_handler(handle)
