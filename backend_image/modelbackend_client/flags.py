"""The flags of the command modelbackend-client."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
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


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="modelbackend-client", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")

    command = commands.add_parser("generate", help="continue a prompt, or answer one message")
    _add_prompt(command)
    command.add_argument("--no-stream", dest="stream", action="store_false", help="print when all is there")
    _add_generation(command)

    command = commands.add_parser("chat", help="talk, a line at a time")
    _add_generation(command)

    command = commands.add_parser("embed", help="vectors of texts, as lines of JSON")
    command.add_argument("--input", action="append", required=True, help="a text; may be repeated")
    _add_inference(command)

    command = commands.add_parser("score", help="how likely the model finds each of several continuations")
    _add_prompt(command)
    command.add_argument("--choice", action="append", required=True, help="a continuation; to be repeated")
    command.add_argument("--system", help="first message of a chat")
    _add_inference(command)

    command = commands.add_parser("decide", help="the likeliest answer: one of several, a number, or yes or no")
    _add_prompt(command)
    kinds = command.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--option", action="append", help="a possible answer; to be repeated")
    kinds.add_argument("--range", nargs=2, type=int, metavar=("LOW", "HIGH"), help="whole numbers, both ends too")
    kinds.add_argument("--yes-no", action="store_true", help="yes or no")
    command.add_argument("--system", help="first message of a chat")
    _add_inference(command)

    command = commands.add_parser("info", help="the model behind an address")
    _add_inference(command)

    command = commands.add_parser("status", help="what a server is doing (its control port)")
    _add_control(command)

    command = commands.add_parser("drain", help="let a server finish and take nothing new (its control port)")
    command.add_argument("--deadline-seconds", type=float, help="time for what runs; the server's own by default")
    command.add_argument("--wait", action="store_true", help="until nothing is in flight, telling how much is")
    _add_control(command)

    command = commands.add_parser("bench", help="how fast a server answers several callers at once")
    command.add_argument("--clients", type=_positive, default=4, help="callers at a time [%(default)s]")
    command.add_argument("--requests", type=_positive, default=32, help="of all of them together [%(default)s]")
    command.add_argument("--prompt", default="Tell me a story.", help="each request puts its number in front of it")
    command.add_argument("--max-tokens", type=_positive, default=64, help="of each answer [%(default)s]")
    command.add_argument("--json", action="store_true", help="one line of JSON")
    _add_inference(command)
    return made


def _add_prompt(command: argparse.ArgumentParser) -> None:
    command.add_argument("--prompt", required=True, help="the text; - reads it from standard input")
    command.add_argument("--chat", action="store_true", help="send it as a user's message of a chat")


def _add_inference(command: argparse.ArgumentParser) -> None:
    where = "HOST:PORT, or NAMESPACE/NAME of a ModelBackend, looked up as kubectl would [%(default)s]"
    command.add_argument("--address", default="127.0.0.1:50051", help=where)
    command.add_argument("--uid", help="only talk to the ModelBackend with this metadata.uid")
    command.add_argument("--model", help="only talk to a server of this model")
    command.add_argument(
        "--wait-seconds", type=float, help="longest wait for an instance [30 for a name, 0 for an address]"
    )
    command.add_argument("--token-file", type=_content, help="the token that the server asks for")
    command.add_argument("--ca-file", type=_content, help="speak TLS with a server whose certificate this one signs")
    command.add_argument("--server-name", help="the name in the server's certificate, where it is not the address")
    command.add_argument("--certificate-file", type=_content, help="the caller's own certificate")
    command.add_argument("--key-file", type=_content, help="and its key")
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
