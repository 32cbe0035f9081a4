"""How it hangs together: ports first, then the model, then a supervisor that waits for the end.

Ports come first, so that one that is taken is said at once, and so that whoever asks while the model loads gets
an answer. The listeners stay open while the server drains: callers shall read our refusal rather than guess from
a refused connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from prometheus_client import start_http_server

from modelbackend.v1 import control_pb2_grpc, inference_pb2, inference_pb2_grpc, model_info_pb2

from .admission import Admission
from .checks import Checks, TokenFile
from .control_service import ControlService
from .engine import DEFAULT_CONTEXT_LENGTH
from .exits import Exit, ExitCode, UnservableError
from .generation import Outcome
from .grpc_service import InferenceService
from .interceptors import CheckCalls
from .lifecycle import State
from .log import logger
from .metrics import Metrics
from .settings import Settings
from .tls import TlsFolder

if TYPE_CHECKING:
    from aiohttp import web

INFERENCE_SERVICE = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
# Health names. "" and the service's own are readiness: NOT_SERVING while loading and draining. This one is
# liveness: SERVING as long as the event loop answers, so that neither a long load nor a drain gets a pod killed.
LIVENESS_SERVICE = "modelbackend.liveness"
LOOPBACK = "127.0.0.1"
ENGINE_STOP_SECONDS = 5.0

# The longest token of a usual vocabulary; a prompt that fits the context fits the message.
BYTES_PER_TOKEN_MAX = 64
RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX = 4 * 2**20, 2**31 - 1
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000
# After the cut, for the last messages to be written.
LAST_WORDS_SECONDS = 2.0
CLOSE_SECONDS = 1.0
TLS_REFRESH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ports:
    grpc: int
    http: int
    control: int
    metrics: int


class Server:
    """One server from its ports to its end; in tests several may follow each other in one process."""

    def __init__(self, settings: Settings) -> None:
        """Call on a running event loop. Raises UnservableError where the token of control cannot be read."""
        self.settings = settings
        self.metrics = Metrics()
        self.admission = Admission(settings, self.metrics)
        self._health = health_aio.HealthServicer()
        identity = model_info_pb2.Identity(
            backend_uid=settings.uid, model=settings.model_name, pod_uid=settings.pod_uid
        )
        token = TokenFile(settings.token_file, name="inference") if settings.token_file else None
        checks = Checks(identity, token, on_call=self.metrics.called)
        self._tls = TlsFolder(settings.tls_folder) if settings.tls_folder else None
        guard = CheckCalls(checks, self.admission.refused)
        self._inference = grpc.aio.server(interceptors=[guard], options=_options(settings))
        inference_pb2_grpc.add_InferenceServicer_to_server(InferenceService(self.admission, identity), self._inference)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._inference)
        if settings.reflection:
            from grpc_reflection.v1alpha import reflection

            names = (INFERENCE_SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
            reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._inference)
        key = TokenFile(settings.control_token_file, name="control") if settings.control_token_file else None
        self._control = grpc.aio.server(interceptors=[CheckCalls(Checks(identity, key))], options=_options(settings))
        control_pb2_grpc.add_ControlServicer_to_server(ControlService(self.admission, identity), self._control)
        # There too, because the kubelet's probes speak no TLS.
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._control)
        self._checks = checks
        self._http: web.AppRunner | None = None
        self._http_listener: socket.socket | None = None

    async def serve(
        self, on_listening: Callable[[Ports], None] = lambda _: None, on_imported: Callable[[], None] = lambda: None
    ) -> Exit:
        """Serves until terminated or failed, and says how it ended. Raises UnservableError where it cannot listen."""
        engine = self.admission.engine
        async with self._listening() as ports:
            logger().info("listening", **dataclasses.asdict(ports))
            on_listening(ports)
            engine.start()
            try:
                await self._open_http()
                on_imported()
                await self._supervise()
            finally:
                engine.stop()
                if not await asyncio.to_thread(engine.join, ENGINE_STOP_SECONDS):
                    logger().warning("the engine is in the middle of a long step; ending without it")
        cut = self.admission.outcomes[Outcome.CUT]
        if self.admission.failure is not None:
            return self.admission.failure
        if self.admission.abort_reason is not None:
            return Exit(ExitCode.ABORTED, f"aborted by order: {self.admission.abort_reason}; {cut} requests were cut")
        return Exit(ExitCode.DRAINED, f"drained and stopped; {cut} requests were cut")

    def on_signal(self) -> None:
        """SIGTERM or SIGINT: the first drains, the second ends what is left."""
        patience_seconds = 0.0 if self.admission.lifecycle.terminating else self.settings.drain_seconds
        self.admission.terminate(time.monotonic() + patience_seconds)

    async def _supervise(self) -> None:
        """Follows the lifecycle to its end: health, the cut at the deadline, the last words of those inside."""
        admission = self.admission
        while True:
            admission.changed.clear()
            await self._tell_health()
            lifecycle = admission.lifecycle
            if lifecycle.state is State.FAILED or (lifecycle.terminating and not admission.inside):
                break
            wait_seconds = None if lifecycle.cut_at is None else lifecycle.cut_at - time.monotonic()
            try:
                async with asyncio.timeout(wait_seconds):
                    await admission.changed.wait()
            except TimeoutError:
                logger().warning("cut", requests=len(admission.inside))
                break
        admission.engine.stop()
        await self._last_words()
        admission.stopped()
        await self._tell_health()

    async def _last_words(self) -> None:
        """Time for those inside to be told how it ended; whoever does not read is left behind."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                while self.admission.inside:
                    self.admission.changed.clear()
                    await self.admission.changed.wait()

    async def _tell_health(self) -> None:
        serving = health_pb2.HealthCheckResponse.SERVING
        ready = self.admission.lifecycle.state is State.SERVING
        for name in ("", INFERENCE_SERVICE):
            await self._health.set(name, serving if ready else health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._health.set(LIVENESS_SERVICE, serving)

    async def _open_http(self) -> None:
        """Imported while the engine loads, which leaves a CPU to Python; who comes before that waits in the backlog."""
        open_http = await asyncio.to_thread(_open_http)
        listener, tls = self._http_listener, self._tls.context if self._tls else None
        assert listener is not None
        body_bytes_max = _longest_request_bytes(self.settings)
        self._http = await open_http(self.admission, self._checks, listener, tls, body_bytes_max=body_bytes_max)

    async def _refresh_tls(self) -> None:
        """For HTTP, whose listener asks nobody at a new connection."""
        while self._tls is not None:
            await asyncio.sleep(TLS_REFRESH_SECONDS)
            await asyncio.to_thread(self._tls.refresh)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[Ports]:
        settings = self.settings
        credentials = self._tls.grpc_credentials() if self._tls else None
        grpc_port = _bind(self._inference, settings.listen_address, settings.grpc_port, credentials)
        control_address = settings.listen_address if settings.control_token_file else LOOPBACK
        control_port = _bind(self._control, control_address, settings.control_port)
        self._http_listener = http_socket = _http_socket(settings.listen_address, settings.http_port)
        try:
            scraped, thread = start_http_server(
                settings.metrics_port, settings.listen_address.strip("[]"), self.metrics.registry
            )
        except OSError as error:
            raise _cannot_listen(settings.listen_address, settings.metrics_port, error) from None
        await self._tell_health()
        await self._inference.start()
        await self._control.start()
        refreshing = asyncio.create_task(self._refresh_tls())
        try:
            yield Ports(grpc_port, http_socket.getsockname()[1], control_port, scraped.server_port)
        finally:
            refreshing.cancel()
            listeners = [self._inference.stop(CLOSE_SECONDS), self._control.stop(CLOSE_SECONDS)]
            await asyncio.gather(*listeners, *([self._http.cleanup()] if self._http else []))
            http_socket.close()
            await asyncio.to_thread(scraped.shutdown)
            scraped.server_close()
            thread.join()


def _open_http() -> Callable[..., Awaitable[web.AppRunner]]:
    from .http_door import open_http

    return open_http


def _longest_request_bytes(settings: Settings) -> int:
    longest_prompt_bytes = (settings.context_length or DEFAULT_CONTEXT_LENGTH) * BYTES_PER_TOKEN_MAX
    return min(max(longest_prompt_bytes, RECEIVE_BYTES_MIN), RECEIVE_BYTES_MAX)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        # With it, two processes could listen behind one port, and callers would reach either.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", _longest_request_bytes(settings)),
        # A caller whose machine is gone is noticed, and its slot freed.
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # A caller that waits in the queue may check as often that we are there; gRPC's own limit is 5 minutes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def _bind(server: grpc.aio.Server, address: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
    try:
        if credentials is not None:
            return server.add_secure_port(f"{address}:{port}", credentials)
        return server.add_insecure_port(f"{address}:{port}")
    except RuntimeError:
        # gRPC does not say why; the operating system does.
        raise _cannot_listen(address, port, _bind_error(address, port)) from None


def _http_socket(address: str, port: int) -> socket.socket:
    """Made by hand: asyncio's own sockets for every IPv6 address take no IPv4."""
    host = address.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=host == "::")
    except OSError as error:
        raise _cannot_listen(address, port, error, taken=ExitCode.HTTP_PORT_TAKEN) from None


def _bind_error(address: str, port: int) -> OSError:
    with socket.socket(socket.AF_INET6 if address.startswith("[") else socket.AF_INET) as probe:
        try:
            probe.bind((address.strip("[]"), port))
        except OSError as error:
            return error
    return OSError(errno.EADDRINUSE, "it was taken a moment ago")


def _cannot_listen(
    address: str, port: int, error: OSError, *, taken: ExitCode = ExitCode.PORT_TAKEN
) -> UnservableError:
    """`taken`: HTTP has a code of its own, because it may be exposed behind a port of its own."""
    if error.errno == errno.EADDRINUSE:
        return UnservableError(
            taken,
            f"port {port} is taken: another process listens on it. End that one, or choose another port.",
        )
    return UnservableError(ExitCode.BAD_CONFIGURATION, f"cannot listen on {address}:{port}: {error.strerror}")
