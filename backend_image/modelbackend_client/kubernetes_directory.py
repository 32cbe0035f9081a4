"""Follows one ModelBackend's status in the cluster; needs the package kubernetes.

Credentials are those of kubectl (KUBECONFIG or ~/.kube/config), or of the pod that this runs in. They need get, list
and watch on the one ModelBackend.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubernetes import client, config, watch

from .routing import Endpoint, View

GROUP, VERSION, PLURAL = "modelbackend.dev", "v1alpha1", "modelbackends"
WATCH_SECONDS = 240
RETRY_SECONDS = 1.0


class KubernetesDirectory:
    """A thread of its own reads the status and tells its listeners; the last view stays when the API is away."""

    def __init__(self, namespace: str, name: str, uid: str | None = None, *, api: Any = None) -> None:
        """`uid`: follow only the ModelBackend with this metadata.uid, not one that is made anew under its name."""
        self._namespace, self._name, self._uid = namespace, name, uid
        self._view = View(why_none=f"ModelBackend {namespace}/{name} has not been read yet")
        self._listeners: list[Callable[[], None]] = []
        self._closed = threading.Event()
        self._watch: Any = None
        self._api = api or client.CustomObjectsApi(_api_client())
        self._thread = threading.Thread(target=self._follow, name=f"modelbackend {namespace}/{name}", daemon=True)
        self._thread.start()

    @property
    def view(self) -> View:
        return self._view

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        self._closed.set()
        if self._watch is not None:
            self._watch.stop()

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                self._read()
            except Exception as error:  # the API is away, or refuses: the last known instances may well be there
                self._tell(View(self._view.endpoints, why_none=f"the cluster's API does not answer: {error}"))
                self._closed.wait(RETRY_SECONDS)

    def _read(self) -> None:
        arguments = (GROUP, VERSION, self._namespace, PLURAL)
        selector = f"metadata.name={self._name}"
        found = self._api.list_namespaced_custom_object(*arguments, field_selector=selector)
        items = found.get("items") or [None]
        self._tell(self._view_of(items[0]))
        self._watch = watch.Watch()
        for event in self._watch.stream(
            self._api.list_namespaced_custom_object,
            *arguments,
            field_selector=selector,
            resource_version=found["metadata"]["resourceVersion"],
            timeout_seconds=WATCH_SECONDS,
        ):
            if self._closed.is_set():
                return
            self._tell(self._view_of(None if event["type"] == "DELETED" else event["object"]))

    def _view_of(self, backend: Mapping[str, Any] | None) -> View:
        return view_of(backend, f"{self._namespace}/{self._name}", self._uid)

    def _tell(self, view: View) -> None:
        if view == self._view:
            return
        self._view = view
        for listener in self._listeners:
            listener()


def view_of(backend: Mapping[str, Any] | None, name: str, uid: str | None = None) -> View:
    """What a ModelBackend's status says, with the identity to be sent along. Nothing here trusts its shape."""
    if backend is None:
        return View(why_none=f"there is no ModelBackend {name}")
    found = str(backend["metadata"]["uid"])
    if uid is not None and uid != found:
        return View(why_none=f"ModelBackend {name} has the uid {found}, not {uid}")
    status = backend.get("status") or {}
    endpoints = tuple(
        Endpoint(entry["address"], found, entry.get("podUID"))
        for entry in status.get("endpoints") or ()
        if entry.get("role") == "Grpc" and entry.get("address")
    )
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready: Mapping[str, Any] = next((entry for entry in conditions if entry.get("type") == "Ready"), {})
    words = f"{ready.get('reason', '')}: {ready.get('message', '')}".strip(": ")
    return View(endpoints, why_none=f"ModelBackend {name} has no ready instance{f' ({words})' if words else ''}")


def _api_client() -> Any:
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    return client.ApiClient()
