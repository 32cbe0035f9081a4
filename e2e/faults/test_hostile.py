"""Clumsy and hostile hands: whatever they take away or write, the promises hold and service comes back."""

import json
from collections.abc import Callable, Iterator

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, UID_LABEL, Backend, claims_of, generate, port_of, stream
from e2e.conftest import OPERATOR_NAMESPACE, ROOT
from e2e.faults.conftest import Watchdog
from e2e.faults.test_deletes import serving_pods
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]
CHILDREN = "pods,services,secrets"


def test_everything_of_a_backend_is_deleted_at_once_again_and_again(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    one = backend("ransacked")
    uid = one.uid
    for _ in range(3):
        one.until_pod()
        kubectl.run("delete", CHILDREN, "-n", one.namespace, "-l", f"{UID_LABEL}={uid}", "--wait=false")
        for claim in claims_of(kubectl, uid):
            kubectl.delete("portclaim", claim["metadata"]["name"])
    assert generate(one.until_ready(), "Hello", "--max-tokens", "2") is not None
    assert watchdog.together(uid) == []


def test_a_claim_that_is_torn_out_of_the_ledger_is_made_again_or_the_instance_moves(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    """For the moment in between, the port of a live process is nobody's: that is the hand's doing."""
    one = backend("robbed")
    name, uid = f"port-{port_of(one.until_ready())}", one.uid
    watchdog.by_hand.add(name)
    watchdog.expected.add("PortWithheld")
    kubectl.delete("portclaim", name)
    kubectl.patch("portclaim", name, "", {"metadata": {"finalizers": None}})
    named = until("a claim names its pod", lambda: [c for c in claims_of(kubectl, uid) if _holds(c, one)])
    assert port_of(one.until_ready()) == named[0]["spec"]["port"]
    assert watchdog.together(uid) == []


def _holds(claim: Object, one: Backend) -> bool:
    pods = [pod["metadata"]["uid"] for pod in one.pods() if "deletionTimestamp" not in pod["metadata"]]
    return claim.get("status", {}).get("pod", {}).get("uid") in pods and claim["status"]["phase"] == "Bound"


def test_a_backend_torn_out_past_its_finalizer_leaves_nothing_that_runs(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    one = backend("orphaned")
    one.until_ready()
    uid = one.uid
    watchdog.by_hand.add(uid)
    one.delete()
    kubectl.patch("modelbackend", one.name, one.namespace, {"metadata": {"finalizers": None}})
    one.until_gone()
    until("its process has ended", lambda: not serving_pods(uid))
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid))
    until("no pod is left", lambda: not kubectl.list("pods", one.namespace, f"{UID_LABEL}={uid}"))


def test_the_lease_and_the_record_of_a_stop_are_taken_away_in_its_midst(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    model = {"name": "meddled-model"}
    one, other = backend("meddled-a", file=SMOLLM2, model=model), backend("meddled-b", model=model)
    address = one.until_ready()
    other.until_ready()
    uids = one.uid, other.uid
    running = stream(address, *STREAM)
    one.delete()
    until("it drains", lambda: one.condition("Drained"))
    (lease,) = kubectl.list("leases", OPERATOR_NAMESPACE, "app.kubernetes.io/managed-by=modelbackend-operator")
    watchdog.by_hand.add(lease["metadata"]["name"])
    kubectl.delete("lease", lease["metadata"]["name"], OPERATOR_NAMESPACE)
    other.delete()
    (pod,) = one.pods()
    watchdog.by_hand.add(pod["metadata"]["uid"])
    kubectl.run(
        "annotate", "pod", pod["metadata"]["name"], "-n", one.namespace, "--overwrite", "modelbackend.dev/stop={"
    )
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    one.until_gone()
    other.until_gone()
    assert not any(serving_pods(uid) for uid in uids)


@pytest.fixture
def refusal(kubectl: Kubectl, operator: str) -> Iterator[Callable[[Object], None]]:
    """A policy of the cluster that says no to some writes of the operator."""
    name = "no-to-the-operator"
    account = f"system:serviceaccount:{operator}:modelbackend-operator"

    def refuse(rule: Object) -> None:
        version = "admissionregistration.k8s.io/v1"
        match = {"resourceRules": [{"apiVersions": ["*"], **rule}]}
        only = [{"name": "operator", "expression": f"request.userInfo.username == '{account}'"}]
        says_no = [{"expression": "false", "message": "not today"}]
        spec = {"failurePolicy": "Fail", "matchConstraints": match, "matchConditions": only, "validations": says_no}
        kubectl.apply(
            {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": version,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            },
        )

    yield refuse
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        kubectl.delete(kind, name)


def test_a_stop_that_the_cluster_refuses_is_told_and_goes_on_once_it_is_allowed(
    kubectl: Kubectl, backend: Make, refusal: Callable[[Object], None]
) -> None:
    one, other = backend("refused"), backend("not-refused")
    one.until_ready()
    other.until_ready()
    pods = {"apiGroups": [""], "resources": ["pods"], "operations": ["UPDATE", "DELETE"]}
    refusal({**pods, "resourceNames": [one.pods()[0]["metadata"]["name"]]})
    until("the policy is in force", lambda: _is_denied(kubectl, one))
    one.delete()
    assert "not today" in one.until_stalled("DeniedByAPIServer")
    other.delete()
    other.until_gone()
    assert one.object is not None
    kubectl.delete("validatingadmissionpolicybinding", "no-to-the-operator")
    one.until_gone()


def _is_denied(kubectl: Kubectl, one: Backend) -> bool:
    """Asked as the operator, of a patch that would change nothing."""
    account = f"--as=system:serviceaccount:{OPERATOR_NAMESPACE}:modelbackend-operator"
    (pod,) = one.pods()
    patch = json.dumps({"metadata": {"annotations": {"asked": "once"}}})
    name = pod["metadata"]["name"]
    try:
        kubectl.run("patch", "pod", name, "-n", one.namespace, "--type=merge", "-p", patch, "--dry-run=server", account)
    except AssertionError as refusal:
        return "not today" in str(refusal)
    return False


def test_an_operator_without_rights_writes_nothing_and_goes_on_with_them(kubectl: Kubectl, backend: Make) -> None:
    one = backend("no-rights", file=SMOLLM2)
    address, uid = one.until_ready(), one.uid
    running = stream(address, *STREAM)
    kubectl.delete("clusterrolebinding", "modelbackend-operator")
    try:
        one.delete()
        _, errors = running.communicate(timeout=STREAM_SECONDS)
        assert running.returncode == 0, errors
        assert one.object is not None
        assert serving_pods(uid)
    finally:
        kubectl.run("apply", "-f", str(ROOT / "deploy" / "10-rbac.yaml"))
    one.until_gone()


def test_a_strange_finalizer_on_a_pod_is_told_as_what_its_deletion_waits_for(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    one = backend("held")
    one.until_ready()
    (pod,), uid = one.pods(), one.uid
    name = pod["metadata"]["name"]
    held_by = pod["metadata"]["finalizers"] + ["example.org/mine"]
    kubectl.patch("pod", name, one.namespace, {"metadata": {"finalizers": held_by}})
    one.delete()
    told = until("it says what is awaited", lambda: _says(one, name))
    assert name in told
    until("its process has ended", lambda: not serving_pods(uid))
    kubectl.patch("pod", name, one.namespace, {"metadata": {"finalizers": None}})
    watchdog.by_hand.add(pod["metadata"]["uid"])
    one.until_gone()


def _says(one: Backend, name: str) -> str | None:
    message = str(one.condition("Reconciling").get("message", ""))
    return message if "is being removed" in message and name in message else None
