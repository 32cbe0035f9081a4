"""ModelBackends as a GitOps tool meets them: of every golden story after every write, and the rows on conditions."""

import json
from collections.abc import Iterator
from typing import Any

from modelbackend_operator.api import API_VERSION, MODELBACKEND_KIND
from modelbackend_operator.conditions import publish
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.outcome import Outcome
from modelbackend_operator.timestamps import rfc3339
from tests.crd_files import schema_of
from tests.sim.golden import STORIES, lived
from tests.sim.simulation import Simulation
from tests.unit.builders import NOW
from tests.unit.test_conditions import CONDITIONS

Object = dict[str, Any]


class Recording(Simulation):
    """Keeps every version of every backend."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: list[Object] = []

    def _write(self, *arguments: Any) -> Outcome:
        outcome = super()._write(*arguments)
        self.seen += [as_object(backend) for backend in self.world.state.all(Backend)]
        return outcome


def as_object(backend: Backend) -> Object:
    metadata: Object = {"name": backend.ref.name, "namespace": backend.ref.namespace, "generation": backend.generation}
    if backend.deleting_since is not None:
        metadata["deletionTimestamp"] = rfc3339(backend.deleting_since)
    status = dict(backend.status) or schema_of("modelbackends")["properties"]["status"]["default"]
    return {"apiVersion": API_VERSION, "kind": MODELBACKEND_KIND, "metadata": metadata, "status": status}


def of_conditions() -> Iterator[Object]:
    for world, waits, _ in CONDITIONS.values():
        written = publish(world, waits, NOW)
        raw = as_object(written.backend)
        yield {**raw, "status": dict(written.status)}


def all_recorded() -> list[Object]:
    """No two alike."""
    found = [raw for story in STORIES for raw in lived(story, Recording).seen] + list(of_conditions())
    return [json.loads(text) for text in dict.fromkeys(json.dumps(raw, sort_keys=True) for raw in found)]


def condition(raw: Object, kind: str) -> Object:
    """Empty when it is absent."""
    return next((one for one in raw["status"].get("conditions", ()) if one["type"] == kind), {})
