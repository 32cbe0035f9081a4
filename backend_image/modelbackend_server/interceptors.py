"""What is checked before a call reaches a service: whether the caller means us, and whether it may."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from modelbackend.v1 import model_info_pb2

from .refusals import Reason, Refusal, abort

UID_KEY = "x-modelbackend-uid"
MODEL_KEY = "x-modelbackend-model"
TOKEN_KEY = "authorization"
TOKEN_SCHEME = "Bearer "

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


def ending(end: Callable[[Context], Awaitable[NoReturn]]) -> Handler:
    """A handler that only ends the call; no message flows, so its kind (unary or stream) does not matter."""

    async def handle(_request: object, context: Context) -> NoReturn:
        await end(context)

    return grpc.unary_unary_rpc_method_handler(handle)


def metadata(details: grpc.HandlerCallDetails, key: str) -> str | None:
    for name, value in details.invocation_metadata or ():
        if name == key:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None


class IdentityCheck(grpc.aio.ServerInterceptor):
    """Refuses calls that are meant for another backend: a node port may have changed hands since a caller learnt it.

    Callers that say nothing are served; kubelet's probes do not.
    """

    def __init__(self, identity: model_info_pb2.Identity) -> None:
        self._identity = identity

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        refusal = self.judge(metadata(handler_call_details, UID_KEY), metadata(handler_call_details, MODEL_KEY))
        if refusal is None:
            return await continuation(handler_call_details)
        return ending(lambda context: abort(context, refusal))

    def judge(self, uid: str | None, model: str | None) -> Refusal | None:
        if uid is not None and uid != self._identity.backend_uid:
            return Refusal(
                Reason.BACKEND_MISMATCH,
                f"this server belongs to ModelBackend {self._identity.backend_uid or 'of no uid'}, the call is meant "
                f"for {uid}: look the address up again",
            )
        if model is not None and model != self._identity.model:
            return Refusal(Reason.MODEL_MISMATCH, f"this server has the model {self._identity.model!r}, not {model!r}")
        return None


class BearerToken(grpc.aio.ServerInterceptor):
    """Asks for the token in a file, which is read on each call: the Secret behind it may be made anew."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> bytes:
        """The token of this moment; b"" where there is none, and then nobody is let in."""
        try:
            return self._file.read_bytes().strip()
        except OSError:
            return b""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        given = metadata(handler_call_details, TOKEN_KEY)
        if given is None or not given.startswith(TOKEN_SCHEME):
            words = f"control needs the metadata `{TOKEN_KEY}: {TOKEN_SCHEME}<token>`"
            return ending(lambda context: context.abort(grpc.StatusCode.UNAUTHENTICATED, words))
        wanted = self.read()
        if not wanted or not hmac.compare_digest(given.removeprefix(TOKEN_SCHEME).encode(), wanted):
            words = "this is not the token of this backend; it is made anew when its Secret is deleted"
            return ending(lambda context: context.abort(grpc.StatusCode.PERMISSION_DENIED, words))
        return await continuation(handler_call_details)
