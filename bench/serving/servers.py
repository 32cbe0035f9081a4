"""The two servers under test, started alike: same weights, threads, slots, context, and the same libraries."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.serving.peer import llama_server

LOOPBACK = "127.0.0.1"
SLOTS, CONTEXT_LENGTH = 16, 1024
READY_SECONDS_MAX = 120
BACKEND_IMAGE = Path(__file__).parents[2] / "backend_image"
ACTIVE = "modelbackend_requests_active "
COMPUTING = ("libllama.so", "libggml.so", "libggml-base.so", "libggml-cpu")


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    process: subprocess.Popen[bytes]
    http_port: int
    # 0 where the server speaks none.
    grpc_port: int
    metrics_port: int
    start_seconds: float

    def cpu_seconds(self) -> float:
        """Of all its threads, since it started (proc_pid_stat(5), fields 14 and 15)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def busy_slots(self) -> int:
        """Requests that the server works on, as it says itself."""
        if self.metrics_port:
            lines = _read(f"http://{LOOPBACK}:{self.metrics_port}/metrics").splitlines()
            return next(int(float(line.split()[1])) for line in lines if line.startswith(ACTIVE))
        return sum(slot["is_processing"] for slot in json.loads(_read(f"http://{LOOPBACK}:{self.http_port}/slots")))

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def libraries(self) -> set[str]:
        """Real paths of the libraries that compute, as they are mapped."""
        lines = Path(f"/proc/{self.process.pid}/maps").read_text().splitlines()
        paths = {line[line.index("/") :] for line in lines if "/" in line}
        return {path for path in paths if Path(path).name.startswith(COMPUTING)}


@contextlib.contextmanager
def both(model: Path, threads: int, *, embed: bool = False) -> Iterator[tuple[Server, Server]]:
    """(ours, llama-server), with the same model loaded. Raises RuntimeError where their libraries differ."""
    with ours(model, threads, embed=embed) as one, peer(model, threads, one.libraries(), embed=embed) as other:
        if one.libraries() != other.libraries():
            raise RuntimeError(f"not the same libraries: {sorted(one.libraries() ^ other.libraries())}")
        yield one, other


@contextlib.contextmanager
def ours(model: Path, threads: int, *, embed: bool = False) -> Iterator[Server]:
    shape = ["--mode=embed"] if embed else [f"--slots={SLOTS}", f"--context-length={CONTEXT_LENGTH}"]
    command = [
        *(sys.executable, "-m", "modelbackend_server", f"--model={model}", f"--listen-address={LOOPBACK}"),
        *("--grpc-port=0", "--http-port=0", "--control-port=0", "--metrics-port=0"),
        *(*shape, f"--threads={threads}", "--name=bench"),
    ]
    environment = os.environ | {"PYTHONPATH": str(BACKEND_IMAGE)}
    with tempfile.TemporaryFile() as log, _running(command, environment, log) as process:
        began = time.monotonic()
        ports = _logged(process, log, "listening")
        _logged(process, log, "lifecycle", state="serving")
        yield Server("ours", process, ports["http"], ports["grpc"], ports["metrics"], time.monotonic() - began)


@contextlib.contextmanager
def peer(model: Path, threads: int, libraries: set[str], *, embed: bool = False) -> Iterator[Server]:
    program = llama_server()
    port = _free_port()
    command = [
        *(str(program), "--model", str(model), "--host", LOOPBACK, "--port", str(port)),
        *("--parallel", str(SLOTS), "--ctx-size", str(SLOTS * CONTEXT_LENGTH), "--no-kv-unified"),
        *("--threads", str(threads), "--threads-batch", str(threads), "--flash-attn", "off", "--cache-ram", "0"),
    ]
    if embed:
        command += ["--embedding", "--pooling", "mean"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        for library in map(Path, libraries):
            # By its SONAME, which the wheel's file is not called by.
            name = "libllama.so.0" if library.name == "libllama.so" else library.name
            (Path(folder) / name).symlink_to(library)
        environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}:{program.parent}"}
        with _running(command, environment, log, cwd=folder) as process:
            began = time.monotonic()
            while not _healthy(port):
                if process.poll() is not None or time.monotonic() - began > READY_SECONDS_MAX:
                    log.seek(0)
                    raise RuntimeError(f"llama-server does not serve: {log.read()[-2000:].decode()}")
                time.sleep(0.01)
            yield Server("llama-server", process, port, 0, 0, time.monotonic() - began)


@contextlib.contextmanager
def _running(
    command: list[str], environment: dict[str, str], log: IO[bytes], cwd: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _logged(process: subprocess.Popen[bytes], log: IO[bytes], event: str, **fields: object) -> dict[str, int]:
    began = time.monotonic()
    while True:
        for line in os.pread(log.fileno(), 2**20, 0).decode().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                told = json.loads(line)
                if told["event"] == event and all(told[name] == value for name, value in fields.items()):
                    return dict(told)
        if process.poll() is not None or time.monotonic() - began > READY_SECONDS_MAX:
            raise RuntimeError(f"the server does not serve: {os.pread(log.fileno(), 2**20, 0)[-2000:].decode()}")
        time.sleep(0.01)


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
