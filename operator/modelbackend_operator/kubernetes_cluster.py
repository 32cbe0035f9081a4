"""The `Cluster` protocol against a real API server: the cache for looking, HTTP for writing and for looking twice."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeGuard, assert_never

from modelbackend_operator.actions import (
    AbortServer,
    Action,
    CoolClaim,
    CreateBudget,
    CreatePod,
    CreateService,
    DrainServer,
    RemakeToken,
)
from modelbackend_operator.cache import Cache, Keys
from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.decide import servers_to_ask
from modelbackend_operator.drain_client import DrainClient, control_token
from modelbackend_operator.event_object import event_object, namespace_of_events
from modelbackend_operator.events import Event
from modelbackend_operator.evidence import ports_to_ask
from modelbackend_operator.foreign_ports import ForeignPorts
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.kubernetes_api import KindRefusedError, KubernetesApi, Listing, outcome_of
from modelbackend_operator.live_read import read_live, refresh
from modelbackend_operator.manifests import control_secret
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerReport, TokenRefused
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Outcome, Unknown
from modelbackend_operator.patches import write_of
from modelbackend_operator.reading import owner_uid
from modelbackend_operator.reasons import Reason
from modelbackend_operator.settings import Settings
from modelbackend_operator.snapshot import namespace_of, observation_of
from modelbackend_operator.still_answering import still_answering
from modelbackend_operator.write import Verb, Write

BUDGET_REFUSED_SECONDS = 300
"""How soon a PodDisruptionBudget that was refused is tried again."""
PORT_ALLOCATED = "provided port is already allocated"
"""The API server's words for a nodePort of another Service. It has no machine-readable reason for this."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """See `Cluster`. `operator_key` is what the control tokens of all backends are derived from.

    `on_change` is told the key of every backend of which something new is known, from whatever source.
    """

    def __init__(
        self,
        api: KubernetesApi,
        servers: DrainClient,
        settings: Settings,
        *,
        operator_key: bytes,
        on_change: Callable[[Keys], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._servers = servers
        self._settings = settings
        self._operator_key = operator_key
        self._on_change = on_change
        self._cache = Cache(self._changed)
        self._foreign_ports = ForeignPorts()
        self._lease_free_since: dict[str, datetime] = {}
        self._refused_kinds: frozenset[Kind] = frozenset()
        self._budget_refused_until: dict[str, float] = {}

    # -- feeding the cache --------------------------------------------------------------------------------------------

    def _changed(self, keys: Keys) -> None:
        if concerned := self._looked_after(keys):
            self._on_change(concerned)

    def _looked_after(self, keys: Keys) -> Keys:
        """Without the backends of namespaces that are another operator's: they show in the ledger, which all share."""
        ours = self._settings.namespaces
        if not ours:
            return keys
        return frozenset(key for key in keys if namespace_of(self._cache, key) in {*ours, ""})

    def hear(self, kind: Kind, raw: Raw, deleted: bool) -> None:
        """What a watch says."""
        if kind is Kind.LEASE and raw["metadata"]["namespace"] != self._settings.namespace:
            return  # anybody may make one that looks like ours elsewhere
        if deleted:
            self._cache.remove(kind, raw)
        else:
            self._cache.put(kind, raw)

    async def read_all(self) -> Keys:
        """Every kind, completely; answers with the keys of all backends that exist or left something.

        Raises ClusterUnavailable.
        """
        listings: dict[Kind, Listing] = {}
        for kind in Kind:
            try:
                listings[kind] = await self._list(kind)
            except KindRefusedError as error:
                if not kind.optional:
                    raise
                log.warning("%s are left alone: %s", kind.plural, error)
        for kind, found in listings.items():
            self._cache.resync(kind, found.items, found.version)
        self._refused_kinds = frozenset(Kind) - frozenset(listings)
        for kind in (kind for kind, found in listings.items() if not found.is_installed):
            log.warning("%s are not installed, so there are none (kubectl apply -f crds/)", kind.plural)
        self._cache.age()
        return self.keys()

    async def _list(self, kind: Kind) -> Listing:
        """In every namespace that is looked after. Of several LISTs the oldest version counts: it removes the least."""
        listings = [await self._api.list(kind, namespace) for namespace in self._settings.namespaces_of(kind)]
        items = tuple(raw for listing in listings for raw in listing.items)
        return Listing(items, min(listing.version for listing in listings))

    async def kinds(self) -> frozenset[Kind]:
        """Those that can be watched now: installed, and not refused to this operator. Raises ClusterUnavailable."""
        missing = {kind for kind in Kind if kind.custom and not await self._api.serves(kind)}
        return frozenset(Kind) - self._refused_kinds - missing

    def keys(self) -> Keys:
        """Of all backends that are known to exist or to have left something."""
        return self._looked_after(self._cache.keys())

    def known(self, kind: Kind) -> tuple[Raw, ...]:
        """Every object of a kind, as it was seen last."""
        return tuple(self._cache.all(kind))

    # -- looking ------------------------------------------------------------------------------------------------------

    async def snapshot(self, backend_uid: str, *, live: bool = False) -> Observation:
        if live:
            await read_live(self._api, self._cache, backend_uid, self._settings.namespace)
        observation = observation_of(
            self._cache,
            backend_uid,
            self._settings,
            ports_outside=self._foreign_ports.holders(),
            taken_on=self._foreign_ports.nodes(),
            knows_budgets=self._may_make_budgets(backend_uid),
            live=live,
        )
        asked = {pod.ref.uid: await self._servers.status(backend_uid, pod) for pod in servers_to_ask(observation)}
        reports = {uid: answer for uid, answer in asked.items() if isinstance(answer, ServerReport)}
        answering = await still_answering(
            backend_uid, ports_to_ask(observation), timeout_seconds=self._settings.control_timeout_seconds
        )
        refusing = frozenset(uid for uid, answer in asked.items() if answer is TokenRefused.ANSWER)
        free_since = self._free_since(backend_uid, observation)
        return replace(
            observation, servers=reports, refusing=refusing, answering=answering, lease_free_since=free_since
        )

    def _free_since(self, backend_uid: str, observation: Observation) -> datetime | None:
        """Since when the model's Lease has been seen free while others wait. A matter of manners, not of safety."""
        if observation.lease is not None or not observation.model_waits:
            self._lease_free_since.pop(backend_uid, None)
            return None
        return self._lease_free_since.setdefault(backend_uid, datetime.now(UTC))

    def _may_make_budgets(self, backend_uid: str) -> bool:
        refused_until = self._budget_refused_until.get(backend_uid, 0)
        return Kind.BUDGET not in self._refused_kinds and time.monotonic() >= refused_until

    # -- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, action: Action) -> Outcome:
        if isinstance(action, DrainServer):
            return await self._servers.drain(self._owner(action.pod), action.pod, action.deadline)
        if isinstance(action, AbortServer):
            return await self._servers.abort(self._owner(action.pod), action.pod, action.reason)
        if isinstance(action, CreatePod | RemakeToken):
            secret = await self._make_token(action.backend)
            if not isinstance(secret, Applied | Exists):
                return secret
        write = write_of(action, self._settings, datetime.now(UTC))
        outcome = await self._write(write)
        if isinstance(action, CoolClaim) and action.reason == Reason.PORT_TAKEN and action.claim.node is not None:
            self._foreign_ports.taken(action.claim.port, action.claim.node.name)
        if isinstance(action, CreateBudget) and not self._is_there(write):
            # A quota, a policy, or somebody else's object of that name: a backend lives without a budget.
            self._budget_refused_until[action.backend.ref.uid] = time.monotonic() + BUDGET_REFUSED_SECONDS
            log.warning("no PodDisruptionBudget %s/%s: %s", write.namespace, write.name, outcome)
        if isinstance(action, CreateService) and action.node_ports and _names_a_taken_port(outcome):
            named = (port for port in action.node_ports if str(port) in outcome.message)
            return await self._port_taken(write, next(named, action.node_ports[0]), outcome)
        return outcome

    async def _port_taken(self, write: Write, port: int, outcome: Outcome) -> Outcome:
        """By our own Service, when its labels were edited away and no watch shows it; by another's; or by nobody.

        The API server gives a deleted Service's port back a moment after the Service is gone, and repairs what it lost
        only every few minutes. A port that no Service has is not taken: asking again is all there is to do.
        """
        await self._look_again(write)
        if self._is_there(write):
            return Exists()
        try:
            services = await self._api.list(Kind.SERVICE, selector="")
        except KindRefusedError:
            return self._held_outside(port, "a Service in a namespace that this operator does not look after", outcome)
        except ClusterUnavailable as error:
            return Unknown(f"node port {port} is allocated, and to whom is not known: {error}")
        holder = next((raw for raw in services.items if port in _node_ports(raw)), None)
        if holder is None:
            return Unknown(f"node port {port} belongs to no Service; the API server has yet to give it back")
        return self._held_outside(
            port, f"Service {holder['metadata']['namespace']}/{holder['metadata']['name']}", outcome
        )

    def _held_outside(self, port: int, who: str, outcome: Outcome) -> Outcome:
        self._foreign_ports.held(port, who)
        return outcome

    def _is_there(self, write: Write) -> bool:
        """What was to be made is known, and is that backend's."""
        found = self._cache.get(write.kind, write.namespace, write.name)
        return found is not None and owner_uid(found) == owner_uid(write.body)

    async def _write(self, write: Write) -> Outcome:
        """One call, and the cache brought up to what it came to: the next look must see it."""
        verb = write.verb
        answer = await self._api.call(
            verb.method, write.path, query=write.query, body=write.body, content_type=verb.content_type
        )
        outcome = outcome_of(answer)
        match outcome:
            case Applied() if verb is not Verb.DELETE:
                self._cache.put(write.kind, answer.body)
            case Applied() | Conflict() | Exists():
                await self._look_again(write)
            case Gone() if verb is not Verb.CREATE:
                await self._look_again(write)
            case Unknown() if answer.code == 404 and not await self._is_served(write.kind):
                return Denied(f"{write.kind.plural} are not installed (kubectl apply -f crds/)")
            case Gone() | Denied() | Unknown():
                pass
            case _:
                assert_never(outcome)
        return outcome

    async def _is_served(self, kind: Kind) -> bool:
        try:
            return not kind.custom or await self._api.serves(kind)
        except ClusterUnavailable:
            return True

    async def _look_again(self, write: Write) -> None:
        """What a DELETE left (a finalizer, a grace period), and who is in the way of anything else."""
        try:
            await refresh(self._api, self._cache, write.kind, write.namespace, write.name)
        except ClusterUnavailable as error:
            log.warning("the result of a write will be seen later: %s", error)

    async def _make_token(self, backend: Backend) -> Outcome:
        """Never read back: where it exists, it is what is derived, or its servers refuse us and we say so."""
        token = control_token(self._operator_key, backend.ref.uid)
        path = f"/api/v1/namespaces/{backend.ref.namespace}/secrets"
        return outcome_of(await self._api.call("POST", path, body=control_secret(backend, token)))

    def _owner(self, pod: Pod) -> str:
        raw = self._cache.get(Kind.POD, pod.ref.namespace, pod.ref.name)
        return owner_uid(raw) if raw is not None else ""

    async def post_event(self, event: Event) -> None:
        body = event_object(event, datetime.now(UTC))
        answer = await self._api.call("POST", f"/api/v1/namespaces/{namespace_of_events(event)}/events", body=body)
        if not answer.ok:
            log.info("Event %s of %s/%s is lost: %s", event.reason, event.namespace, event.name, answer.message)


def _names_a_taken_port(outcome: Outcome) -> TypeGuard[Denied]:
    return isinstance(outcome, Denied) and PORT_ALLOCATED in outcome.message


def _node_ports(service: Raw) -> set[int]:
    """Every number that a Service has from the node port range."""
    spec = service.get("spec", {})
    numbers = [port.get("nodePort") for port in spec.get("ports") or ()] + [spec.get("healthCheckNodePort")]
    return {number for number in numbers if number}
