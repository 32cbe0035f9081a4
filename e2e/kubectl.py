"""kubectl as the tests use it: the program a user types, its JSON, and waiting on what it shows."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from e2e.api import Api

Object = dict[str, Any]
POLL_SECONDS = 0.15
PATIENCE_SECONDS = 180.0
"""Less than the operator takes from one complete reading of the cluster to the next, which would hide what it missed.
For what takes a moment on an idle machine: a test that fails because its machine is slow says nothing."""
INTERRUPTED = threading.Event()
"""Somebody wants the run to end: what puts the cluster right is done, and nothing is waited for."""
INTERRUPTED_SECONDS = 10.0
T = TypeVar("T")


class KubectlError(AssertionError):
    """kubectl said no; the message has the command and its words."""


class Kubectl:
    """Bound to one kubeconfig. Namespaces are named in each call.

    With `api`, which reads as the same person, `get` and `list` start no program: most of a test is waiting.
    """

    def __init__(self, kubeconfig: Path, api: Api | None = None, *, token: str = "") -> None:
        self.kubeconfig = kubeconfig
        self._api = api
        self._program = shutil.which("kubectl") or "kubectl"
        self._identity = [f"--token={token}"] if token else []

    def as_token(self, token: str) -> "Kubectl":
        """The same cluster, seen by the ServiceAccount that this token belongs to."""
        return Kubectl(_without_credentials(self.kubeconfig), token=token)

    def run(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = PATIENCE_SECONDS) -> str:
        """Standard output. Raises `KubectlError` with standard error when kubectl fails."""
        seconds = INTERRUPTED_SECONDS if INTERRUPTED.is_set() else timeout_seconds
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        return [self._program, f"--kubeconfig={self.kubeconfig}", *self._identity, *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """In the background, for a caller that ends it itself."""
        return subprocess.Popen(self.command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def apply(self, *objects: Object) -> None:
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "-f", "-", stdin=json.dumps(bundle))

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """None when there is no such object."""
        if self._api is not None:
            return self._api.find(kind, name, namespace)
        found = self.run("get", kind, name, *_in(namespace), "--ignore-not-found", "-o", "json")
        return json.loads(found) if found.strip() else None

    def list(self, kind: str, namespace: str = "", selector: str = "") -> Sequence[Object]:
        if self._api is not None:
            return self._api.list(kind, namespace, labelSelector=selector)
        chosen = ["-l", selector] if selector else []
        found: Object = json.loads(self.run("get", kind, *_in(namespace), *chosen, "-o", "json"))
        items: Sequence[Object] = found["items"]
        return items

    def patch(self, kind: str, name: str, namespace: str, patch: Mapping[str, Any], *flags: str) -> None:
        self.run("patch", kind, name, *_in(namespace), "--type=merge", "-p", json.dumps(patch), *flags)

    def delete(self, kind: str, name: str, namespace: str = "", *flags: str, wait: bool = False) -> None:
        self.run("delete", kind, name, *_in(namespace), f"--wait={str(wait).lower()}", "--ignore-not-found", *flags)


def until(what: str, probe: Callable[[], T | None], *, timeout_seconds: float = PATIENCE_SECONDS) -> T:
    """Ask until the answer is truthy. Fails with the question and the last answer."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if INTERRUPTED.is_set():
            raise AssertionError(f"interrupted, so not waited for: {what}")
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds:g} s: {what} (last answer: {answer!r})")
        time.sleep(POLL_SECONDS)


def _in(namespace: str) -> list[str]:
    return ["-n", namespace] if namespace else []


def _without_credentials(kubeconfig: Path) -> Path:
    """A copy that knows the cluster and nobody's certificate: kubectl prefers a certificate to a token."""
    target = kubeconfig.with_name(f"{kubeconfig.name}.anonymous")
    raw = subprocess.run(
        ["kubectl", f"--kubeconfig={kubeconfig}", "config", "view", "--raw", "-o", "json"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
    ).stdout
    config: Object = json.loads(raw)
    config["users"] = [{"name": user["name"], "user": {}} for user in config["users"]]
    target.write_text(json.dumps(config))
    return target
