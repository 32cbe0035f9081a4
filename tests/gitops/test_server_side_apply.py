"""Others who apply beside the operator: who owns which field, what a conflict says, and that nothing is lost by it."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.conftest import api_server, namespace
from tests.apiserver.harness import Answer, ApiServer, await_condition
from tests.apiserver.test_process import GROUP, PATIENCE_SECONDS, account, claims_of, operator, pods

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("running_operator")]
__all__ = ["account", "api_server", "namespace"]

APPLY = "application/apply-patch+yaml"
FINALIZER = "modelbackend.dev/termination"
OPERATOR = "modelbackend-operator"
QUIET_SECONDS = 3
Json = dict[str, Any]


@pytest.fixture(scope="module")
def running_operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with operator(account, tmp_path_factory.mktemp("operator") / "log", reuse_delay_seconds="0"):
        yield


@dataclass(frozen=True)
class Shared:
    """One ModelBackend that several write to."""

    server: ApiServer
    namespace: str
    path: str
    folder: Path

    def manifest(self, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Json:
        source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
        return {
            "apiVersion": "modelbackend.dev/v1alpha1",
            "kind": "ModelBackend",
            "metadata": {"name": "smollm2", "namespace": self.namespace, **(metadata or {})},
            "spec": {"model": {"source": source}, **spec},
        }

    def applied(self, manager: str, manifest: Json, *, force: bool = False, subresource: str = "") -> Answer:
        """As Flux and Argo CD do, by the API server's own call."""
        query = f"{subresource}?fieldManager={manager}&force={str(force).lower()}"
        return self.server.request("PATCH", self.path + query, manifest, content_type=APPLY)

    def kubectl(self, manifest: Json, *flags: str) -> tuple[int, str]:
        """As a person types it; exit code and all that is printed."""
        file = self.folder / "manifest.json"
        file.write_text(json.dumps(manifest))
        command = (str(self.server.bin_folder / "kubectl"), f"--kubeconfig={self.server.kubeconfig}", "apply")
        done = subprocess.run([*command, *flags, "-f", str(file)], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    @property
    def live(self) -> Json:
        return self.server.get(self.path).body

    @property
    def pod_uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in pods(self.server, self.namespace)}

    def until_open(self, count: int = 1) -> None:
        """The operator has seen the present spec, and so many pods may be scheduled."""

        def is_open() -> bool:
            live, found = self.live, pods(self.server, self.namespace)
            seen = live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"]
            return seen and len(found) == count and not any(pod["spec"].get("schedulingGates") for pod in found)

        await_condition(f"{count} open gates", is_open, PATIENCE_SECONDS)

    def until_quiet(self) -> None:
        def is_quiet() -> bool:
            before = self.live["metadata"]["resourceVersion"]
            time.sleep(QUIET_SECONDS)
            return bool(self.live["metadata"]["resourceVersion"] == before)

        await_condition("quiet", is_quiet, PATIENCE_SECONDS)


@pytest.fixture
def shared(api_server: ApiServer, namespace: str, tmp_path: Path) -> Shared:
    """Applied by `gitops`, and told to run by the operator."""
    made = Shared(api_server, namespace, f"{GROUP}/namespaces/{namespace}/modelbackends/smollm2", tmp_path)
    assert made.applied("gitops", made.manifest(replicas=1)).status == 201
    made.until_open()
    return made


def owners(raw: Json, *path: str) -> set[str]:
    """The managers of one field."""
    found = set()
    for entry in raw["metadata"]["managedFields"]:
        below = entry["fieldsV1"]
        for step in path:
            below = below.get(step) if isinstance(below, dict) else None
        if below is not None:
            found.add(entry["manager"])
    return found


def test_the_operator_owns_status_and_its_finalizer_and_nothing_else(shared: Shared) -> None:
    live = shared.live
    assert owners(live, "f:spec") == {"gitops"}
    assert owners(live, "f:status") == {OPERATOR}
    assert owners(live, "f:metadata") == {OPERATOR}
    assert owners(live, "f:metadata", "f:finalizers", f'v:"{FINALIZER}"') == {OPERATOR}


def test_a_person_who_applies_another_value_is_told_who_owns_it_and_nothing_changes(shared: Shared) -> None:
    before = shared.live["metadata"]["generation"]
    code, said = shared.kubectl(shared.manifest(replicas=2), "--server-side")
    assert code == 1
    assert 'conflict with "gitops"' in said
    assert ".spec.replicas" in said
    assert (shared.live["spec"]["replicas"], shared.live["metadata"]["generation"]) == (1, before)


def test_a_person_who_insists_is_followed_and_the_tool_is_told_then(shared: Shared) -> None:
    code, said = shared.kubectl(shared.manifest(replicas=2), "--server-side", "--force-conflicts")
    assert code == 0, said
    (first,) = shared.pod_uids
    shared.until_open(2)
    assert first in shared.pod_uids, "the instance that was there goes on"
    refused = shared.applied("gitops", shared.manifest(replicas=1))
    assert (refused.status, 'conflict with "kubectl"' in refused.message) == (409, True)
    assert shared.applied("gitops", shared.manifest(replicas=1), force=True).status == 200
    shared.until_open(1)
    assert shared.pod_uids == {first}


