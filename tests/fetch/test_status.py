"""What the fetcher tells whoever has the control token, and how rarely its words change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from modelbackend.v1 import control_pb2, control_pb2_grpc
from modelbackend_fetch.memory_limit import memory_limit_bytes
from modelbackend_fetch.progress import Meter
from modelbackend_fetch.settings import read_settings
from modelbackend_fetch.status_service import telling
from tests.fetch.file_server import LOOPBACK
from tests.fetch.harness import PATIENCE_SECONDS, http


async def status(port: int, token: str) -> control_pb2.Status:
    async with asyncio.timeout(PATIENCE_SECONDS), grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        stub: control_pb2_grpc.ControlAsyncStub = control_pb2_grpc.ControlStub(channel)
        metadata = (("authorization", f"Bearer {token}"),)
        answer = await stub.GetStatus(control_pb2.GetStatusRequest(), metadata=metadata)
        return answer.status


async def test_whoever_has_the_token_is_told_who_it_is_and_how_far(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("the-token\n")
    who = {"uid": "backend-uid", "model": "llama", "pod_uid": "pod-uid"}
    where = {"listen_address": LOOPBACK, "control_port": 0, "control_token_file": token}
    settings = read_settings(source=http("http://a/m.gguf"), target=tmp_path / "m.gguf", **who, **where)
    meter = Meter()
    async with telling(settings, meter) as port:
        assert (await status(port, "the-token")).message == ""
        meter.begin("m.gguf")
        meter.received(4_000_000, 10_000_000)
        told = await status(port, "the-token")
        assert (told.identity.backend_uid, told.identity.model, told.identity.pod_uid) == tuple(who.values())
        assert (told.state, told.message) == (control_pb2.STATE_LOADING, "fetching m.gguf: 40 % of 10 MB")
        for wrong in ("another", ""):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await status(port, wrong)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_the_words_change_ten_times_in_a_download_however_many_blocks_come() -> None:
    meter, words = Meter(), set()
    meter.begin("m.gguf")
    for block in range(1, 1001):
        meter.received(block * 10**6, 10**9)
        words.add(meter.told)
    assert len(words) == 11
    assert meter.told.startswith("fetching m.gguf: 100 % of 1 000 MB at ")


def test_a_failed_try_is_told_once_bytes_had_come_and_the_next_bytes_after_it() -> None:
    meter = Meter()
    meter.begin("m.gguf")
    meter.pauses("nobody answers")
    assert meter.told == ""
    meter.received(10, 100)
    meter.pauses("the connection broke")
    assert meter.told == "the connection broke"
    meter.received(11, 100)
    assert meter.told == "fetching m.gguf: 10 % of 0 MB"


def test_a_model_that_is_larger_than_the_memory_limit_is_told_of_while_it_comes() -> None:
    meter = Meter(memory_limit_bytes=8 * 10**9)
    meter.begin("m.gguf")
    meter.received(10**9, 8 * 10**9)
    assert meter.told == "fetching m.gguf: 10 % of 8 000 MB"
    meter.begin("m.gguf")
    meter.received(10**9, 9 * 10**9)
    assert meter.told == (
        "fetching m.gguf: 10 % of 9 000 MB; that is more than the memory limit of 8 000 MB: raise "
        "resources.limits.memory, unless a GPU takes its layers"
    )


@pytest.mark.parametrize(("text", "limit"), [("8000000000\n", 8_000_000_000), ("max\n", None), (None, None)])
def test_the_memory_limit_is_that_of_the_containers_own_cgroup(
    tmp_path: Path, text: str | None, limit: int | None
) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    assert memory_limit_bytes(file) == limit
