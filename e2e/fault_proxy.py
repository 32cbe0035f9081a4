"""Between an operator and the API server: every write passes here, and a test says what becomes of it.

The two ways in which a crash can cross a write (after Sieve, Sun et al., OSDI 2022): the write was applied and nobody
heard so, or it is still under way while a successor has already looked.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO

WRITES = (b"POST", b"PUT", b"PATCH", b"DELETE")
MADE_BESIDES = ("/events", "/secrets")
"""Not counted: Events, which nothing depends on, and the token's Secret, which is made with the pod."""

LATE_SECONDS = 20
"""The longest a write is under way, where the successor has nothing to write."""


class Fate(Enum):
    PASSES = auto()
    REPLY_IS_LOST = auto()
    """Applied; then `crash` is called, and nobody reads the answer."""
    IS_LATE = auto()
    """`crash` is called first; the write is applied once a successor writes, too, and nobody reads the answer."""


@dataclass(frozen=True, slots=True)
class Write:
    number: int
    """From 1."""
    verb: str
    path: str

    def __str__(self) -> str:
        return f"{self.number}. {self.verb} {self.path.partition('?')[0]}"


class FaultProxy:
    """Plain HTTP on loopback, in front of an API server that speaks the same (`kubectl proxy`)."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream = ("127.0.0.1", upstream_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.writes: list[Write] = []
        self.fate: Callable[[Write], Fate] = lambda _: Fate.PASSES
        self.crash: Callable[[], None] = lambda: None
        self._overtaken = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(self._upstream) as far:
            requests = near.makefile("rb")
            threading.Thread(target=_copy, args=(far, near), daemon=True).start()
            while request := _read_request(requests):
                fate = self._fate(request)
                if fate is not Fate.PASSES:
                    self._cross(request, fate)
                    return
                far.sendall(request)
                if b"\r\nupgrade:" in request.lower():
                    _copy(near, far)
                    return

    def _fate(self, request: bytes) -> Fate:
        verb, path = request.split(b" ", 2)[:2]
        if verb not in WRITES or any(kind in path.decode() for kind in MADE_BESIDES):
            return Fate.PASSES
        with self._lock:
            write = Write(len(self.writes) + 1, verb.decode(), path.decode())
            self.writes.append(write)
            self._overtaken.set()
        return self.fate(write)

    def _cross(self, request: bytes, fate: Fate) -> None:
        if fate is Fate.IS_LATE:
            overtaken = self._overtaken = threading.Event()
            self.crash()
            overtaken.wait(timeout=LATE_SECONDS)
        with socket.create_connection(self._upstream) as far:
            far.sendall(request)
            http.client.HTTPResponse(far).begin()  # it has been answered, hence applied
        if fate is Fate.REPLY_IS_LOST:
            self.crash()


def _read_request(stream: BinaryIO) -> bytes:
    """Head and body; empty when the caller has gone."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    length = next((int(line[15:]) for line in head.splitlines() if line.lower().startswith(b"content-length:")), 0)
    body = stream.read(length) if length else b""
    return head + body


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream_port)
    try:
        yield proxy
    finally:
        proxy.close()
