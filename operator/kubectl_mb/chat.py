"""`kubectl mb chat`: a conversation with a backend, through its address or a port-forward of the API server."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import aiohttp
import click

from kubectl_mb.connecting import Session, Target, connected
from kubectl_mb.look import backend_named, one
from kubectl_mb.printable import printable
from kubectl_mb.sight import condition, status_of
from kubectl_mb.troubles import Exit, Trouble
from modelbackend.v1 import inference_pb2
from modelbackend_client import CallError, Client, assistant, system, user
from modelbackend_operator.api import GRPC_PORT, Condition, Endpoint
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.port_forward import PROTOCOL, WebSocket, forwarded

REACH_SECONDS = 2.0
JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Talk:
    """How it is spoken: `prompt` asks one question; None reads lines until the end of the input."""

    prompt: str | None
    system: str | None
    max_tokens: int | None
    temperature: float | None


def chat(target: Target, name: str, talk: Talk, *, forward: bool, token: str | None) -> None:
    backend = asyncio.run(_read(target, name))
    endpoint = _endpoint(backend)
    uid, namespace = backend["metadata"]["uid"], backend["metadata"]["namespace"]
    with contextlib.ExitStack() as stack:
        address = endpoint.address
        if forward or not _reaches(address):
            pod = _pod_name(backend, endpoint)
            address = stack.enter_context(_forwarded(target, namespace, pod))
            why = "as asked" if forward else f"{endpoint.address} is not reachable from here"
            click.echo(f"[{why}: through a port-forward to pod {pod}]", err=True)
        _converse(stack.enter_context(Client(address, uid=uid, token=token)), talk)


async def _read(target: Target, name: str) -> Raw:
    async with connected(target) as session:
        return await backend_named(session, name)


def _endpoint(backend: Raw) -> Endpoint:
    status = status_of(backend)
    found = next((entry for entry in status.endpoints if entry.role is PortRole.GRPC), None)
    if found is None:
        ready, name = condition(status, Condition.READY), backend["metadata"]["name"]
        words = f" ({ready.reason}: {ready.message})" if ready is not None else ""
        raise Trouble(
            Exit.UNAVAILABLE, f"no instance of {name} serves{words}; kubectl mb why {name} says what it waits for"
        )
    return found


def _pod_name(backend: Raw, endpoint: Endpoint) -> str:
    for entry in status_of(backend).instances:
        for pod in (entry.pod, entry.successor.pod if entry.successor is not None else None):
            if pod is not None and pod.uid == endpoint.pod_uid:
                return pod.name
    raise Trouble(Exit.UNAVAILABLE, f"the status names no pod with uid {endpoint.pod_uid}; try again")


def _reaches(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS):
            return True
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _forwarded(target: Target, namespace: str, pod: str) -> Iterator[str]:
    """On a thread with its own loop, so that it goes on while a person types."""
    loop, done = asyncio.new_event_loop(), asyncio.Event()
    opened: Future[str] = Future()

    async def run() -> None:
        async with connected(target) as session:
            if await one(session, Kind.POD, namespace, pod) is None:
                raise Trouble(Exit.NOT_FOUND, f"pod {namespace}/{pod} is gone; try again")
            connect = partial(_connect, session, namespace, pod)
            await (await connect()).close()  # once on trial: later, a refusal would only look like a silent server
            async with forwarded(connect) as address:
                opened.set_result(address)
                await done.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        except Exception as error:
            opened.set_exception(error)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="port-forward", daemon=True)
    thread.start()
    try:
        yield opened.result()
    except aiohttp.ClientError as error:
        hint = "it needs the rights get and create on pods/portforward"
        raise Trouble(Exit.UNAVAILABLE, f"no port-forward to pod {namespace}/{pod}: {error}; {hint}") from error
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)
        thread.join(timeout=JOIN_SECONDS)


async def _connect(session: Session, namespace: str, pod: str) -> WebSocket:
    path, query = f"{Kind.POD.path(namespace, pod)}/portforward", [("ports", str(GRPC_PORT))]
    return await session.api.websocket(path, query=query, protocol=PROTOCOL)


def _converse(client: Client, talk: Talk) -> None:
    """Ctrl-C cancels an answer, or ends it all where there is none."""
    messages = [system(talk.system)] if talk.system else []
    while True:
        try:
            said = talk.prompt if talk.prompt is not None else input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
        messages.append(user(said))
        try:
            messages.append(assistant(_answer(client, messages, talk)))
        except KeyboardInterrupt:
            click.echo("\n[cancelled]", err=True)
            messages.pop()
        except CallError as error:
            raise Trouble(Exit.UNAVAILABLE, str(error)) from error
        if talk.prompt is not None:
            return


def _answer(client: Client, messages: list[inference_pb2.ChatMessage], talk: Talk) -> str:
    """Printed as it is made."""
    sampling = inference_pb2.Sampling(temperature=talk.temperature) if talk.temperature is not None else None
    texts = []
    with contextlib.closing(client.stream(messages, max_tokens=talk.max_tokens, sampling=sampling)) as events:
        for event in events:
            if isinstance(event, inference_pb2.TextDelta):
                texts.append(event.text)
                click.echo(printable(event.text), nl=False)
    click.echo()
    return "".join(texts)
