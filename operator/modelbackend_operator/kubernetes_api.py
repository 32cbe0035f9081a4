"""The API server over HTTP, on raw dictionaries: the only importer of `kubernetes`.

What it answers is a value. A read distinguishes "there is none" (a 404 that names the object, or a kind that is not
installed) from "not known" (everything else that is no success), which is `ClusterUnavailable`. A write ends in one of
the outcomes of `outcome.py`.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.discovery import Discovery
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Outcome, Unknown

JSON = "application/json"
PAGE_SIZE = 500
ALWAYS = 2**64
"""Later than every version."""
Query = Sequence[tuple[str, str]]


class KindRefusedError(ClusterUnavailable):
    """The API server does not serve the kind, or not to this operator."""


class NoCredentialsError(Exception):
    """There is no usable configuration to reach an API server; says which was tried."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`code` 0 means that none came; `body["message"]` then says why."""

    code: int
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def reason(self) -> str:
        """Of the Status object, for example AlreadyExists."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message") or f"HTTP {self.code}")

    def denies_existence(self) -> bool:
        """A 404 about one object. A 404 about the whole path (no CRD, a wrong proxy) proves nothing."""
        return self.code == 404 and self.reason == "NotFound" and bool(self.body.get("details", {}).get("name"))


@dataclass(frozen=True, slots=True)
class Listing:
    """A consistent LIST: everything that matched at this version; `ALWAYS` for a kind that is not installed."""

    items: tuple[Raw, ...]
    version: int

    @property
    def is_installed(self) -> bool:
        return self.version != ALWAYS


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the API server is and how this process authenticates to it, for whoever else must connect."""

    server: str
    verify_tls: bool
    ca_path: str | None
    certificate_path: str | None
    private_key_path: str | None
    authorization: str | None
    """The header's value, for example `Bearer ...`."""


UNDECLARED = "field not declared in schema"
"""Of an apply that names a field which the installed kind does not have; its code is 500, its reason none."""
NEWER = "this operator is newer than the kinds in this cluster: kubectl apply --server-side -f crds/ of its version"


def outcome_of(answer: Answer) -> Outcome:
    """What a write came to. Nothing else than `UNDECLARED` is read from message texts: to repeat it is of no use."""
    if answer.ok:
        return Applied()
    match answer.code:
        case 404:
            return Gone() if answer.denies_existence() else Unknown(answer.message)
        case 409:
            return Exists() if answer.reason == "AlreadyExists" else Conflict()
        case 400 | 403 | 405 | 413 | 415 | 422:
            return Denied(answer.message)
        case 500 if UNDECLARED in answer.message:
            return Denied(f"{answer.message}; {NEWER}")
        case _:
            return Unknown(answer.message)


class KubernetesApi:
    """One connection pool to one API server. `observe(verb, resource, code, seconds)` hears of every call."""

    def __init__(
        self,
        client: Any,
        *,
        timeout_seconds: float,
        observe: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self._client = client
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._observe = observe
        self._discovery = Discovery(partial(self.call, "GET"))

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None,
        *,
        timeout_seconds: float,
        observe: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> "KubernetesApi":
        """By this kubeconfig; by the pod's service account when None."""
        configuration = kubernetes_client.Configuration()
        try:
            if kubeconfig is None:
                kubernetes_config.load_incluster_config(client_configuration=configuration)
            else:
                await kubernetes_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        except (kubernetes_config.ConfigException, OSError) as error:
            where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account (no --kubeconfig given)"
            raise NoCredentialsError(f"no way to the API server by {where}: {error}") from error
        client = kubernetes_client.ApiClient(configuration)
        client.user_agent = "modelbackend-operator"
        return cls(client, timeout_seconds=timeout_seconds, observe=observe)

    async def aclose(self) -> None:
        await self._client.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """The object as it is now (a quorum read), or None when the API server says that there is none."""
        path = kind.path(namespace, name)
        answer = await self.call("GET", path)
        if answer.ok:
            return answer.body
        if answer.denies_existence() or (answer.code == 404 and await self._discovery.denies(kind)):
            return None
        raise ClusterUnavailable(f"GET {path}: {answer.message}")

    async def list(self, kind: Kind, namespace: str = "", *, selector: str | None = None) -> Listing:
        """Every object of a kind, narrowed by the kind's own label selector unless another is given.

        Raises KindRefusedError, or another ClusterUnavailable.
        """
        selector = kind.selector if selector is None else selector
        items: list[Raw] = []
        page, version = "", 0
        while True:
            query = [("limit", str(PAGE_SIZE)), ("labelSelector", selector), ("continue", page)]
            answer = await self.call("GET", kind.path(namespace), query=[(k, v) for k, v in query if v])
            if answer.code == 404 and await self._discovery.denies(kind):
                return Listing((), ALWAYS)
            if not answer.ok:
                hint = "; is the kind installed? (kubectl apply -f crds/)" if answer.code == 404 else ""
                refused = KindRefusedError if answer.code in (403, 404) else ClusterUnavailable
                raise refused(f"LIST {kind.path(namespace)}: {answer.message}{hint}")
            self._discovery.seen(kind)
            items += answer.body["items"]
            version = int(answer.body["metadata"]["resourceVersion"])
            page = answer.body["metadata"].get("continue", "")
            if not page:
                return Listing(tuple(items), version)

    async def serves(self, kind: Kind) -> bool:
        """Whether the kind is installed, by discovery. Raises ClusterUnavailable."""
        return await self._discovery.serves(kind)

    # -- any call -----------------------------------------------------------------------------------------------------

    async def call(
        self,
        verb: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """One HTTP call. Never raises for what the network or the API server does."""
        started = time.monotonic()
        answer = await self._exchange(verb, path, query, body, content_type)
        self._observe(verb, resource_of(path), answer.code, time.monotonic() - started)
        return answer

    async def _exchange(
        self, verb: str, path: str, query: Query, body: Mapping[str, Any] | None, content_type: str
    ) -> Answer:
        try:
            request = await self._client.param_serialize(
                verb,
                path,
                query_params=list(query),
                header_params={"Accept": JSON, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(*request, _request_timeout=self._timeout)
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Answer(0, {"message": f"no answer to {verb} {path}: {error!r}"})
        return Answer(response.status, _parse(text))

    async def websocket(self, path: str, *, query: Query, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open a streaming subresource, by the pool of an earlier call. Raises aiohttp.ClientError or TimeoutError."""
        _, url, headers, *_ = await self._client.param_serialize(
            "GET", path, query_params=list(query), header_params={}, auth_settings=["BearerToken"]
        )
        pool: aiohttp.ClientSession = self._client.rest_client.pool_manager
        return await pool.ws_connect(url, headers=headers, protocols=[protocol])

    async def credentials(self) -> Credentials:
        configuration = self._client.configuration
        return Credentials(
            server=configuration.host,
            verify_tls=configuration.verify_ssl,
            ca_path=configuration.ssl_ca_cert,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            authorization=await configuration.get_api_key_with_prefix("BearerToken", alias="authorization"),
        )


def resource_of(path: str) -> str:
    """`pods`, `pods/status` and so on, for metrics: a path without the names in it."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join(parts[::2])


def _parse(text: bytes) -> Mapping[str, Any]:
    """A body that is no JSON object is not the API server's own; it is kept as a message for people."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    return {"message": text[:200].decode(errors="replace").strip()}
