"""The command modelbackend-client.

Text goes to standard output as it is made, everything else to standard error. Exit codes (sysexits.h where it has
a word): 0 answered; 2 wrong usage; 64 a bad request; 69 not reachable or not serving; 70 the server failed; 75 busy,
try again; 76 another backend answers at this address; 77 not allowed; 124 too late; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from modelbackend.v1 import inference_pb2

from . import requests
from .aio import AsyncClient
from .bench import Load, run
from .client import Client
from .connecting import Tls
from .control import ControlClient
from .errors import CallError
from .flags import SAMPLING_FLAGS, parser

EXIT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 64,
    grpc.StatusCode.UNIMPLEMENTED: 64,
    grpc.StatusCode.UNAVAILABLE: 69,
    grpc.StatusCode.ABORTED: 69,
    grpc.StatusCode.INTERNAL: 70,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 75,
    grpc.StatusCode.NOT_FOUND: 76,
    grpc.StatusCode.FAILED_PRECONDITION: 76,
    grpc.StatusCode.UNAUTHENTICATED: 77,
    grpc.StatusCode.PERMISSION_DENIED: 77,
    grpc.StatusCode.DEADLINE_EXCEEDED: 124,
    grpc.StatusCode.CANCELLED: 130,
}
EXIT_SERVER_FAILED, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 70, 69, 130


def main() -> NoReturn:
    arguments = parser(__doc__).parse_args()
    if arguments.command != "chat":
        signal.signal(signal.SIGINT, _interrupted)
    try:
        sys.exit(COMMANDS[arguments.command](arguments))
    except CallError as error:
        print(f"modelbackend-client: {arguments.address}: {error}", file=sys.stderr)
        if error.not_started and error.retry_after_seconds is not None:
            print(f"it was not started; try again in {error.retry_after_seconds:g} s", file=sys.stderr)
        sys.exit(EXIT_CODES.get(error.code, EXIT_SERVER_FAILED))


def _interrupted(*_: object) -> NoReturn:
    """At once: a KeyboardInterrupt may be raised where gRPC holds a lock, and whoever wants that one next waits for
    ever. The connection ends with the process, and with it the request."""
    os.write(sys.stderr.fileno(), b"\ninterrupted; the request is cancelled in the server too\n")
    os._exit(EXIT_INTERRUPTED)


def generate(arguments: argparse.Namespace) -> int:
    given = _given(arguments)
    with _client(arguments) as client:
        if arguments.stream:
            return _print(client, given, arguments)[1]
        response = client.generate(given, max_tokens=arguments.max_tokens, sampling=_sampling(arguments))
        print(response.text)
        return _report(response.finished, seconds=None)


def chat(arguments: argparse.Namespace) -> int:
    """Ctrl-C ends an answer, or the chat when there is none; so does the end of the input."""
    messages = _system(arguments)
    with _client(arguments) as client:
        while True:
            try:
                messages.append(requests.user(input("> " if sys.stdin.isatty() else "")))
            except (EOFError, KeyboardInterrupt):
                return 0
            try:
                text, code = _print(client, messages, arguments)
            except KeyboardInterrupt:
                print("\n[cancelled]", file=sys.stderr)
                messages.pop()
                continue
            if code:
                return code
            messages.append(requests.assistant(text))


def embed(arguments: argparse.Namespace) -> int:
    """One line of JSON for each text."""
    with _client(arguments) as client:
        for embedding in client.embed(arguments.input).embeddings:
            print(json.dumps(list(embedding.values)))
    return 0


def score(arguments: argparse.Namespace) -> int:
    """Likeliest first."""
    with _client(arguments) as client:
        scores = client.score(_given(arguments), arguments.choice).scores
    for found, choice in sorted(zip(scores, arguments.choice, strict=True), key=lambda pair: -pair[0].logprob):
        print(f"{found.probability:.4f}  {found.logprob:9.3f}  {choice}")
    return 0


def decide(arguments: argparse.Namespace) -> int:
    question: requests.Question = arguments.option or bool
    if arguments.range:
        question = range(arguments.range[0], arguments.range[1] + 1)
    with _client(arguments) as client:
        found = client.decide(_given(arguments), question)
    match found.WhichOneof("answer"):
        case "option":
            print(arguments.option[found.option])
        case "number":
            print(found.number)
            print(f"[expected: {found.expected:.2f}]", file=sys.stderr)
        case _:
            print("yes" if found.yes else "no")
    print(f"[confidence: {found.confidence:.4f}]", file=sys.stderr)
    return 0


def info(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        return _print_json(client.model_info())


def status(arguments: argparse.Namespace) -> int:
    return _print_json(_control(arguments).status())


def drain(arguments: argparse.Namespace) -> int:
    control = _control(arguments)
    status = control.drain(arguments.deadline_seconds)
    if arguments.wait and status.queued + status.active:
        with contextlib.closing(control.watch()) as statuses:
            for status in statuses:
                if not status.queued + status.active:
                    break
                print(f"[{status.queued} waiting, {status.active} running]", file=sys.stderr)
    return _print_json(status)


def bench(arguments: argparse.Namespace) -> int:
    """Exit code 0 where at least one request was answered."""
    client = AsyncClient(arguments.address, **_whom(arguments))
    load = Load(arguments.clients, arguments.requests, arguments.prompt, arguments.max_tokens)
    found = asyncio.run(run(client, load))
    if arguments.json:
        print(json.dumps(found.as_json()))
    else:
        print("\n".join(found.lines()))
    return 0 if found.answered else EXIT_UNAVAILABLE


def _print(client: Client, given: requests.Input, arguments: argparse.Namespace) -> tuple[str, int]:
    """Prints the stream; returns its text and the exit code."""
    texts: list[str] = []
    started = time.monotonic()
    stream = client.stream(given, max_tokens=arguments.max_tokens, sampling=_sampling(arguments))
    with contextlib.closing(stream) as events:
        for event in events:
            if isinstance(event, inference_pb2.TextDelta):
                texts.append(event.text)
                print(event.text, end="", flush=True)
            else:
                print()
                return "".join(texts), _report(event, time.monotonic() - started)
    print("modelbackend-client: the stream ended without saying how", file=sys.stderr)
    return "".join(texts), EXIT_SERVER_FAILED


def _report(finished: inference_pb2.Finished, seconds: float | None) -> int:
    usage = finished.usage
    parts = [f"{usage.prompt_tokens} tokens of prompt", f"{usage.completion_tokens} generated"]
    if seconds is not None:
        parts.append(f"{usage.completion_tokens / seconds:.1f} tokens/s")
    if finished.HasField("seed"):
        parts.append(f"seed {finished.seed}")
    reason = inference_pb2.FinishReason.Name(finished.finish_reason).removeprefix("FINISH_REASON_").lower()
    print(f"[{reason}: {', '.join(parts)}]", file=sys.stderr)
    if finished.finish_reason == inference_pb2.FINISH_REASON_CANCELLED:
        print("modelbackend-client: the server stopped before the text was finished", file=sys.stderr)
        return EXIT_UNAVAILABLE
    return 0


def _print_json(message: Message) -> int:
    print(MessageToJson(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
    return 0


def _client(arguments: argparse.Namespace) -> Client:
    return Client(arguments.address, **_whom(arguments))


def _whom(arguments: argparse.Namespace) -> dict[str, Any]:
    """What both clients are told about the server and the calls to it."""
    return {
        "uid": arguments.uid,
        "model": arguments.model,
        "timeout_seconds": arguments.timeout_seconds,
        "owner_wait_seconds": arguments.wait_seconds,
        "token": arguments.token_file,
        "tls": _tls(arguments),
    }


def _tls(arguments: argparse.Namespace) -> Tls | None:
    if arguments.ca_file is None:
        return None
    own = {"certificate": arguments.certificate_file, "key": arguments.key_file}
    given = {name: text.encode() for name, text in own.items() if text is not None}
    return Tls(arguments.ca_file.encode(), arguments.server_name, **given)


def _given(arguments: argparse.Namespace) -> requests.Input:
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    return [*_system(arguments), requests.user(prompt)] if arguments.chat else str(prompt)


def _control(arguments: argparse.Namespace) -> ControlClient:
    return ControlClient(arguments.address, token=arguments.token_file)


def _system(arguments: argparse.Namespace) -> list[inference_pb2.ChatMessage]:
    return [requests.system(arguments.system)] if arguments.system else []


def _sampling(arguments: argparse.Namespace) -> inference_pb2.Sampling:
    names = [flag.replace("-", "_") for flag, _, _ in SAMPLING_FLAGS]
    return inference_pb2.Sampling(**{name: getattr(arguments, name) for name in names})


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "generate": generate,
    "chat": chat,
    "embed": embed,
    "score": score,
    "decide": decide,
    "info": info,
    "status": status,
    "drain": drain,
    "bench": bench,
}


if __name__ == "__main__":
    main()
