"""How many writes the operator does: few for a life, none for a restart, none while nothing happens."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from e2e.api import Api
from e2e.backends import Backend, claims_of
from e2e.faults.conftest import Watchdog
from e2e.kubectl import Kubectl, Object, until
from e2e.processes import OPERATOR, running
from e2e.test_operator_crash import kill_operator, until_operator_runs
from modelbackend_operator.kinds import Kind

Make = Callable[..., Backend]
MOST_WRITES = 12
"""Of a start, and of a stop until the backend is gone. To free the port that has cooled since takes two more."""
FREEING = ("DELETE portclaims 200", "PATCH portclaims 200")
CALL = re.compile(r"^modelbackend_operator_api_call_seconds_count\{(.*)\} ([0-9.]+)", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
IDLE_SECONDS = 15


def writes(api: Api, kubectl: Kubectl, operator: str) -> Counter[str]:
    """Since the operator's process began, without Events, Secrets and Lease renewals; of all its replicas.

    A write that was refused, because the kubelet's came first, is not another one: how often that is, is chance.
    """
    found: Counter[str] = Counter()
    for pod in kubectl.list("pods", operator, "app.kubernetes.io/name=modelbackend-operator"):
        path = f"/api/v1/namespaces/{operator}/pods/{pod['metadata']['name']}:8081/proxy/metrics"
        for labels, count in CALL.findall(api.text(path)):
            call = dict(LABEL.findall(labels))
            renewal = call["resource"] == "leases" and call["verb"] in ("PATCH", "PUT")
            is_write = call["verb"] != "GET" and call["code"].startswith("2")
            if is_write and call["resource"] not in ("events", "secrets") and not renewal:
                found[f"{call['verb']} {call['resource']} {call['code']}"] += int(float(count))
    return found


def test_a_start_and_a_stop_take_a_dozen_writes_each(
    api: Api, kubectl: Kubectl, operator: str, backend: Make, watchdog: Watchdog, capsys: pytest.CaptureFixture[str]
) -> None:
    until("no earlier port cools", lambda: not kubectl.list("portclaims"))
    before = writes(api, kubectl, operator)
    one = backend("counted")
    one.until_ready()
    uid = one.uid
    until("its status has settled", lambda: one.condition("Ready").get("status") == "True")
    started = writes(api, kubectl, operator)
    one.delete()
    one.until_gone()
    stopped = writes(api, kubectl, operator)
    until("its port is free", lambda: not claims_of(kubectl, uid))
    figures = []
    for what, wrote in (("start", started - before), ("stop", stopped - started)):
        calls = ", ".join(f"{count} {call}" for call, count in sorted(wrote.items()))
        figures.append(f"{what}: {wrote.total()} writes: {calls}")
        assert 0 < wrote.total() - sum(wrote[call] for call in FREEING) <= MOST_WRITES, wrote
    watchdog.history.catch_up()
    seen = watchdog.history.versions
    created_at = min(v.seen_at for v in seen if v.kind is Kind.BACKEND and _is_of(v.raw, uid))
    pod_at = min(v.seen_at for v in seen if v.kind is Kind.POD and _is_of(v.raw, uid))
    figures.append(f"create to pod object: {(pod_at - created_at) * 1000:.0f} ms")
    ran_at = min(life.first_at for life in watchdog.processes_of(uid))
    ready_at = min(v.seen_at for v in seen if v.kind is Kind.BACKEND and _is_of(v.raw, uid) and _is_ready(v.raw))
    figures.append(f"Ready {ready_at - ran_at:.1f} s after the server's process began")
    with capsys.disabled():  # also of a run that passes
        print("", *figures, sep="\n")


def _is_of(raw: Object, uid: str) -> bool:
    owners = (owner["uid"] for owner in raw["metadata"].get("ownerReferences", ()))
    return uid == raw["metadata"]["uid"] or uid in owners


def _is_ready(raw: Object) -> bool:
    conditions = (raw.get("status") or {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def test_a_restart_of_the_operator_writes_nothing_and_idleness_writes_nothing(
    api: Api, kubectl: Kubectl, operator: str, backend: Make, watchdog: Watchdog, node_containers: list[str]
) -> None:
    ones = [backend("live-a"), backend("live-b", exposure={"type": "HostPort"}), backend("live-c", replicas=0)]
    for one in ones[:2]:
        one.until_ready()
    until("the third says that it is to have none", lambda: ones[2].condition("Ready").get("reason") == "NoInstances")
    before = {one.name: (one.object or {})["metadata"]["resourceVersion"] for one in ones}
    old = running(OPERATOR, node_containers)
    kill_operator(kubectl, operator)
    until_operator_runs(kubectl, operator)
    assert not old & running(OPERATOR, node_containers)
    quiet_since = len(watchdog.history.versions)
    changes = kubectl.run(
        "get", "modelbackends", "-A", "--watch-only", f"--request-timeout={IDLE_SECONDS}s", "-o", "name"
    )
    assert changes == ""
    wrote = writes(api, kubectl, operator)
    assert wrote.total() == 0, wrote
    assert {one.name: (one.object or {})["metadata"]["resourceVersion"] for one in ones} == before
    later = [v for v in watchdog.history.versions[quiet_since:] if v.kind in (Kind.CLAIM, Kind.BACKEND, Kind.SERVICE)]
    assert later == []
