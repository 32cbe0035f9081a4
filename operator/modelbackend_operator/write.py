"""One HTTP write to the API server, not sent yet.

Which verb, and why:
- Create (POST) for whatever must be made by one writer only: an apply would take over another's object.
- Merge (RFC 7386) for custom resources, strategic merge for pods, where it can name one finalizer, gate or condition
  and leaves those of others alone. Both carry uid and resourceVersion: an outdated one is answered with 409. (A failed
  `test` of a JSON patch would be answered with 422, like a request that makes no sense.)
- Apply for what this operator owns in whole: its part of a status, and the selector of a Service.
- Delete with uid and resourceVersion as preconditions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from modelbackend_operator.api import MANAGED_BY
from modelbackend_operator.kinds import Kind
from modelbackend_operator.model.ref import Ref

Raw = Mapping[str, Any]


class Verb(Enum):
    CREATE = ("POST", "application/json")
    MERGE = ("PATCH", "application/merge-patch+json")
    STRATEGIC_MERGE = ("PATCH", "application/strategic-merge-patch+json")
    APPLY = ("PATCH", "application/apply-patch+yaml")
    DELETE = ("DELETE", "application/json")

    def __init__(self, method: str, content_type: str) -> None:
        self.method = method
        self.content_type = content_type


@dataclass(frozen=True, slots=True)
class Write:
    """`name` is that of the object written, also of one that is to be created."""

    verb: Verb
    kind: Kind
    namespace: str
    name: str
    body: Raw
    subresource: str = ""

    @property
    def path(self) -> str:
        if self.verb is Verb.CREATE:
            return self.kind.path(self.namespace)
        return self.kind.path(self.namespace, self.name) + (f"/{self.subresource}" if self.subresource else "")

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        if self.verb is Verb.DELETE:
            return ()
        manager = ("fieldManager", MANAGED_BY)
        return (manager, ("force", "true")) if self.verb is Verb.APPLY else (manager,)


def conditional(verb: Verb, kind: Kind, ref: Ref, body: Raw, subresource: str = "") -> Write:
    """The body, valid only for this very object in this very version."""
    metadata = {**body.get("metadata", {}), "uid": ref.uid, "resourceVersion": ref.resource_version}
    if verb is Verb.APPLY:
        metadata |= {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    return Write(verb, kind, ref.namespace, ref.name, {**body, "metadata": metadata}, subresource)