def test_from_client_side_to_server_side_apply_there_is_no_conflict_and_no_restart(shared: Shared) -> None:
    before = shared.pod_uids
    for flags in ((), ("--server-side",)):
        code, said = shared.kubectl(shared.manifest(replicas=1), *flags)
        assert code == 0, said
    shared.until_open()
    assert shared.pod_uids == before
    assert FINALIZER in shared.live["metadata"]["finalizers"]


def test_a_field_that_leaves_the_manifest_leaves_the_object_and_what_others_wrote_stays(shared: Shared) -> None:
    order = "modelbackend.dev/extend"
    assert shared.server.merge(shared.path, {"metadata": {"annotations": {order: "no-such-pod 60"}}}).status == 200
    assert (
        shared.applied("gitops", shared.manifest({"labels": {"team": "a"}}, nodeSelector={"disk": "ssd"})).status == 200
    )
    assert shared.applied("gitops", shared.manifest()).status == 200
    live = shared.live
    assert "nodeSelector" not in live["spec"]
    assert "labels" not in live["metadata"]
    assert live["metadata"]["annotations"] == {order: "no-such-pod 60"}
    assert live["metadata"]["finalizers"] == [FINALIZER]
    assert live["status"]["instances"], "the status is the operator's"


def test_a_manifest_that_was_exported_with_status_and_finalizer_gives_neither_away(shared: Shared) -> None:
    """As `kubectl get -o yaml` prints it, kept in Git by somebody in a hurry."""
    exported = {**shared.manifest({"finalizers": [FINALIZER]}, replicas=1), "status": {"readyReplicas": 7}}
    assert shared.applied("gitops", exported).status == 200
    assert owners(shared.live, "f:status") == {OPERATOR}
    assert shared.live["status"]["readyReplicas"] == 0
    assert shared.applied("gitops", shared.manifest(replicas=1)).status == 200
    assert shared.live["metadata"]["finalizers"] == [FINALIZER], "the operator owns it besides"


def test_a_finalizer_that_only_the_manifest_owned_is_put_back_when_it_leaves_the_manifest(shared: Shared) -> None:
    """As after a restore from a backup: the operator found it there, and so never became its owner."""
    assert shared.server.merge(shared.path, {"metadata": {"finalizers": None}}).status == 200
    held = shared.applied("gitops", shared.manifest({"finalizers": [FINALIZER]}, replicas=1), force=True)
    assert held.status == 200
    assert shared.applied("gitops", shared.manifest(replicas=1)).status == 200
    await_condition("the finalizer", lambda: shared.live["metadata"].get("finalizers") == [FINALIZER], PATIENCE_SECONDS)


def test_a_stranger_in_the_status_is_told_whose_it_is_and_is_put_right_when_he_insists(shared: Shared) -> None:
    strange = {**shared.manifest(), "status": {"replicas": 7}}
    refused = shared.applied("stranger", strange, subresource="/status")
    assert (refused.status, f'conflict with "{OPERATOR}"' in refused.message) == (409, True), refused.message
    assert ".status.replicas" in refused.message
    assert shared.live["status"]["replicas"] == 1
    assert shared.applied("stranger", strange, subresource="/status", force=True).status == 200
    await_condition("the operator's word", lambda: shared.live["status"]["replicas"] == 1, PATIENCE_SECONDS)


def test_a_condition_of_somebody_else_stays_and_starts_no_quarrel(shared: Shared) -> None:
    condition = {
        "type": "policy.example/Audited",
        "status": "True",
        "reason": "Seen",
        "message": "",
        "lastTransitionTime": "2026-05-04T12:00:00Z",
    }
    foreign = {**shared.manifest(), "status": {"conditions": [condition]}}
    assert shared.applied("auditor", foreign, subresource="/status").status == 200
    shared.until_quiet()
    assert condition in shared.live["status"]["conditions"]
    assert shared.applied("gitops", shared.manifest(replicas=2)).status == 200
    shared.until_open(2)
    assert condition in shared.live["status"]["conditions"], "also after the operator's next words"


def test_an_autoscaler_and_a_manifest_that_names_no_replicas_do_not_quarrel(shared: Shared) -> None:
    assert shared.applied("gitops", shared.manifest()).status == 200
    assert shared.server.merge(f"{shared.path}/scale", {"spec": {"replicas": 2}}).status == 200
    shared.until_open(2)
    running = shared.pod_uids
    assert shared.applied("gitops", shared.manifest()).status == 200
    shared.until_open(2)
    assert shared.pod_uids == running


def test_two_who_apply_while_it_is_deleted_change_nothing_of_its_end(shared: Shared) -> None:
    hold = "example.com/hold"
    assert shared.server.merge(shared.path, {"metadata": {"finalizers": [FINALIZER, hold]}}).status == 200
    assert shared.server.request("DELETE", shared.path).status == 200
    assert shared.applied("gitops", shared.manifest(replicas=3), force=True).status == 200
    assert shared.kubectl(shared.manifest(replicas=2), "--server-side", "--force-conflicts")[0] == 0
    await_condition("its end", lambda: shared.live["metadata"]["finalizers"] == [hold], PATIENCE_SECONDS)
    assert not shared.pod_uids
    await_condition("its port", lambda: not claims_of(shared.server, shared.namespace), PATIENCE_SECONDS)
    assert shared.applied("gitops", shared.manifest(replicas=1), force=True).status == 200
    shared.until_quiet()
    assert not shared.pod_uids, "what has ended stays so"
