"""Who answers on every port of the pool, and which servers run: asked several times a second, beside the API server.

A port is asked through the nodes' addresses, as a caller would, each time on a new connection; who is there says so
(GetModelInfo). Over HTTP nobody says who he is, but refuses a call that is meant for another: there each pod that runs
is asked for by name. Processes are counted on the nodes themselves, where those are containers of this host.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
import grpc

from e2e.history import History
from e2e.processes import SERVER, running
from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend_operator.kinds import Kind

TICK_SECONDS = 0.2
ANSWER_SECONDS = 1.0
CONNECT_SECONDS = 0.15
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


@dataclass(frozen=True, slots=True)
class Sighting:
    """A server that was seen alive, from the first moment to the last."""

    first_at: float
    last_at: float
    """time.monotonic() just before the look that found it."""
    pod_uid: str
    backend_uid: str
    port: int | None
    """That it answered on; None for a process."""
    where: str


class PortWatchdog:
    def __init__(self, history: History, pool: Iterable[int], nodes: Collection[str]) -> None:
        """`nodes`: the containers that the nodes are; empty where they are machines elsewhere."""
        self._history = history
        self._nodes = nodes
        self._pool = tuple(pool)
        self._sightings: dict[tuple[object, ...], Sighting] = {}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._look_often, self._ask_often)]
        self.cpu_seconds = 0.0
        self.rounds = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=10)

    @property
    def sightings(self) -> tuple[Sighting, ...]:
        return tuple(self._sightings.copy().values())

    def _see(self, key: tuple[object, ...], sighting: Sighting) -> None:
        known = self._sightings.get(key, sighting)
        self._sightings[key] = Sighting(
            known.first_at, sighting.last_at, known.pod_uid, known.backend_uid, known.port, known.where
        )

    # -- processes ----------------------------------------------------------------------------------------------------

    def _look_often(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            for process in running(SERVER, self._nodes):
                seen = Sighting(now, now, process.pod_uid, process.backend_uid, None, f"process {process.pid}")
                self._see((process.pid, process.started), seen)
        self.cpu_seconds += time.thread_time()

    # -- ports --------------------------------------------------------------------------------------------------------

    def _ask_often(self) -> None:
        asyncio.run(self._ask_until_stopped())
        self.cpu_seconds += time.thread_time()

    async def _ask_until_stopped(self) -> None:
        while not self._stopping.is_set():
            next_at = time.monotonic() + TICK_SECONDS
            addresses = self._addresses()
            if addresses:
                await self._ask_all(addresses[self.rounds % len(addresses)])
                self.rounds += 1
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    def _addresses(self) -> list[str]:
        entries = (entry for node in self._history.latest(Kind.NODE) for entry in node["status"].get("addresses", ()))
        return sorted(entry["address"] for entry in entries if entry["type"] == "InternalIP")

    def _ports(self) -> set[int]:
        return {*self._pool, *(claim["spec"]["port"] for claim in self._history.latest(Kind.CLAIM))}

    async def _ask_all(self, address: str) -> None:
        """One node a round: a node port is the same at each of them, a host port is found in its turn."""
        ports = sorted(self._ports())
        is_open = await asyncio.gather(*(_opens(address, port) for port in ports))
        over_http = {c["spec"]["port"] for c in self._history.latest(Kind.CLAIM) if c["spec"].get("role") == "Http"}
        opened = (port for port, opens in zip(ports, is_open, strict=True) if opens)
        asked = (self._ask_over_http(address, p) if p in over_http else self._ask(address, p) for p in opened)
        await asyncio.gather(*asked)

    async def _ask_over_http(self, address: str, port: int) -> None:
        asked_at = time.monotonic()
        running = [s for s in self.sightings if s.port is None and s.pod_uid and asked_at - s.last_at < ANSWER_SECONDS]
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as session:
            for one in running:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    meant = {"x-modelbackend-pod-uid": one.pod_uid}
                    async with session.get(f"http://{address}:{port}/v1/models", headers=meant) as answer:
                        if answer.status == HTTPStatus.OK:
                            where = f"port {port}, asked at {address}"
                            seen = Sighting(asked_at, asked_at, one.pod_uid, one.backend_uid, port, where)
                            self._see((port, one.pod_uid), seen)
                            return

    async def _ask(self, address: str, port: int) -> None:
        asked_at = time.monotonic()
        try:
            async with grpc.aio.insecure_channel(f"{address}:{port}", options=CHANNEL_OPTIONS) as channel:
                stub: inference_pb2_grpc.InferenceAsyncStub = inference_pb2_grpc.InferenceStub(channel)
                answer = await stub.GetModelInfo(inference_pb2.GetModelInfoRequest(), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError:  # it loads, or it ended just now
            return
        who = answer.identity
        self._see(
            (port, who.pod_uid),
            Sighting(asked_at, asked_at, who.pod_uid, who.backend_uid, port, f"port {port}, asked at {address}"),
        )


async def _opens(address: str, port: int) -> bool:
    """Whether anything takes a connection there."""
    with socket.socket() as one:
        one.setblocking(False)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(one, (address, port))
                return True
    return False
