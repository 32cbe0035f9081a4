"""The judge of the end-to-end tests, shown worlds in which a promise is broken, and worlds that only look so."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from e2e.history import Version
from e2e.port_watchdog import Sighting
from e2e.story import story
from e2e.verdict import Breach, judge
from modelbackend_operator.kinds import Kind

Raw = dict[str, Any]
PORT = 30007
GRACE_SECONDS = 615
FINALIZERS = {"finalizers": ["modelbackend.dev/termination"]}
ENDED = {"name": "server", "containerID": "c", "state": {"terminated": {"exitCode": 0}}}
RUNNING = {"name": "server", "containerID": "c", "state": {"running": {}}}
NOW = "2026-05-04T12:00:00Z"
MARKS = {"app.kubernetes.io/managed-by": "modelbackend-operator", "modelbackend.dev/ordinal": "0"}
STOP = '{"since":"2026-05-04T12:00:00Z","deadline":"2026-05-04T12:00:30Z","reason":"BackendDeleted","epoch":"lease/0"}'


class Seen:
    """A history in the making: one second and one number between two versions."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self._numbers = count(1)

    @property
    def now(self) -> float:
        return float(len(self.versions))

    def add(self, kind: Kind, raw: Raw, *, deleted: bool = False) -> "Seen":
        numbered = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(next(self._numbers))}}
        self.versions.append(Version(self.now + 1, kind, numbered, deleted))
        return self

    def breaches(self, *sightings: Sighting, by_hand: tuple[str, ...] = ()) -> set[str]:
        return {breach.sentence.partition(":")[0] for breach in judge(self.versions, sightings, by_hand)}


def a_backend(uid: str = "b", *, model: str = "m", pod: str = "p", **metadata: Any) -> Raw:
    instances = [{"ordinal": 0, "phase": "Pending", "pod": {"name": "x-0", "uid": pod}}]
    return {
        "metadata": {"name": f"backend-{uid}", "namespace": "models", "uid": uid, **FINALIZERS, **metadata},
        "spec": {"model": {"name": model, "source": {"persistentVolumeClaim": {"claimName": "w", "path": "m.gguf"}}}},
        "status": {"instances": instances},
    }


def a_pod(
    uid: str = "p", backend: str = "b", *, status: Raw | None = None, gated: bool = False, **metadata: Any
) -> Raw:
    owner = {"apiVersion": "modelbackend.dev/v1alpha1", "kind": "ModelBackend", "uid": backend, "controller": True}
    labels = {**MARKS, "modelbackend.dev/backend-uid": backend}
    named = {"name": f"x-{uid}-0", "namespace": "models", "uid": uid, "ownerReferences": [owner], "labels": labels}
    gates = {"schedulingGates": [{"name": "modelbackend.dev/claim"}]} if gated else {"nodeName": "node-1"}
    return {
        "metadata": {**named, **FINALIZERS, "creationTimestamp": NOW, **metadata},
        "spec": {**gates, "terminationGracePeriodSeconds": GRACE_SECONDS},
        "status": status or {"phase": "Running", "containerStatuses": [RUNNING]},
    }


def an_ended_pod(uid: str = "p", **metadata: Any) -> Raw:
    ended = {"phase": "Succeeded", "containerStatuses": [ENDED]}
    return a_pod(uid, status=ended, deletionTimestamp=NOW, deletionGracePeriodSeconds=0, **metadata)


def a_claim(phase: str = "Bound", pod: str = "p", backend: str = "b") -> Raw:
    return {
        "metadata": {"name": f"port-{PORT}", "uid": "claim", **FINALIZERS},
        "spec": {"port": PORT, "exposure": "NodePort", "ordinal": 0, "backend": _of(backend)},
        "status": {"phase": phase, "pod": {"name": "x", "uid": pod}, "since": NOW},
    }


def _of(backend: str) -> Mapping[str, str]:
    return {"namespace": "models", "name": f"backend-{backend}", "uid": backend}


def a_life() -> Seen:
    """Claimed, let through, running; its numbers are 1 to 4."""
    seen = Seen().add(Kind.BACKEND, a_backend()).add(Kind.POD, a_pod(gated=True))
    return seen.add(Kind.CLAIM, a_claim()).add(Kind.POD, a_pod())


def process(pod: str = "p", first_at: float = 4.5, last_at: float = 5.0, backend: str = "b") -> Sighting:
    return Sighting(first_at, last_at, pod, backend, None, "process 7")


def answer(pod: str, at: float) -> Sighting:
    return Sighting(at, at, pod, "b", PORT, f"port {PORT}")


def an_end(seen: Seen) -> Seen:
    return (
        seen.add(Kind.POD, an_ended_pod())
        .add(Kind.CLAIM, a_claim("Cooling"))
        .add(Kind.POD, an_ended_pod(), deleted=True)
        .add(Kind.CLAIM, a_claim("Cooling"), deleted=True)
        .add(Kind.BACKEND, a_backend(deletionTimestamp=NOW), deleted=True)
    )


def test_a_whole_life_breaks_nothing() -> None:
    assert an_end(a_life()).breaches(process(), answer("p", 4.8)) == set()


def test_a_process_that_outlives_the_release_of_its_port_is_noticed() -> None:
    seen = an_end(a_life())
    assert seen.breaches(process(last_at=6.5)) == {"PortWithheld"}
    assert seen.breaches(process(), answer("p", 6.5)) == {"PortWithheld"}


def test_two_processes_behind_one_port_are_noticed() -> None:
    seen = a_life().add(Kind.CLAIM, a_claim(pod="q")).add(Kind.CLAIM, a_claim(pod="q"))
    assert "PortExclusive" in seen.breaches(process(last_at=6), process("q", first_at=5.5, last_at=6))


