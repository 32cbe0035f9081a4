"""Small worlds whose every state is searched. Together they cover the protocol; each says what it asks."""

from dataclasses import replace
from typing import Any

from modelbackend_operator.model.backend import Backend, Exposure, Rollout, WhenUnconfirmed
from modelbackend_operator.model.ref import Ref
from tests.sim.scenario import Bounds, Scenario
from tests.unit.builders import a_backend

ONE_PORT = (30000, 30000)
TWO_PORTS = (30000, 30001)
HOST = Exposure.HOST_PORT
INSIDE = Exposure.CLUSTER_IP


def a_searched_backend(uid: str, **special: Any) -> Backend:
    return a_backend(**{"ref": Ref(uid, uid, "", "models"), "model": "m", "has_finalizer": False, **special})


B1, B2 = a_searched_backend("b1"), a_searched_backend("b2")
OTHER_MODEL = replace(B2, model="n")
SURGING = replace(B1, rollout=Rollout.SURGE)
WITH_HTTP = replace(B1, http=True)
OTHER_WITH_HTTP = replace(OTHER_MODEL, http=True)
AGAIN = a_searched_backend("b1-again", ref=Ref("b1", "b1-again", "", "models"))


def on_host(*backends: Backend) -> tuple[Backend, ...]:
    return tuple(replace(backend, exposure=HOST) for backend in backends)


