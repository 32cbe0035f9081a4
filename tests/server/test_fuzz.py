"""Whatever is sent, the server answers with a code that means it, and lives.

The server runs on a loop of its own in a thread: the examples are synchronous.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelbackend.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from modelbackend_client import Client
from modelbackend_client.errors import from_rpc
from modelbackend_server.server import Ports
from tests.server.harness import GREEDY, LOOPBACK, running

FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
POSTED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank")
ROUTES = (*POSTED, "/v1/models", "/v1/models/tiny", "/health", "/metrics", "/nowhere")
HTTP_STATUSES = {200, 400, 404, 405, 413, 431}
GRPC_CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
}


@pytest.fixture(scope="module")
def ports(with_tools: Path) -> Iterator[Ports]:
    """A small context, so that what is generated ends soon."""
    listening, stop = threading.Event(), threading.Event()
    found: list[Ports] = []

    async def serve() -> None:
        async with running(with_tools, slots=2, context_length=64) as server:
            found.append(server.ports)
            listening.set()
            await asyncio.to_thread(stop.wait)
            status = await server.until(active=0, queued=0)
            counters = status.requests
            assert counters.accepted == counters.finished + counters.cancelled
            assert counters.failed == 0

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert listening.wait(30)
    yield found[0]
    stop.set()
    thread.join()


def alive(ports: Ports) -> bool:
    with Client(f"{LOOPBACK}:{ports.grpc}") as client:
        return client.generate("the", max_tokens=2, sampling=GREEDY).finished.usage.completion_tokens == 2


def call(ports: Ports, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, ports.http, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


TEXTS = st.text(max_size=30) | st.sampled_from(["the time", "", "\0", "{{ 7 * 7 }}", "<s>", "</s>", "root ::= root"])
NUMBERS = st.integers(-3, 70) | st.integers() | st.floats() | st.booleans()
JSON = st.recursive(
    st.none() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool"]), "content": TEXTS | JSON},
    optional={"tool_call_id": TEXTS, "tool_calls": JSON},
)
FUNCTION_F = {"type": "function", "function": {"name": "f"}}
TOOL = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.sampled_from(["f", "g"]) | TEXTS},
            optional={"parameters": st.sampled_from([{}, {"type": "object"}]) | JSON, "description": TEXTS},
        ),
    }
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "messages": st.lists(MESSAGE, max_size=3) | JSON,
    "prompt": TEXTS | JSON,
    "input": TEXTS | st.lists(TEXTS, max_size=3),
    "query": TEXTS,
    "documents": st.lists(TEXTS, max_size=3),
    "max_tokens": st.integers(1, 5) | NUMBERS,
    "temperature": st.floats(0, 10) | NUMBERS,
    "top_p": NUMBERS,
    "top_k": NUMBERS,
    "min_p": NUMBERS,
    "typical_p": NUMBERS,
    "repeat_penalty": NUMBERS,
    "frequency_penalty": NUMBERS,
    "seed": NUMBERS,
    "stop": TEXTS | st.lists(TEXTS, max_size=3),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}) | JSON,
    "logprobs": st.booleans() | NUMBERS,
    "top_logprobs": NUMBERS,
    "logit_bias": st.dictionaries(st.integers(-1, 600).map(str), NUMBERS, max_size=3),
    "grammar": st.sampled_from(['root ::= "a" | "time"', "root ::= root", 'root ::= "a"*', ""]) | TEXTS,
    "response_format": st.sampled_from([{"type": "json_object"}, {"type": "text"}]) | JSON,
    "tools": st.lists(TOOL, max_size=2) | JSON,
    "tool_choice": st.sampled_from(["none", "auto", "required", {"type": "function", "function": {"name": "f"}}])
    | JSON,
    "parallel_tool_calls": st.booleans() | JSON,
    "model": st.just("tiny") | TEXTS,
    "n": NUMBERS,
}
BODIES = st.fixed_dictionaries({}, optional=FIELDS)
LIKELY = st.fixed_dictionaries({"prompt": TEXTS, "messages": st.lists(MESSAGE, min_size=1, max_size=2)}).flatmap(
    lambda base: st.fixed_dictionaries({}, optional=FIELDS).map(
        lambda more: {**{k: v for k, v in base.items() if len(more) % 2 == (k == "prompt")}, **more}
    )
)


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()


@given(path=st.sampled_from(POSTED), body=BODIES | LIKELY | JSON)
@FUZZ
def test_any_json_over_http_gets_a_meaningful_status(ports: Ports, path: str, body: object) -> None:
    status, answer = call(ports, "POST", path, encoded(body), {"content-type": "application/json"})
    assert status in HTTP_STATUSES, answer
    if status != 200:
        error = json.loads(answer)["error"]
        assert error["message"]
        assert "code" in error
    assert alive(ports)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]),
    path=st.sampled_from(ROUTES),
    body=st.binary(max_size=200),
    name=st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='"(),/:;<=>?@[\\]{}'), min_size=1
    ),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300),
)
@FUZZ
def test_any_bytes_over_http_get_a_meaningful_status(
    ports: Ports, method: str, path: str, body: bytes, name: str, value: str
) -> None:
    headers = {f"x-{name}": value, "x-request-id": value.strip() or "x"}
    status, _ = call(ports, method, path, body, headers)
    assert status in HTTP_STATUSES
    assert alive(ports)


@given(data=st.binary(min_size=1, max_size=400))
@FUZZ
def test_any_bytes_on_the_http_port_leave_the_server_alive(ports: Ports, data: bytes) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, ports.http, timeout=30)
    connection.connect()
    connection.sock.sendall(data)
    connection.close()
    assert alive(ports)


def values(field: Any) -> st.SearchStrategy[Any]:
    """Legal values of a field; not always sensible ones."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=20)
        case FieldDescriptor.CPPTYPE_STRING:
            return TEXTS
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_ENUM:
            return st.integers(0, 5)
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return st.floats(0, 1, width=32) | st.floats(width=32)
        case FieldDescriptor.CPPTYPE_INT32:
            return st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1)
        case FieldDescriptor.CPPTYPE_UINT32:
            return st.integers(0, 5) | st.integers(0, 2**32 - 1)
        case _:
            return st.integers(0, 2**63)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """Any message of a kind, each field given or not."""
    message = kind()
    fields: Any = kind.DESCRIPTOR.fields
    for field in fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            getattr(message, field.name).update(draw(st.dictionaries(values(key), values(value), max_size=2)))
        elif field.message_type is not None:
            part: type[Message] = field.message_type._concrete_class
            if field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(messages(part), max_size=2)))
            else:
                getattr(message, field.name).CopyFrom(draw(messages(part)))
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(values(field), max_size=3)))
        else:
            setattr(message, field.name, draw(values(field)))
    return message