def test_a_stranger_who_answers_on_a_port_is_noticed() -> None:
    assert a_life().breaches(answer("stranger", 4.5)) == {"PortWithheld"}


def test_a_process_that_no_claim_ever_named_is_noticed_once_its_claim_would_be_known() -> None:
    seen = Seen().add(Kind.BACKEND, a_backend())
    assert seen.breaches(process(first_at=1, last_at=2)) == set()
    assert seen.breaches(process(first_at=1, last_at=7)) == {"GateBeforeClaim"}


def test_a_claim_whose_watch_lags_behind_its_process_is_no_breach() -> None:
    seen = Seen().add(Kind.BACKEND, a_backend()).add(Kind.POD, a_pod(gated=True))
    assert seen.add(Kind.CLAIM, a_claim()).add(Kind.POD, a_pod()).breaches(process(first_at=0.5)) == set()


def test_a_gate_that_opens_before_a_claim_names_the_pod_is_noticed() -> None:
    seen = Seen().add(Kind.BACKEND, a_backend()).add(Kind.POD, a_pod(gated=True)).add(Kind.POD, a_pod())
    assert seen.breaches() == {"GateBeforeClaim"}
    assert seen.breaches(by_hand=("p",)) == set()


def test_a_release_without_proof_is_noticed() -> None:
    assert a_life().add(Kind.CLAIM, a_claim("Cooling")).breaches() == {"EvidenceNotAbsence"}
    assert a_life().add(Kind.CLAIM, a_claim(), deleted=True).breaches() == {"EvidenceNotAbsence"}
    assert a_life().add(Kind.POD, a_pod(finalizers=[])).breaches() == {"EvidenceNotAbsence"}


def test_a_backend_that_goes_before_its_pods_is_noticed() -> None:
    gone = a_backend(deletionTimestamp=NOW)
    assert a_life().add(Kind.BACKEND, gone, deleted=True).breaches() == {"FinalizerLast"}


@pytest.mark.parametrize(
    ("backend_is_gone", "grace_seconds", "noticed"),
    [
        pytest.param(True, GRACE_SECONDS, set(), id="garbage collection of what a torn out backend leaves"),
        pytest.param(True, 30, {"NeverAdvertiseDying"}, id="of a backend that is gone, with a grace of the operator's"),
        pytest.param(False, GRACE_SECONDS, {"NeverAdvertiseDying"}, id="of a backend that is there"),
    ],
)
def test_a_pod_that_is_deleted_before_it_is_withdrawn_is_noticed_unless_its_owner_was_torn_out(
    backend_is_gone: bool, grace_seconds: int, noticed: set[str]
) -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [RUNNING],
        "conditions": [{"type": "modelbackend.dev/serving", "status": "True"}],
    }
    stopping: Raw = {"annotations": {"modelbackend.dev/stop": STOP}, "status": status}
    seen = a_life().add(Kind.POD, a_pod(**stopping))
    if backend_is_gone:
        seen.add(Kind.BACKEND, a_backend(deletionTimestamp=NOW, finalizers=[]), deleted=True)
    seen.add(Kind.POD, a_pod(**stopping, deletionTimestamp=NOW, deletionGracePeriodSeconds=grace_seconds))
    assert seen.breaches(process(), by_hand=("b",)) == noticed


def test_two_pods_of_one_instance_are_noticed() -> None:
    assert "NoDoublePod" in a_life().add(Kind.POD, a_pod("q")).breaches()


def test_two_shutdowns_of_one_model_are_noticed() -> None:
    stopping: dict[str, Any] = {"annotations": {"modelbackend.dev/stop": STOP}}
    seen = a_life().add(Kind.BACKEND, a_backend("b2", pod="q")).add(Kind.POD, a_pod("q", "b2"))
    seen.add(Kind.POD, a_pod(**stopping))
    assert seen.breaches() == set()
    assert seen.add(Kind.POD, a_pod("q", "b2", **stopping)).breaches() == {"OneShutdownPerModel"}


@pytest.mark.parametrize(("seconds_between", "expected"), [(1, set[str]()), (5, {"NeverAdvertiseDying"})])
def test_an_address_told_of_a_pod_that_ends_is_noticed_unless_its_end_was_news(
    seconds_between: int, expected: set[str]
) -> None:
    gates = ("Ready", "ContainersReady", "modelbackend.dev/serving")
    conditions = [{"type": kind, "status": "True"} for kind in gates]
    serving = {"phase": "Running", "containerStatuses": [RUNNING], "conditions": conditions}
    exposed = {"modelbackend.dev/serving": "true", "modelbackend.dev/pod-uid": "p"}
    labels = {**MARKS, **exposed, "modelbackend.dev/backend-uid": "b"}
    deleted: dict[str, Any] = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}
    seen = a_life().add(Kind.POD, a_pod(status=serving, labels=labels))
    for _ in range(1 + seconds_between):
        seen.add(Kind.POD, a_pod(status=serving, labels=labels, **deleted))
    advertised = a_backend()
    advertised["status"]["endpoints"] = [{"ordinal": 0, "role": "Grpc", "podUID": "p", "address": "10.0.0.1:30007"}]
    assert seen.add(Kind.BACKEND, advertised).breaches() == expected


def test_the_story_tells_what_changed_and_what_broke() -> None:
    seen = a_life()
    told = story(seen.versions, (process(),), (Breach(4.0, "PortWithheld: so it is"),), since=2)
    assert "   1.00 s  claim port-30007 (claim) is there" in told
    assert "BREACH PortWithheld: so it is" in told
    assert "process 7: pod p of backend b was last seen" in told
    assert "is there" in told