SCENARIOS = (
    Scenario(
        "a whole life behind a node port",
        (B1,),
        Bounds((("delete|suspend", 1),), late=1),
        pool=ONE_PORT,
        served=False,
        quick=True,
        asks="a start with Services, cut short anywhere, with one write that lands late or never",
    ),
    Scenario(
        "a late write while it ends",
        (B1,),
        Bounds((("delete|suspend", 1), ("resume", 1), ("force|evict", 1)), late=1),
        quick=True,
        asks="a stop that is ordered, taken back, forced; one write late",
    ),
    Scenario(
        "an old cache while it ends",
        (B1,),
        Bounds((("delete|suspend|edit", 1), ("resume", 1)), stale=1),
        quick=True,
        asks="a second operator acts once from a cache whose watch of one kind stands still",
    ),
    Scenario(
        "two old caches",
        (B1,),
        Bounds((("suspend|edit", 1),), stale=2, views=2, frozen=("Pod", "Claim", "all")),
        pool=ONE_PORT,
        asks="two operators whose caches stand still at different moments",
    ),
    Scenario(
        "two backends of one model",
        (B1, B2),
        Bounds((("suspend|delete", 2), ("resume", 1)), late=1),
        asks="one shutdown at a time, and no order of stops that deadlocks",
    ),
    Scenario(
        "two host ports, one machine",
        on_host(B1, OTHER_MODEL),
        Bounds((("delete|edit", 1), ("force", 1)), late=1),
        asks="a host port goes from one backend to another",
    ),
    Scenario(
        "one port for two",
        on_host(B1, OTHER_MODEL),
        Bounds((("delete", 1), ("crash|force", 1)), late=1),
        pool=ONE_PORT,
        served=False,
        asks="the second backend gets the port after proof, and not before",
    ),
    Scenario(
        "a node is lost and comes back",
        on_host(B1),
        Bounds((("kubelet stops|machine dies", 1), ("delete|edit", 1)), late=1),
        pool=ONE_PORT,
        asks="what is proof when its kubelet was away, its machine rebooted",
    ),
    Scenario(
        "forced while its node is lost",
        on_host(B1),
        Bounds((("kubelet stops|machine dies", 1), ("delete", 1), ("force", 1))),
        pool=ONE_PORT,
        asks="a record that ends at once, and a process of which nobody knows",
    ),
    Scenario(
        "handed over",
        on_host(B1),
        Bounds((("kubelet stops|machine dies", 1), ("delete|edit", 1))),
        asks="proof is overdue: the port stays withheld, the pod stays as a witness, the instance goes on elsewhere",
    ),
    Scenario(
        "waited for",
        on_host(replace(B1, when_unconfirmed=WhenUnconfirmed.WAIT)),
        Bounds((("kubelet stops|machine dies", 1), ("delete|edit", 1))),
        asks="proof is overdue, and the instance waits for it, but its neighbours do not",
    ),
    Scenario(
        "torn out, rebooted, attested",
        on_host(B1),
        Bounds((("machine dies", 1), ("tear out pod", 1), ("attest", 1), ("delete", 1))),
        pool=ONE_PORT,
        asks="with the object gone, only another boot or an administrator's word opens the port",
    ),
    Scenario(
        "a Node is removed",
        on_host(B1),
        Bounds((("kubelet stops", 1), ("Node removed", 1), ("delete", 1))),
        nodes=("node-1", "node-2"),
        struck=("node-1",),
        asks="pod garbage collection ends the record, not the process; the instance may run elsewhere",
    ),
    Scenario(
        "a machine that is verified off",
        (B1,),
        Bounds((("machine dies", 1), ("out of service", 1), ("delete|edit", 1))),
        nodes=("node-1", "node-2"),
        struck=("node-1",),
        asks="the out-of-service taint",
    ),
    Scenario(
        "a pod torn out",
        on_host(B1),
        Bounds((("strip pod", 1), ("force", 1), ("delete|suspend", 1), ("kubelet stops", 1))),
        asks="an object force-deleted past its finalizer, its process alive",
    ),
    Scenario(
        "a container crashes as it is deleted",
        (B1,),
        Bounds((("crash", 1), ("delete|suspend|evict", 1), ("reject", 1)), late=1),
        pool=ONE_PORT,
        quick=True,
        asks="an old `terminated` is no proof; a pod that its node rejected is",
    ),
    Scenario(
        "two instances",
        (replace(B1, ordinals=(0, 1)),),
        Bounds((("suspend|edit", 1), ("evict|force", 1))),
        asks="several ordinals of one backend: one at a time, each behind its port",
    ),
    Scenario(
        "a surge",
        (SURGING,),
        Bounds((("edit", 1), ("delete|evict", 1))),
        quick=True,
        asks="a second incarnation beside the first, with a claim of its own; and what if the rollout is cut short",
    ),
    Scenario(
        "made again under its name",
        (B1,),
        Bounds((("delete", 1), ("create", 1), ("force", 1)), late=1),
        later=(AGAIN,),
        asks="names of the first life meet the second",
    ),
    Scenario(
        "hands on the ledger",
        (B1,),
        Bounds((("delete claim|delete Lease|delete Service", 2), ("suspend|delete", 1))),
        quick=True,
        asks="claims, Leases and Services deleted by hand",
    ),
    Scenario(
        "hands on two of one model",
        (B1, B2),
        Bounds((("delete Lease|strip pod", 1), ("suspend|delete", 2))),
        quick=True,
        asks="the Lease of a shutdown is deleted by hand while a neighbour waits for it",
    ),
    Scenario(
        "hands on marks",
        (B1,),
        Bounds((("edit labels|wipe status|strip pod|strip backend", 1), ("delete|edit", 1)), late=1),
        quick=True,
        asks="labels, status and finalizers edited away",
    ),
    Scenario(
        "a namespace ends",
        (B1,),
        Bounds((("delete namespace|delete in the foreground", 1),), late=1),
        pool=ONE_PORT,
        asks="everything at once, in the namespace controller's order",
    ),
    Scenario(
        "a namespace ends while a node is lost",
        on_host(B1),
        Bounds((("delete namespace|delete in the foreground", 1), ("kubelet stops", 1))),
        pool=ONE_PORT,
        asks="a witness does not keep its namespace, and its port stays withheld",
    ),
    Scenario(
        "inside only",
        (replace(B1, exposure=INSIDE),),
        Bounds((("delete|edit", 1), ("force|evict", 1)), late=1),
        served=False,
        quick=True,
        asks="an instance without a claim",
    ),
    Scenario(
        "vanished inside, and waited for",
        (replace(B1, exposure=INSIDE, when_unconfirmed=WhenUnconfirmed.WAIT),),
        Bounds((("tear out pod", 1), ("machine dies|kubelet stops", 1), ("delete|edit", 1), ("attest", 1))),
        asks="a pod that no claim remembers is torn out: status does, and nothing starts before its end is known",
    ),
    Scenario(
        "vanished inside, with a late write",
        (replace(B1, exposure=INSIDE, when_unconfirmed=WhenUnconfirmed.WAIT),),
        Bounds((("tear out pod", 1), ("delete", 1)), late=1),
        served=False,
        quick=True,
        asks="a pod made late, or an old cache, forgets no vanished pod",
    ),
    Scenario(
        "a second port",
        (WITH_HTTP,),
        Bounds((("delete|suspend", 1),), late=1),
        served=False,
        quick=True,
        asks="two claims and one Service with two ports: both or none, also with one write that lands late or never",
    ),
    Scenario(
        "two ports each, and only three",
        on_host(WITH_HTTP, OTHER_WITH_HTTP),
        Bounds(),
        pool=(30000, 30002),
        served=False,
        quick=True,
        asks="nobody keeps one port for ever and waits for another",
    ),
    Scenario(
        "two ports each, and only three, with a late write",
        on_host(WITH_HTTP, OTHER_WITH_HTTP),
        Bounds((("delete", 1),), late=1),
        pool=(30000, 30002),
        served=False,
        asks="the same, where a claim lands late or never, and who has both gives them up",
    ),
    Scenario(
        "a second port comes and goes",
        (B1,),
        Bounds((("http", 1), ("delete|suspend", 1), ("resume", 1))),
        quick=True,
        asks="the Service of one port gets two, and of two one, and each port is released after proof",
    ),
    Scenario(
        "two ports torn out",
        on_host(WITH_HTTP),
        Bounds((("kubelet stops|machine dies", 1), ("tear out pod", 1), ("attest", 1), ("delete", 1))),
        asks="what proves the end of a pod opens both its ports, whatever claim it was said on",
    ),
    Scenario(
        "requests and a drain",
        (B1,),
        Bounds((("request", 1), ("delete|edit", 1), ("evict", 1)), late=1, pauses=1),
        pool=ONE_PORT,
        quick=True,
        asks="no request is cut before the deadline",
    ),
)


def with_larger_bounds(scenario: Scenario) -> Scenario:
    """Each fault and wish once more, one more write that is late, one more old cache, one pause: for a night."""
    bounds = scenario.bounds
    hands = tuple((kinds, count + 1) for kinds, count in bounds.hands)
    larger = replace(bounds, hands=hands, late=bounds.late + 1, stale=bounds.stale + 1, pauses=bounds.pauses + 1)
    return replace(scenario, name=f"{scenario.name}, larger", bounds=larger, quick=False)


LARGER = tuple(with_larger_bounds(scenario) for scenario in SCENARIOS)
