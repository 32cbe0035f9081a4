"""Signals, exit codes and last words, of a real process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import grpc.aio
import pytest

from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend_client import AsyncClient
from modelbackend_server import self_test
from modelbackend_server.exits import UnservableError
from modelbackend_server.server import Server
from modelbackend_server.settings import Settings
from tests.server.harness import LONG, LOOPBACK, Stream, greedy, next_event, rest
from tests.server.process import FREE_PORTS, ServerProcess, started
from tests.server.tiny_gguf import write_embedding_gguf, write_tiny_gguf

# Long enough to be in the middle when the signal comes, also on a fast machine.
LONG_CONTEXT = "--context-length=8192"


async def stream_of(server: ServerProcess, channels: list[grpc.aio.Channel], max_tokens: int) -> Stream:
    """A running stream, its first text read."""
    listening = await server.log("listening")
    await server.log("lifecycle", state="serving")
    channels.append(grpc.aio.insecure_channel(f"{LOOPBACK}:{listening['grpc']}"))
    stub: inference_pb2_grpc.InferenceAsyncStub = inference_pb2_grpc.InferenceStub(channels[-1])
    stream = stub.GenerateStream(greedy("the", max_tokens))
    await next_event(stream)
    return stream


async def test_sigterm_completes_the_stream_and_exits_0(tiny: Path) -> None:
    channels: list[grpc.aio.Channel] = []
    async with started(f"--model={tiny}", *FREE_PORTS, LONG_CONTEXT) as server:
        stream = await stream_of(server, channels, LONG)
        server.process.send_signal(signal.SIGTERM)
        await server.log("lifecycle", state="draining", inside=1)
        # Refused in words while the listener is still open.
        late = inference_pb2_grpc.InferenceStub(channels[0]).Generate(greedy("the", 1))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await late
        assert "takes nothing new" in (refused.value.details() or "")
        _, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH
        assert finished.usage.completion_tokens == LONG
        assert await server.end() == 0
        assert server.words == "drained and stopped; 0 requests were cut"
    await channels[0].close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_cuts_what_runs_and_exits_0(tiny: Path, number: signal.Signals) -> None:
    channels: list[grpc.aio.Channel] = []
    async with started(f"--model={tiny}", *FREE_PORTS, LONG_CONTEXT) as server:
        stream = await stream_of(server, channels, 8000)
        server.process.send_signal(number)
        await server.log("lifecycle", state="draining", inside=1)
        server.process.send_signal(number)
        _, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_CANCELLED
        assert 0 < finished.usage.completion_tokens < 8000
        assert await server.end() == 0
        assert server.words == "drained and stopped; 1 requests were cut"
    await channels[0].close()


async def test_as_process_1_of_a_container_sigterm_drains_too(tiny: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("a PID namespace needs root and unshare")
    channels: list[grpc.aio.Channel] = []
    prefix = (unshare, "--pid", "--fork", "--kill-child", "--mount-proc")
    async with started(f"--model={tiny}", *FREE_PORTS, LONG_CONTEXT, prefix=prefix) as server:
        stream = await stream_of(server, channels, LONG)
        os.kill(only_child(server.process.pid), signal.SIGTERM)
        _, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH
        assert await server.end() == 0
    await channels[0].close()


def only_child(process: int) -> int:
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


async def test_sigterm_before_anything_is_loaded_ends_at_once(tmp_path: Path) -> None:
    # Hashing a sparse file of 64 GB takes longer than anyone waits.
    big = tmp_path / "big.gguf"
    big.write_bytes(b"GGUF")
    os.truncate(big, 64 * 2**30)
    async with started(f"--model={big}", *FREE_PORTS, f"--model-sha256={'0' * 64}") as server:
        await server.log("listening")
        server.process.send_signal(signal.SIGTERM)
        assert await server.end() == 0


TAKEN = "port {} is taken: another process listens on it. End that one, or choose another port."


async def test_a_taken_port_is_its_own_exit_code(tiny: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with started(f"--model={tiny}", *FREE_PORTS, f"--http-port={port}") as server:
            assert await server.end() == 76
        assert server.words == TAKEN.format(port)
        free = dict.fromkeys(("grpc_port", "http_port", "control_port", "metrics_port"), 0)
        for name in free:
            settings = Settings(model_path=tiny, listen_address=LOOPBACK, **(free | {name: port}))
            with pytest.raises(UnservableError) as refused:
                await Server(settings).serve()
            code = 76 if name == "http_port" else 75
            assert (refused.value.exit.code, refused.value.exit.words) == (code, TAKEN.format(port))


async def test_two_servers_never_share_a_port(tiny: Path) -> None:
    async with started(f"--model={tiny}", *FREE_PORTS) as first:
        port = (await first.log("listening"))["grpc"]
        async with started(f"--model={tiny}", *FREE_PORTS, f"--grpc-port={port}") as second:
            assert await second.end() == 75


@pytest.fixture
def bad_files(tiny: Path, tmp_path: Path) -> Path:
    """A folder of files that are no model, or not a whole one, or not one that generates text."""
    (tmp_path / "page.gguf").write_text("<html>Not found</html>")
    (tmp_path / "half.gguf").write_bytes(tiny.read_bytes()[: tiny.stat().st_size // 2])
    (tmp_path / "nonsense.gguf").write_bytes(b"GGUF" + bytes(range(256)) * 8)
    (tmp_path / "no-vocabulary.gguf").write_bytes(self_test.gguf())
    write_embedding_gguf(tmp_path / "embedding.gguf")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--model=/nowhere/x.gguf", 66, "model file /nowhere/x.gguf does not exist"),
        ("--model={folder}", 66, "cannot be read: Is a directory"),
        ("--model={folder}/page.gguf", 65, "does not begin with the letters GGUF"),
        ("--model={folder}/half.gguf", 65, "llama.cpp cannot load"),
        ("--model={folder}/nonsense.gguf", 65, "llama.cpp cannot load"),
        ("--model={folder}/no-vocabulary.gguf", 65, "cannot generate text: it has no vocabulary"),
        ("--model={folder}/embedding.gguf", 65, "cannot generate text: it is an embedding model"),
        (f"--model={{tiny}} --model-sha256={'ab' * 32}", 65, f"wanted {'ab' * 32}"),
        ("--model={tiny} --context-length=9000", 64, "more than the 8192"),
        ("--slots=1", 64, "--model (MODELBACKEND_MODEL_PATH): Field required"),
        ("--model={tiny} --slots=0", 64, "--slots (MODELBACKEND_SLOTS)"),
        ("--model={tiny} --unheard-of=1", 64, "unrecognized arguments: --unheard-of=1"),
        ("--model={tiny} --control-token-file=/nowhere/token", 64, "control token file /nowhere/token cannot be read"),
    ],
)
async def test_what_is_wrong_is_said_in_the_exit_code_the_log_and_the_termination_log(
    tiny: Path, bad_files: Path, flags: str, code: int, words: str
) -> None:
    last_words = bad_files / "termination-log"
    last_words.touch()
    given = [*FREE_PORTS, *flags.format(tiny=tiny, folder=bad_files).split()]
    async with started(*given, MODELBACKEND_TERMINATION_LOG=str(last_words)) as server:
        assert await server.end() == code
    assert words in server.words
    assert last_words.read_text() == server.words + "\n"
    assert server.events[-1]["code"] == code


async def test_the_right_hash_is_accepted_and_told(tmp_path: Path) -> None:
    tiny = tmp_path / "tiny.gguf"
    digest = write_tiny_gguf(tiny)
    async with started(f"--model={tiny}", *FREE_PORTS, f"--model-sha256={digest.upper()}") as server:
        listening = await server.log("listening")
        await server.log("lifecycle", state="serving")
        async with AsyncClient(f"{LOOPBACK}:{listening['grpc']}") as client:
            assert (await client.model_info()).model.sha256 == digest


async def test_the_environment_configures_and_a_flag_wins(tiny: Path) -> None:
    extra = {
        "MODELBACKEND_MODEL_PATH": str(tiny),
        "MODELBACKEND_MODEL": "from-environment",
        "MODELBACKEND_UID": "uid-1",
    }
    async with started(*FREE_PORTS, "--uid=uid-2", **extra) as server:
        listening = await server.log("listening")
        await server.log("lifecycle", state="serving")
        async with AsyncClient(f"{LOOPBACK}:{listening['grpc']}") as client:
            identity = (await client.model_info()).identity
    assert (identity.model, identity.backend_uid) == ("from-environment", "uid-2")


async def test_every_log_line_is_one_json_object_with_time_and_level(tiny: Path) -> None:
    async with started(f"--model={tiny}", *FREE_PORTS) as server:
        await server.log("lifecycle", state="serving")
        server.process.send_signal(signal.SIGTERM)
        assert await server.end() == 0
    assert all({"time", "level", "event"} <= event.keys() for event in server.events)
    told = [event["event"] for event in server.events]
    assert told[:3] == ["starting", "listening", "loaded"]
    assert told[-1] == "ended"


async def test_control_without_a_token_is_reachable_from_this_machine_only(tiny: Path) -> None:
    flags = [flag for flag in FREE_PORTS if not flag.startswith("--listen-address")]
    async with started(f"--model={tiny}", *flags) as server:
        listening = await server.log("listening")
        addresses = {name: listening_addresses(int(listening[name])) for name in ("grpc", "control", "metrics")}
    assert addresses["control"]
    # gRPC also writes an IPv4 address as the IPv6 address it is mapped to.
    assert addresses["control"] <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert addresses["grpc"].isdisjoint({"127.0.0.1", "::ffff:127.0.0.1"})
    assert addresses["grpc"]
    assert addresses["metrics"]


def listening_addresses(port: int) -> set[str]:
    """Local addresses of the sockets that listen on a port, from /proc/net (proc_pid_net(5))."""
    found: set[str] = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, hexadecimal_port = local.split(":")
            if state == "0A" and int(hexadecimal_port, 16) == port:
                words = bytes.fromhex(address)
                # Each 32-bit word is in the byte order of the machine.
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, packed))
    return found
