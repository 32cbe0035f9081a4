"""Callers who follow a backend by its name and never stop: what a change does to them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from e2e.backends import STREAM_SECONDS, Backend
from e2e.kubectl import PATIENCE_SECONDS, until
from modelbackend_client import CallError, Client

PAUSE_SECONDS = 0.1


@dataclass
class Traffic:
    answered: int = 0
    failures: list[str] = field(default_factory=list)

    def until_answered_again(self) -> None:
        """By somebody, from now on."""
        so_far = self.answered
        until("a further call is answered", lambda: self.answered > so_far + 1 or self.failures)


@contextmanager
def traffic(one: Backend) -> Iterator[Traffic]:
    """Short calls, one after the other, through KUBECONFIG as a user's program would make them."""
    told, stopping = Traffic(), threading.Event()
    with Client(
        f"{one.namespace}/{one.name}", owner_wait_seconds=PATIENCE_SECONDS, timeout_seconds=STREAM_SECONDS
    ) as client:
        thread = threading.Thread(target=_call, args=(client, told, stopping))
        thread.start()
        try:
            told.until_answered_again()
            yield told
            told.until_answered_again()
        finally:
            stopping.set()
            thread.join()


def _call(client: Client, told: Traffic, stopping: threading.Event) -> None:
    while not stopping.wait(PAUSE_SECONDS):
        try:
            client.generate("Hello", max_tokens=2)
            told.answered += 1
        except CallError as error:
            told.failures.append(str(error))
