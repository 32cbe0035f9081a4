"""`kubectl mb chat`: a conversation with a backend, through its address or a port-forward of the API server."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator

import click

from kubectl_mb.connecting import Target, connected
from kubectl_mb.look import backend_named
from kubectl_mb.sight import condition, status_of
from kubectl_mb.troubles import Exit, Trouble
from modelbackend_client import CallError, Client, assistant, system, user
from modelbackend_operator.api import GRPC_PORT, Condition, Endpoint, PortRole
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.port_forward import PROTOCOL, forwarded

REACH_SECONDS = 2.0


def chat(
    target: Target,
    name: str,
    *,
    prompt: str | None,
    system_prompt: str | None,
    max_tokens: int | None,
    forward: bool,
    token: str | None,
) -> None:
    backend = asyncio.run(_read(target, name))
    endpoint = _endpoint(backend)
    uid, namespace = backend["metadata"]["uid"], backend["metadata"]["namespace"]
    with contextlib.ExitStack() as stack:
        address = endpoint.address
        if forward or not _reaches(address):
            pod = _pod_name(backend, endpoint)
            address = stack.enter_context(_forwarded(target, namespace, pod))
            click.echo(
                f"[{endpoint.address} is not reachable from here; through a port-forward to pod {pod}]", err=True
            )
        client = stack.enter_context(Client(address, uid=uid, token=token))
        _converse(client, prompt, system_prompt, max_tokens)


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
    address: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    done = asyncio.Event()

    async def run() -> None:
        async with connected(target) as session:
            path = f"{Kind.POD.path(namespace, pod)}/portforward"
            query = [("ports", str(GRPC_PORT))]
            async with forwarded(lambda: session.api.websocket(path, query=query, protocol=PROTOCOL)) as opened:
                address.append(opened)
                ready.set()
                await done.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work, name="port-forward", daemon=True)
    thread.start()
    ready.wait()
    if not address:
        raise Trouble(Exit.UNAVAILABLE, f"no port-forward to pod {namespace}/{pod}")
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(timeout=5)


def _converse(client: Client, prompt: str | None, system_prompt: str | None, max_tokens: int | None) -> None:
    """One answer for a prompt that was given; else until the end of the input. Ctrl-C cancels an answer, or ends."""
    messages = [system(system_prompt)] if system_prompt else []
    while True:
        try:
            said = prompt if prompt is not None else input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
        messages.append(user(said))
        try:
            messages.append(assistant(_answer(client, messages, max_tokens)))
        except KeyboardInterrupt:
            click.echo("\n[cancelled]", err=True)
            messages.pop()
        except CallError as error:
            raise Trouble(Exit.UNAVAILABLE, str(error)) from error
        if prompt is not None:
            return


def _answer(client: Client, messages: list, max_tokens: int | None) -> str:  # type: ignore[type-arg]
    texts = []
    with contextlib.closing(client.stream(messages, max_tokens=max_tokens)) as events:
        for event in events:
            if hasattr(event, "text"):
                texts.append(event.text)
                click.echo(event.text, nl=False)
    click.echo()
    return "".join(texts)
