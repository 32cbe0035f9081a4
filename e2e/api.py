"""The API server over plain HTTP on loopback: what is asked often need not start a program each time."""

import http.client
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

WATCH_SECONDS = 3000
GROUPS = {
    "/api/v1": (
        *("pods", "services", "secrets", "nodes", "namespaces", "events"),
        *("persistentvolumes", "persistentvolumeclaims", "resourcequotas"),
    ),
    "/apis/apps/v1": ("daemonsets", "deployments"),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/modelbackend.dev/v1alpha1": ("modelbackends", "portclaims"),
}
PATHS = {name: (group, plural) for group, kinds in GROUPS.items() for plural in kinds for name in (plural, plural[:-1])}
"""By the singular and by the plural name."""


class Api:
    """By whatever credentials the proxy has."""

    def __init__(self, port: int) -> None:
        self.port = port

    def find(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """None when there is no such object."""
        status, body = self._get(f"{_path(kind, namespace)}/{name}")
        if status == http.client.NOT_FOUND:
            return None
        return _object(body, status)

    def list(self, kind: str, namespace: str = "", **selectors: str) -> Sequence[dict[str, Any]]:
        """In every namespace if none is named. `selectors`: labelSelector, fieldSelector."""
        query = "&".join(f"{key}={quote(value)}" for key, value in selectors.items() if value)
        status, body = self._get(f"{_path(kind, namespace)}?{query}")
        items: Sequence[dict[str, Any]] = _object(body, status)["items"]
        return items

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(path))
        return found

    def text(self, path: str) -> str:
        status, body = self._get(path)
        if status != http.client.OK:
            raise OSError(f"GET {path}: HTTP {status} {body[:200]}")
        return body

    def lines(self, path: str) -> Iterator[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCH_SECONDS + 60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise OSError(f"GET {path}: HTTP {response.status}")
            yield from response
        finally:
            connection.close()

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def _path(kind: str, namespace: str) -> str:
    group, plural = PATHS[kind]
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


def _object(body: str, status: int) -> dict[str, Any]:
    assert status == http.client.OK, f"HTTP {status}: {body[:300]}"
    found: dict[str, Any] = json.loads(body)
    return found


@contextmanager
def api_behind(proxy: Sequence[str]) -> Iterator[Api]:
    """By a command `kubectl proxy`, which ends with the block."""
    process = subprocess.Popen(
        [*proxy, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for who uses it
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline()  # Starting to serve on 127.0.0.1:PORT
        assert ":" in words, f"kubectl proxy does not serve: {words!r}"
        yield Api(int(words.rsplit(":", 1)[1]))
    finally:
        process.kill()
        process.wait()
