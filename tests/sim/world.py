"""A FAKE cluster in memory, for whole lifecycles: the API server's rules that the protocol rests on, and no others.

It keeps uid, resourceVersion, finalizers, deletion with grace, names that are taken and node ports that are
allocated. What scheduler, kubelets, controllers and the garbage collector may do next are `moves`
(`cluster_moves.py`), taken one at a time; what people and machines do to it are `hands.py`. The conformance tests
compare it with a real API server.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from modelbackend_operator import actions as do
from modelbackend_operator.actions import Action
from modelbackend_operator.invariants import Snapshot
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.service import Service
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Outcome, Unknown
from tests.sim.cluster_moves import Move, moves_of
from tests.sim.effects import Create, changed_by, deleted, is_released, made_by, target_of
from tests.sim.looking import NAMESPACE, POOL, Looking
from tests.sim.state import Machine, State
from tests.unit.builders import NODE, NOW

OTHERS_GRACE_SECONDS = 45
PORT_LAGS = "the API server has yet to give the node port back"


def a_machine(name: str = NODE.name) -> Machine:
    boot_id = NODE.boot_id if name == NODE.name else f"boot-of-{name}"
    return Machine(replace(NODE, name=name, uid=f"{name}-uid", boot_id=boot_id), boot_id)


class World:
    """A cursor over states: each operation replaces `state`."""

    unchecked: frozenset[type] = frozenset()
    """Kinds of which every write is taken, whatever version it was decided from: what must never be."""

    def __init__(
        self,
        *backends: Backend,
        later: tuple[Backend, ...] = (),
        nodes: tuple[str, ...] = (NODE.name,),
        pool: Any = POOL,
        trusts_removal: bool = False,
    ) -> None:
        """`later` are backends that somebody may create in time (`hands.create_backend`).

        `trusts_removal`: evidence.nodeRemoved is Accept.
        """
        self.state = State(NOW, machines={name: a_machine(name) for name in nodes})
        self.later = {backend.ref.uid: backend for backend in later}
        self.models = {backend.ref.uid: f"{NAMESPACE}/{backend.model}" for backend in (*backends, *later)}
        self.wanted_ordinals = {backend.ref.uid: backend.ordinals for backend in (*backends, *later)}
        """What each backend asks for again when it is resumed."""
        self.looking = Looking(self.models, pool, trusts_removal=trusts_removal)
        for backend in backends:
            self.put(backend)

    @property
    def now(self) -> datetime:
        return self.state.now

    @now.setter
    def now(self, moment: datetime) -> None:
        self.state = self.state._replace(now=moment)

    # -- looking ------------------------------------------------------------------------------------------------------

    def observe(self, uid: str, cached: State | None = None) -> Observation:
        """From an old cache, or read just now."""
        return self.looking.observe(uid, cached or self.state, self.state, live=cached is None)

    def snapshot(self) -> Snapshot:
        return self.looking.snapshot(self.state)

    def moves(self) -> Iterator[Move]:
        """What the cluster could do next by itself, each with its name."""
        return moves_of(self)

    # -- the API server -----------------------------------------------------------------------------------------------

    def apply(self, action: Action) -> Outcome:
        match action:
            case do.CreateClaim() | do.CreatePod() | do.CreateService() | do.AcquireLease():
                return self._create(action)
            case do.DrainServer(pod=pod):
                return self._drain(pod.ref.uid)
            case do.AddFinalizer(backend=seen) if self._is_deleting(seen):
                return Denied("no new finalizers can be added if the object is being deleted")
            case do.AbortServer(pod=pod):
                return self._abort(pod.ref.uid)
        return self._change(target_of(action), lambda current: changed_by(action, current, self.now))

    def _create(self, action: Create) -> Outcome:
        made = made_by(action, self.models, self.now)
        if any(found.ref.name == made.ref.name for found in self.state.all(type(made))):
            return Exists()
        if self.state.namespace_terminating and isinstance(made, Pod | Service):
            return Denied("unable to create new content in namespace models because it is being terminated")
        if isinstance(made, Service):
            if any(set(made.node_ports).intersection(found.node_ports) for found in self.state.all(Service)):
                return Denied("provided port is already allocated")
            if self.state.lagging_ports.intersection(made.node_ports):
                return Unknown(PORT_LAGS)
        uid = self.fresh_uid(type(made).__name__.lower())
        owners = {**self.state.owners, uid: action.backend.ref.uid}
        self.state = self.state._replace(owners=owners, created=self.state.created + 1)
        self.put(replace(made, ref=replace(made.ref, uid=uid)))
        return Applied()

    def fresh_uid(self, kind: str) -> str:
        return f"{kind}-{self.state.created + 1}"

    def fresh_node_uid(self, name: str) -> str:
        """Of a Node object that a kubelet makes again."""
        return f"{name}-uid-{self.state.version + 1}"

    def _change(self, seen: Any, change: Callable[[Any], Any]) -> Outcome:
        """Under the uid and resourceVersion that the writer has seen."""
        current = self.state.objects.get(seen.ref.uid)
        if current is None:
            return Gone() if not self._name_is_taken(seen) else Conflict()
        if type(current) not in self.unchecked and current.ref != seen.ref:
            return Conflict()
        changed = change(current)
        if changed is None:
            self.remove(current)
        else:
            self.put(changed)
        return Applied()

    def _is_deleting(self, seen: Backend) -> bool:
        """And has not our finalizer, of this very version."""
        current = self.state.objects.get(seen.ref.uid)
        return current is not None and current == seen and not current.has_finalizer and seen.deleting_since is not None

    def _name_is_taken(self, seen: Any) -> bool:
        return any(found.ref.name == seen.ref.name for found in self.state.all(type(seen)))

    def put(self, thing: Any) -> None:
        """The object's next version, or its end when nothing holds it any more."""
        if thing == self.state.objects.get(thing.ref.uid):
            return  # a write that changes nothing makes no version
        version = self.state.version + 1
        thing = replace(thing, ref=replace(thing.ref, resource_version=str(version)))
        self.state = self.state._replace(objects={**self.state.objects, thing.ref.uid: thing}, version=version)
        if is_released(thing) and thing.ref.uid not in self.state.foreground:
            self.remove(thing)

    def remove(self, thing: Any) -> None:
        """Past everything that held it. What ran for it may run on."""
        uid, state = thing.ref.uid, self.state
        lagging = frozenset(thing.node_ports) if isinstance(thing, Service) else frozenset()
        is_shared = isinstance(thing, Lease) and list(self.models.values()).count(thing.ref.name) > 1
        self.state = state._replace(
            objects={other: found for other, found in state.objects.items() if other != uid},
            owners={other: owner for other, owner in state.owners.items() if other != uid},
            lagging_ports=state.lagging_ports | lagging,
            free_since={**state.free_since, thing.ref.name: state.now} if is_shared else state.free_since,
            foreground=state.foreground - {uid},
            version=state.version + 1,
        )
        self.forget_ended(uid)

    def forget_ended(self, pod_uid: str) -> None:
        """With neither object nor process, nothing of a pod is left."""
        run = self.state.runs.get(pod_uid)
        if run is not None and not run.alive and pod_uid not in self.state.objects:
            rest = {uid: other for uid, other in self.state.runs.items() if uid != pod_uid}
            self.state = self.state._replace(runs=rest)

    def _drain(self, pod_uid: str) -> Outcome:
        run = self.state.runs.get(pod_uid)
        if run is None or not run.alive:
            return Unknown("the control port does not answer")
        if run.server is ServerState.SERVING:
            self.state = self.state.with_run(pod_uid, replace(run, server=ServerState.DRAINING))
        return Applied()

    def _abort(self, pod_uid: str) -> Outcome:
        """It cuts its requests; its process ends by the kubelet's own move."""
        run = self.state.runs.get(pod_uid)
        if run is None or not run.alive:
            return Unknown("the control port does not answer")
        self.state = self.state.with_run(pod_uid, replace(run, server=ServerState.STOPPED, in_flight=0))
        return Applied()

    # -- anybody ------------------------------------------------------------------------------------------------------

    def edit(self, thing: Any, **changes: Any) -> None:
        """By hand, without a precondition; into nothing when it is gone."""
        if thing.ref.uid in self.state.objects:
            self.put(replace(self.state.objects[thing.ref.uid], **changes))

    def delete_backend(self, uid: str) -> None:
        self.edit(self.state.objects[uid], deleting_since=self.now, ordinals=())

    def delete_pod(self, pod: Pod, grace_seconds: int = OTHERS_GRACE_SECONDS) -> None:
        if pod.ref.uid in self.state.objects:
            self.put(deleted(self.state.objects[pod.ref.uid], grace_seconds, self.now))

    def delete_claim(self, claim: Claim) -> None:
        self.edit(claim, terminating=True)

    def request(self, pod: Pod) -> None:
        """One call that runs until a `finish` move."""
        run = self.state.runs[pod.ref.uid]
        self.state = self.state.with_run(pod.ref.uid, replace(run, in_flight=run.in_flight + 1))
