"""What an operator observes of a fake cluster, and what the promises are checked against."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from modelbackend_operator import told_in_status
from modelbackend_operator.decide import servers_to_ask
from modelbackend_operator.invariants import Process, Snapshot
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease, ModelStop, ModelWait
from modelbackend_operator.model.node import Node
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.server import ServerReport, ServerState
from modelbackend_operator.model.service import Service
from modelbackend_operator.model_lease import stop_is_open
from modelbackend_operator.timestamps import parse_time
from tests.sim.state import Machine, Run, State

POOL = (30000, 30009)
REUSE_DELAY_SECONDS = 15
NAMESPACE = "models"
_by_port, _by_name = attrgetter("port"), attrgetter("ref.name")


class Looking:
    """`models` says which model each backend is of, also once the backend is gone."""

    def __init__(self, models: dict[str, str], pool: tuple[int, int] = POOL, *, trusts_removal: bool = False) -> None:
        self.models = models
        self.trusts_removal = trusts_removal
        self.pool = pool

    def observe(self, uid: str, cached: State, truth: State, *, live: bool = False) -> Observation:
        """`cached` may be old; a server that is asked answers for itself."""
        backend = cached.objects.get(uid)
        status = backend.status if backend is not None else {}
        mine: dict[type, list[Any]] = {Claim: [], Pod: [], Service: [], Lease: []}
        others: dict[type, list[Any]] = {Claim: [], Pod: [], Service: [], Lease: []}
        for object_uid, owner in cached.owners.items():
            thing = cached.objects[object_uid]
            (mine if owner == uid else others)[type(thing)].append(thing)
        machines = cached.machines.items()
        lease, waits = self._lease(uid, cached), tuple(self._waits_of_others(uid, cached))
        look = Observation(
            backend_uid=uid,
            backend=backend,
            namespace_terminating=cached.namespace_terminating,
            claims=tuple(sorted(mine[Claim], key=_by_port)),
            pods=tuple(told_in_status.with_status(pod, status) for pod in sorted(mine[Pod], key=_by_name)),
            services=tuple(sorted(mine[Service], key=_by_name)),
            lease=lease,
            nodes={name: _node(machine, cached.now) for name, machine in machines if machine.node is not None},
            servers={},
            ports=Ports(
                (self.pool,),
                REUSE_DELAY_SECONDS,
                frozenset(claim.port for claim in others[Claim]),
                {claim.port: f"{NAMESPACE}/other" for claim in others[Claim]},
            ),
            taken_names=frozenset(thing.ref.name for kind in (Pod, Service) for thing in others[kind]),
            live=live,
            accepts_node_removed=self.trusts_removal,
            node_troubles={
                name: "Kubelet stopped posting node status."
                for name, machine in machines
                if machine.node is not None and not machine.ready
            },
            model_stops=tuple(self._stops_of_others(uid, cached)),
            model_waits=waits,
            lease_free_since=cached.free_since.get(self.models[uid]) if waits and lease is None else None,
        )
        return replace(look, servers=self._answers(look, truth))

    def _sharers(self, uid: str, state: State) -> list[str]:
        """Other backends of the same model that exist: nothing else says which model a pod is of."""
        same = (other for other, model in self.models.items() if model == self.models[uid])
        return [other for other in same if other != uid and other in state.objects]

    def _stops_of_others(self, uid: str, state: State) -> Iterator[ModelStop]:
        for other in self._sharers(uid, state):
            pods = (told_in_status.with_status(pod, state.objects[other].status) for pod in state.all(Pod, other))
            for pod in filter(stop_is_open, pods):
                yield ModelStop(pod.ref.uid, f"{other}, instance {pod.ordinal}")

    def _waits_of_others(self, uid: str, state: State) -> Iterator[ModelWait]:
        for other in self._sharers(uid, state):
            for entry in state.objects[other].status.get("instances", ()):
                since = parse_time(entry.get("waitingSince"))
                if since is not None:
                    yield ModelWait(since, other, f"{other}, instance {entry['ordinal']}")

    def _lease(self, uid: str, state: State) -> Lease | None:
        there = uid in state.objects
        for lease in state.all(Lease):
            if lease.ref.name == self.models[uid] if there else state.owners[lease.ref.uid] == uid:
                return lease
        return None

    def _answers(self, look: Observation, truth: State) -> dict[str, ServerReport]:
        asked = ((pod.ref.uid, truth.runs.get(pod.ref.uid)) for pod in servers_to_ask(look))
        return {
            pod_uid: self._report(look.backend_uid, pod_uid, run)
            for pod_uid, run in asked
            if run is not None and run.alive and truth.machines[run.node].works
        }

    def _report(self, uid: str, pod_uid: str, run: Run) -> ServerReport:
        model = self.models[uid].removeprefix(f"{NAMESPACE}/")
        facts = {} if run.server is ServerState.LOADING else {"architecture": "llama"}
        return ServerReport(run.server, uid, model, pod_uid, run.in_flight, facts)

    def snapshot(self, state: State) -> Snapshot:
        looks = tuple(self.observe(uid, state, state, live=True) for uid in self.models)
        return Snapshot(looks, self.models, tuple(processes(state)))


def _node(machine: Machine, now: datetime) -> Node:
    """A kubelet that works has just told its status, unless it has yet to tell its boot after a reboot."""
    told = machine.node
    assert told is not None
    is_fresh = machine.works and told.boot_id == machine.boot_id
    return Node(
        told.name,
        told.uid,
        told.boot_id,
        heartbeat_at=now if is_fresh else None,
        lost_since=None if machine.ready else machine.lost_since,
        out_of_service=machine.out_of_service,
    )


def processes(state: State) -> list[Process]:
    """Each that lives, behind the port it was started for, and behind every node port that leads to it now."""
    found = []
    for pod_uid, run in state.runs.items():
        if not run.alive:
            continue
        in_flight = (run.in_flight, *(0 for _ in run.ports[1:]))  # counted once
        behind = zip(run.ports or (None,), in_flight, strict=True)
        found += [Process(pod_uid, port, count, run.instance) for port, count in behind]
        pod = state.objects.get(pod_uid)
        if pod is not None and pod.serving_label:
            leading = (port for s in state.all(Service) if s.pod_uid == pod_uid for port in s.node_ports)
            found += [Process(pod_uid, port, 0) for port in leading if port not in run.ports]
    return found
