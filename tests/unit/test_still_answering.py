"""The counter-evidence, against a real gRPC server: only the very pod's own identity contradicts a word."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend.v1.model_info_pb2 import Identity
from modelbackend_operator.evidence import Suspect
from modelbackend_operator.still_answering import still_answering

BACKEND_UID, POD_UID = "backend-uid", "pod-uid"


class Server(inference_pb2_grpc.InferenceServicer):
    def __init__(self) -> None:
        self.identity = Identity(backend_uid=BACKEND_UID, model="smollm2", pod_uid=POD_UID)
        self.refuses = False
        self.address = ""

    async def GetModelInfo(self, request: Any, context: Any) -> inference_pb2.GetModelInfoResponse:  # noqa: ARG002, N802
        if self.refuses:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another backend")
        assert dict(context.invocation_metadata())["x-modelbackend-uid"] == BACKEND_UID
        return inference_pb2.GetModelInfoResponse(identity=self.identity)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    answering, listener = Server(), grpc.aio.server()  # type: ignore[abstract]
    inference_pb2_grpc.add_InferenceServicer_to_server(answering, listener)
    answering.address = f"127.0.0.1:{listener.add_insecure_port('127.0.0.1:0')}"
    await listener.start()
    yield answering
    await listener.stop(None)


async def asked(*addresses: str) -> frozenset[str]:
    suspects = [Suspect(POD_UID, addresses), Suspect("another-pod", addresses), Suspect("nowhere", ())]
    return await still_answering(BACKEND_UID, suspects, timeout_seconds=0.5)


async def test_a_pod_that_answers_as_itself_is_heard_on_any_of_its_addresses(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await asked(f"127.0.0.1:{silent.getsockname()[1]}", server.address) == {POD_UID}


@pytest.mark.parametrize("field", ["backend_uid", "pod_uid"])
async def test_a_stranger_is_not_taken_for_it(server: Server, field: str) -> None:
    setattr(server.identity, field, "a stranger")
    assert await asked(server.address) == frozenset()


async def test_no_answer_and_a_refusal_say_nothing(server: Server) -> None:
    server.refuses = True
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await asked(server.address, f"127.0.0.1:{silent.getsockname()[1]}", "127.0.0.1:1") == frozenset()
