"""The operator's calls to a server's control port (modelbackend.v1.Control): GetStatus, Drain and Abort.

No answer means unknown, never idle. Every call is bounded in time, and a server is asked at most once a second.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc

from modelbackend.v1 import control_pb2, control_pb2_grpc
from modelbackend.v1.model_info_pb2 import ModelInfo
from modelbackend_operator.api import CONTROL_PORT
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerReport, ServerState, TokenRefused
from modelbackend_operator.outcome import Applied, Outcome, Unknown

REUSE_SECONDS = 1.0
"""An answer is as good as new for so long."""
SILENT_AFTER_SECONDS = 10.0
"""One call that fails is no silence: the last answer stands for so long. A busy machine misses a call now and then."""
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

Address = Callable[[Pod], contextlib.AbstractAsyncContextManager[str]]
"""Where a pod's control port can be dialled, for as long as the context is open."""


def control_token(operator_key: bytes, backend_uid: str) -> str:
    """What a backend's servers accept: derived, so that the operator need not read tenants' Secrets."""
    return hmac.new(operator_key, backend_uid.encode(), hashlib.sha256).hexdigest()


@contextlib.asynccontextmanager
async def pod_address(pod: Pod) -> AsyncIterator[str]:
    """Straight to the pod."""
    yield f"[{pod.ip}]:{CONTROL_PORT}" if ":" in pod.ip else f"{pod.ip}:{CONTROL_PORT}"


Answer = ServerReport | TokenRefused | None
"""None: it did not say."""


@dataclass(frozen=True, slots=True)
class _Asked:
    at_seconds: float
    answer: Answer


class DrainClient:
    def __init__(self, operator_key: bytes, *, timeout_seconds: float, address: Address = pod_address) -> None:
        self._key = operator_key
        self._timeout_seconds = timeout_seconds
        self._address = address
        self._asked: dict[str, _Asked] = {}

    async def status(self, backend_uid: str, pod: Pod) -> Answer:
        """What the server says of itself, at most a second old; or ten, where it does not answer just now."""
        asked = self._asked.get(pod.ref.uid)
        if asked is not None and time.monotonic() - asked.at_seconds < REUSE_SECONDS:
            return asked.answer
        answer, now = await self._ask(backend_uid, pod), time.monotonic()
        self._forget_old(now)
        last = self._asked.get(pod.ref.uid)
        if answer is None and last is not None and isinstance(last.answer, ServerReport):
            return last.answer
        self._asked[pod.ref.uid] = _Asked(now, answer)
        return answer

    async def drain(self, backend_uid: str, pod: Pod, deadline: datetime) -> Outcome:
        """Tell it to take nothing new and to finish until the deadline. Repeating it is harmless."""
        seconds = max(0.0, (deadline - datetime.now(UTC)).total_seconds())
        request = control_pb2.DrainRequest(deadline_seconds=seconds)
        return await self._tell(backend_uid, pod, "Drain", lambda stub, **how: stub.Drain(request, **how))

    async def abort(self, backend_uid: str, pod: Pod, reason: str) -> Outcome:
        """Tell it to cut every request now and to exit. Repeating it is harmless."""
        request = control_pb2.AbortRequest(reason=reason)
        return await self._tell(backend_uid, pod, "Abort", lambda stub, **how: stub.Abort(request, **how))

    async def _tell(self, backend_uid: str, pod: Pod, what: str, call: Callable[..., Awaitable[object]]) -> Outcome:
        """Its last answer is not true any more once it has been told something."""
        try:
            async with asyncio.timeout(self._timeout_seconds), self._stub(pod) as stub:
                await call(stub, metadata=self._metadata(backend_uid), timeout=self._timeout_seconds)
        except (grpc.aio.AioRpcError, TimeoutError, OSError) as error:
            return Unknown(f"{what} of pod {pod.ref.namespace}/{pod.ref.name}: {_words(error)}")
        self._asked.pop(pod.ref.uid, None)
        return Applied()

    async def _ask(self, backend_uid: str, pod: Pod) -> Answer:
        if not pod.ip:
            return None
        try:
            async with asyncio.timeout(self._timeout_seconds), self._stub(pod) as stub:
                request = control_pb2.GetStatusRequest()
                metadata = self._metadata(backend_uid)
                answer = await stub.GetStatus(request, metadata=metadata, timeout=self._timeout_seconds)
        except (grpc.aio.AioRpcError, TimeoutError, OSError) as error:
            return TokenRefused.ANSWER if _refuses_the_token(error) else None
        return report_from(answer.status)

    @contextlib.asynccontextmanager
    async def _stub(self, pod: Pod) -> AsyncIterator["control_pb2_grpc.ControlAsyncStub"]:
        """A connection for one call: pods come and go, and their addresses are used again."""
        async with self._address(pod) as target, grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            yield control_pb2_grpc.ControlStub(channel)

    def _metadata(self, backend_uid: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {control_token(self._key, backend_uid)}"),)

    def _forget_old(self, now: float) -> None:
        oldest = now - SILENT_AFTER_SECONDS
        for uid in [uid for uid, asked in self._asked.items() if asked.at_seconds < oldest]:
            del self._asked[uid]


def report_from(status: control_pb2.Status) -> ServerReport | None:
    """None for a state that this operator does not know, of a server newer than itself."""
    if status.state not in control_pb2.State.values():
        return None
    name = control_pb2.State.Name(status.state).removeprefix("STATE_")
    if name not in ServerState.__members__:
        return None
    return ServerReport(
        state=ServerState[name],
        backend_uid=status.identity.backend_uid,
        model=status.identity.model,
        pod_uid=status.identity.pod_uid,
        in_flight=status.queued + status.active,
        oldest_seconds=status.oldest_request_age_seconds,
        facts=_facts(status.model) if status.HasField("model") else {},
        message=status.message if status.state == control_pb2.STATE_LOADING else "",
    )


def _facts(model: ModelInfo) -> dict[str, str | int]:
    """By the names of ModelBackend's status.model; what the server leaves empty it does not know."""
    facts: dict[str, str | int] = {
        "sha256": model.sha256,
        "sizeBytes": model.size_bytes,
        "architecture": model.architecture,
        "parameterCount": model.parameter_count,
        "contextLength": model.context_length,
    }
    return {name: fact for name, fact in facts.items() if fact}


def _refuses_the_token(error: Exception) -> bool:
    refusals = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    return isinstance(error, grpc.aio.AioRpcError) and error.code() in refusals


def _words(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return repr(error)
