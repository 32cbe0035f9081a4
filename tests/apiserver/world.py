"""A namespace of the test API server, in which the operator's own writes are sent as it would send them."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from modelbackend_operator.actions import Action, CreateClaim, CreatePod
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import pod_name
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.patches import write_of
from modelbackend_operator.settings import Settings
from tests.apiserver.harness import Answer, ApiServer

Json = dict[str, Any]

NOW = datetime(2026, 5, 4, 12, 0, 0, 250_000, tzinfo=UTC)
SOURCE = {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}

node_ports = itertools.count(30200)
"""Claims and node ports are the whole cluster's, so nobody takes one twice."""


@dataclass(frozen=True)
class World:
    """One namespace; the operator's own objects lie in it too."""

    server: ApiServer
    namespace: str

    def send(self, action: Action) -> Answer:
        write = write_of(action, Settings(namespace=self.namespace), NOW)
        path = write.path + (f"?{urlencode(write.query)}" if write.query else "")
        return self.server.request(write.verb.method, path, write.body, content_type=write.verb.content_type)

    def do(self, action: Action) -> Json:
        """The object that came of it."""
        answer = self.send(action)
        assert answer.status in (200, 201), answer.message
        return answer.body

    def get(self, kind: Kind, ref: Ref) -> Answer:
        return self.server.get(kind.path(ref.namespace, ref.name))

    def post(self, kind: Kind, body: Mapping[str, Any]) -> Json:
        answer = self.server.post(kind.path(self.namespace), body)
        assert answer.status == 201, answer.message
        return answer.body

    def backend(self, name: str = "smollm2", **spec: Any) -> Backend:
        body = {
            "apiVersion": "modelbackend.dev/v1alpha1",
            "kind": "ModelBackend",
            "metadata": {"name": name},
            "spec": {"model": {"source": SOURCE}, **spec},
        }
        return backend_from(self.post(Kind.BACKEND, body), allow_host_path=False)

    def pod(self, backend: Backend, port: int | None = None) -> Pod:
        return pod_from(self.do(CreatePod(backend, 0, pod_name(backend, 0, ()), port)))

    def claim(self, backend: Backend) -> Claim:
        return claim_from(self.do(CreateClaim(backend, 0, next(node_ports))))
