"""The command modelbackend-client.

Text goes to standard output as it is made, everything else to standard error. Exit codes (sysexits.h where it has
a word): 0 answered; 2 wrong usage; 64 a bad request; 69 not reachable or not serving; 70 the server failed; 75 busy,
try again; 76 another backend answers at this address; 77 not allowed; 124 too late; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from modelbackend.v1 import inference_pb2

from . import requests
from .client import Client
from .control import ControlClient
from .errors import CallError

EXIT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 64,
    grpc.StatusCode.UNIMPLEMENTED: 64,
    grpc.StatusCode.UNAVAILABLE: 69,
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


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative")
    return number


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error.strerror}") from None


# Ranges are the server's to check: it says which one is broken.
SAMPLING_FLAGS: tuple[tuple[str, Callable[[str], float], str], ...] = (
    ("temperature", float, "0 always takes the likeliest token"),
    ("top-k", _count, "choose among the k likeliest; 0 among all"),
    ("top-p", float, "choose among the likeliest that together have this probability"),
    ("min-p", float, "choose among those at least this likely, relative to the likeliest"),
    ("repeat-penalty", float, "more than 1 makes repeated tokens less likely"),
    ("seed", _count, "the same seed gives the same text"),
)


def main() -> NoReturn:
    arguments = _parser().parse_args()
    try:
        sys.exit(arguments.run(arguments))
    except CallError as error:
        print(f"modelbackend-client: {arguments.address}: {error}", file=sys.stderr)
        if error.not_started and error.retry_after_seconds is not None:
            print(f"it was not started; try again in {error.retry_after_seconds:g} s", file=sys.stderr)
        sys.exit(EXIT_CODES.get(error.code, EXIT_SERVER_FAILED))
    except KeyboardInterrupt:
        print("\ninterrupted; the request is cancelled in the server too", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def generate(arguments: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    given: requests.Input = prompt
    if arguments.chat:
        given = [*_system(arguments), requests.user(prompt)]
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


def info(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        return _print_json(client.model_info())


def status(arguments: argparse.Namespace) -> int:
    return _print_json(_control(arguments).status())


def drain(arguments: argparse.Namespace) -> int:
    return _print_json(_control(arguments).drain(arguments.deadline_seconds))


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
    return Client(
        arguments.address, uid=arguments.uid, model=arguments.model, timeout_seconds=arguments.timeout_seconds
    )


def _control(arguments: argparse.Namespace) -> ControlClient:
    return ControlClient(arguments.address, token=arguments.token_file)


def _system(arguments: argparse.Namespace) -> list[inference_pb2.ChatMessage]:
    return [requests.system(arguments.system)] if arguments.system else []


def _sampling(arguments: argparse.Namespace) -> inference_pb2.Sampling:
    names = [flag.replace("-", "_") for flag, _, _ in SAMPLING_FLAGS]
    return inference_pb2.Sampling(**{name: getattr(arguments, name) for name in names})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modelbackend-client", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("generate", help="continue a prompt, or answer one message")
    command.set_defaults(run=generate)
    command.add_argument("--prompt", required=True, help="the text; - reads it from standard input")
    command.add_argument("--chat", action="store_true", help="send it as a user's message of a chat")
    command.add_argument("--no-stream", dest="stream", action="store_false", help="print when all is there")
    _add_generation(command)

    command = commands.add_parser("chat", help="talk, a line at a time")
    command.set_defaults(run=chat)
    _add_generation(command)

    command = commands.add_parser("info", help="the model behind an address")
    command.set_defaults(run=info)
    _add_inference(command)

    command = commands.add_parser("status", help="what a server is doing (its control port)")
    command.set_defaults(run=status)
    _add_control(command)

    command = commands.add_parser("drain", help="let a server finish and take nothing new (its control port)")
    command.set_defaults(run=drain)
    command.add_argument("--deadline-seconds", type=float, help="time for what runs; the server's own by default")
    _add_control(command)
    return parser


def _add_inference(command: argparse.ArgumentParser) -> None:
    command.add_argument("--address", default="127.0.0.1:50051", help="HOST:PORT [%(default)s]")
    command.add_argument("--uid", help="only talk to the ModelBackend with this metadata.uid")
    command.add_argument("--model", help="only talk to a server of this model")
    command.add_argument("--timeout-seconds", type=float, help="give up after this long, queue included")


def _add_generation(command: argparse.ArgumentParser) -> None:
    _add_inference(command)
    command.add_argument("--system", help="first message of a chat, for the model's manners")
    command.add_argument("--max-tokens", type=_count, help="generate no more than this")
    for flag, kind, words in SAMPLING_FLAGS:
        command.add_argument(f"--{flag}", type=kind, help=words)


def _add_control(command: argparse.ArgumentParser) -> None:
    command.add_argument("--address", default="127.0.0.1:50052", help="HOST:PORT [%(default)s]")
    command.add_argument("--token-file", type=_content, help="the backend's control token")


if __name__ == "__main__":
    main()
