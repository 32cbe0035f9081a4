"""The command modelbackend-client, as people use it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from modelbackend.v1 import control_pb2, inference_pb2
from modelbackend_client import CallError, Client, ControlClient
from tests.server.harness import GREEDY, LONG, LOOPBACK, PATIENCE_SECONDS, Gate, Running, running
from tests.server.process import Process
from tests.server.tiny_gguf import CONTEXT_LENGTH


def command(*arguments: str) -> Process:
    return Process(sys.executable, "-m", "modelbackend_client", *arguments)


async def outcome(process: Process, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    process.close_stdin(given)
    async with asyncio.timeout(PATIENCE_SECONDS):
        output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
        return await process.wait(), output.decode(), errors.decode()


async def ran(*arguments: str, given: str = "") -> tuple[int, str, str]:
    """The outcome of a command that ends by itself."""
    async with command(*arguments) as process:
        return await outcome(process, given)


def at(server: Running) -> tuple[str, str]:
    return "--address", server.address


def control_at(server: Running) -> tuple[str, str]:
    return "--address", f"{LOOPBACK}:{server.ports.control}"


async def test_text_streams_to_standard_output_as_it_is_made(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server:
        expected = await server.client.generate("the", max_tokens=60, sampling=GREEDY)
        gate.allow(20)
        async with command(
            "generate", *at(server), "--prompt", "the", "--temperature", "0", "--max-tokens", "60"
        ) as process:
            beginning = await asyncio.wait_for(process.stdout.read(10), PATIENCE_SECONDS)
            assert expected.text.encode().startswith(beginning)
            assert process.lives
            gate.open()
            code, output, errors = await outcome(process)
    assert code == 0
    assert (beginning + output.encode()).decode() == expected.text + "\n"
    assert errors.startswith("[length: 2 tokens of prompt, 60 generated, ")


async def test_the_prompt_may_come_from_standard_input_and_the_text_at_once(tiny: Path) -> None:
    async with running(tiny) as server:
        expected = await server.client.generate("the time", max_tokens=9, sampling=GREEDY)
        arguments = ("--prompt", "-", "--no-stream", "--temperature", "0", "--max-tokens", "9")
        code, output, _ = await ran("generate", *at(server), *arguments, given="the time")
    assert (code, output) == (0, expected.text + "\n")


async def test_ctrl_c_cancels_the_request_in_the_server(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server:
        gate.allow(5)
        async with command("generate", *at(server), "--prompt", "the", "--max-tokens", str(LONG)) as process:
            await server.until(active=1)
            await asyncio.wait_for(process.stdout.read(1), PATIENCE_SECONDS)
            process.send_signal(signal.SIGINT)
            code, _, errors = await outcome(process)
        status = await server.until(active=0)
        gate.open()
    assert code == 130
    assert "cancelled in the server too" in errors
    assert status.requests.cancelled == 1


async def test_a_chat_remembers_what_was_said(tiny: Path) -> None:
    async with running(tiny) as server:
        arguments = ("--system", "be new", "--temperature", "0", "--max-tokens", "5")
        code, output, errors = await ran("chat", *at(server), *arguments, given="the\nof\n")
        prompts = [int(line.split()[1]) for line in errors.splitlines()]
    assert code == 0
    assert len(output.splitlines()) >= 2
    assert prompts[1] > prompts[0]


async def test_info_status_and_drain_are_json(tiny: Path) -> None:
    async with running(tiny, model="small") as server:
        code, output, _ = await ran("info", *at(server))
        assert (code, json.loads(output)["identity"]["model"]) == (0, "small")
        code, output, _ = await ran("status", *control_at(server))
        assert (code, json.loads(output)["state"]) == (0, "STATE_SERVING")
        code, output, _ = await ran("drain", *control_at(server), "--deadline-seconds", "5")
        assert (code, json.loads(output)["state"]) == (0, "STATE_DRAINING")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--temperature", "11"), 64, "INVALID_ARGUMENT (BAD_REQUEST): sampling.temperature is 11"),
        (("--uid", "stranger"), 76, "FAILED_PRECONDITION (BACKEND_MISMATCH)"),
        (("--model", "large"), 76, "NOT_FOUND (MODEL_MISMATCH)"),
        (("--timeout-seconds", "0.000001"), 124, "DEADLINE_EXCEEDED"),
        (("--max-tokens", "-1"), 2, "-1 is negative"),
    ],
)
async def test_errors_are_words_and_exit_codes(tiny: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    async with running(tiny, uid="uid-1", model="small") as server:
        ended = await ran("generate", *at(server), "--prompt", "the", *arguments)
    assert ended[0] == code
    assert ended[1] == ""
    assert words in ended[2]


async def test_a_server_that_drains_is_unavailable_and_says_when_to_come_back(tiny: Path) -> None:
    async with running(tiny) as server:
        await server.drain(60)
        code, _, errors = await ran("generate", *at(server), "--prompt", "the")
    assert code == 69
    assert "UNAVAILABLE (DRAINING)" in errors
    assert "it was not started; try again in 1 s" in errors


async def test_a_text_that_the_server_cut_is_not_taken_for_a_whole_one(tiny: Path) -> None:
    async with (
        running(tiny, drain_seconds=0, context_length=CONTEXT_LENGTH) as server,
        command("generate", *at(server), "--prompt", "the", "--temperature", "0") as process,
    ):
        await asyncio.wait_for(process.stdout.read(1), PATIENCE_SECONDS)
        server.server.on_signal()
        code, _, errors = await outcome(process)
    assert code == 69
    assert "[cancelled: " in errors
    assert "the server stopped before the text was finished" in errors


async def test_nobody_there_is_said_with_the_address() -> None:
    code, _, errors = await ran("info", "--address", f"{LOOPBACK}:1")
    assert code == 69
    assert f"{LOOPBACK}:1: UNAVAILABLE" in errors


async def test_a_call_that_finds_its_server_gone_was_never_sent_and_says_so(tiny: Path) -> None:
    async with running(tiny) as server:
        client = Client(server.address)
        await asyncio.to_thread(client.tokenize, "the")
    with client, pytest.raises(CallError) as raised:
        await asyncio.to_thread(client.tokenize, "the")
    assert (raised.value.not_started, raised.value.is_no_connection) == (True, True), raised.value


async def test_the_synchronous_client_does_what_the_other_does(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    async with running(tiny, until_serving=False, uid="uid-1", control_token_file=tmp_path / "token") as server:
        control = f"{LOOPBACK}:{server.ports.control}"

        def use() -> None:
            with pytest.raises(CallError, match="UNAUTHENTICATED"):
                ControlClient(control).status()
            while ControlClient(control, token="secret").status().state != control_pb2.STATE_SERVING:
                pass
            with Client(server.address, uid="uid-1") as client:
                whole = client.generate("the", max_tokens=20, sampling=GREEDY)
                *deltas, finished = client.stream("the", max_tokens=20, sampling=GREEDY)
                assert finished == whole.finished
                texts = [delta.text for delta in deltas if isinstance(delta, inference_pb2.TextDelta)]
                assert "".join(texts) == whole.text
                assert len(client.tokenize("the")) == whole.finished.usage.prompt_tokens
                assert client.model_info().identity.backend_uid == "uid-1"
                abandoned = client.stream("the", max_tokens=LONG, sampling=GREEDY)
                next(abandoned)
                abandoned.close()
            while (status := ControlClient(control, token="secret").status()).active:
                pass
            assert status.requests.cancelled == 1
            assert ControlClient(control, token="secret").drain().state == control_pb2.STATE_DRAINING

        await asyncio.wait_for(asyncio.to_thread(use), PATIENCE_SECONDS)


async def test_choices_and_decisions_are_printed_with_their_probabilities(tiny: Path) -> None:
    async with running(tiny, slots=4) as server:
        asked = ("--prompt", "the time is", "--choice", " of", "--choice", " time")
        code, output, _ = await ran("score", *at(server), *asked)
        assert code == 0
        first, second = (line.split() for line in output.splitlines())
        assert float(first[0]) >= float(second[0])
        assert {first[2], second[2]} == {"of", "time"}

        code, output, errors = await ran("decide", *at(server), "--prompt", "is it?", "--chat", "--yes-no")
        assert (code, output.strip() in ("yes", "no")) == (0, True)
        assert errors.startswith("[confidence: ")
        code, output, errors = await ran("decide", *at(server), "--prompt", "how many?", "--range", "1", "9")
        assert (code, 1 <= int(output) <= 9, errors.startswith("[expected: ")) == (0, True, True)
        code, _, errors = await ran("embed", *at(server), "--input", "the")
        assert (code, "generates text" in errors) == (76, True)


async def test_a_drain_can_be_waited_for(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server:
        gate.allow(3)
        call = asyncio.create_task(server.client.generate("the", max_tokens=100, sampling=GREEDY))
        await server.until(active=1)
        async with command("drain", *control_at(server), "--wait") as process:
            assert b"[0 waiting, 1 running]" in await asyncio.wait_for(process.stderr.readline(), PATIENCE_SECONDS)
            gate.open()
            code, output, _ = await outcome(process)
        assert (code, json.loads(output)["active"]) == (0, 0)
        await call


async def test_a_bench_tells_what_several_callers_got(tiny: Path) -> None:
    async with running(tiny, slots=2) as server:
        arguments = ("--clients", "3", "--requests", "7", "--max-tokens", "5")
        code, output, _ = await ran("bench", *at(server), *arguments, "--json")
        found = json.loads(output)
        assert (code, found["answered"], found["generated_tokens"], found["errors"]) == (0, 7, 35, {})
        assert 0 < found["first_token_seconds"]["p50"] <= found["first_token_seconds"]["max"] <= found["seconds"]
        # Only the beginning of every text, and a space, are the same.
        assert server.server.admission.engine.counters.reused_prompt_tokens <= 2 * 7
        await server.drain(60)
        code, output, _ = await ran("bench", *at(server), *arguments)
    assert code == 69
    assert "failed with DRAINING: 7" in output