METHODS = list(inference_pb2.DESCRIPTOR.services_by_name["Inference"].methods)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
def test_any_message_over_grpc_gets_a_meaningful_code(ports: Ports, method: Any) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{ports.grpc}") as channel:
        stub = getattr(inference_pb2_grpc.InferenceStub(channel), method.name)

        @given(request=messages(method.input_type._concrete_class))
        @FUZZ
        def hold(request: Message) -> None:
            try:
                answer = stub(request, timeout=30)
                if method.server_streaming:
                    list(answer)
                code = grpc.StatusCode.OK
            except grpc.RpcError as error:
                code = from_rpc(error).code
            assert code in GRPC_CODES, request
            assert alive(ports)

        hold()


@given(data=st.binary(max_size=100), method=st.sampled_from([method.name for method in METHODS]))
@FUZZ
def test_bytes_that_are_no_message_are_refused(ports: Ports, data: bytes, method: str) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{ports.grpc}") as channel:
        call: Any = channel.unary_stream(f"/modelbackend.v1.Inference/{method}")
        code = grpc.StatusCode.OK
        try:
            list(call(data, timeout=30))
        except grpc.RpcError as error:
            code = from_rpc(error).code
    # UNKNOWN is the word of grpc.aio itself for bytes that it cannot read: our code is not reached.
    assert code in GRPC_CODES | {grpc.StatusCode.UNKNOWN}
    assert alive(ports)


@given(request=messages(control_pb2.CancelRequestRequest))
@FUZZ
def test_no_name_cancels_what_it_does_not_name(ports: Ports, request: control_pb2.CancelRequestRequest) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{ports.control}") as channel:
        assert control_pb2_grpc.ControlStub(channel).CancelRequest(request).cancelled == 0
