"""Which ports the next pod of an instance gets: one for each role, all of them or none.

Two instances that each kept one of the last two ports would wait for one another for ever. So:
- nothing is claimed while fewer ports are free than are missing;
- of those that are missing the lower number is claimed first (`starting.py`), so that of several instances which want
  the same last two, one gets both;
- who must wait for one port keeps no other: what is reserved goes back, and what cools is freed when it has cooled
  (`settling.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from modelbackend_operator.instances import holders_left, pods_of, port_fits, reserved_claim, wanted
from modelbackend_operator.model.backend import Backend, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.reasons import Reason

MAX_PORT = 65535
PIN_FIELDS = {PortRole.GRPC: "exposure.nodePort", PortRole.HTTP: "exposure.http.nodePort"}


@dataclass(frozen=True, slots=True)
class Lack:
    """There is no port for some role now, and why."""

    reason: Reason
    message: str


Allotment = Mapping[PortRole, Claim | int]
"""By role: a claim that is Reserved, or Cooling and to be taken back; or the number of a port to be claimed."""


def allotment(observation: Observation, backend: Backend, ordinal: int) -> Allotment | Lack:
    found: dict[PortRole, Claim | int] = {}
    for role in backend.roles:
        claim = reserved_claim(observation, ordinal, role) or _cooling_claim(observation, backend, ordinal, role)
        port = claim if claim is not None else _new_port(observation, backend, ordinal, role, found)
        if isinstance(port, Lack):
            return port
        found[role] = port
    return found


def is_allotted(observation: Observation, claim: Claim) -> bool:
    """The next pod of its instance is to get this claim, together with all others that it needs."""
    backend = observation.backend
    if backend is None or not wanted(observation, claim.ordinal):
        return False
    found = allotment(observation, backend, claim.ordinal)
    return not isinstance(found, Lack) and found.get(claim.role) == claim


def _cooling_claim(observation: Observation, backend: Backend, ordinal: int, role: PortRole) -> Claim | None:
    """The one to be taken back: callers then find the instance where it was.

    None while an earlier pod's object exists, and when the instance is not to be started.
    """
    if backend.refused or observation.namespace_terminating or pods_of(observation, ordinal):
        return None
    fitting = (
        claim
        for claim in observation.claims
        if (claim.ordinal, claim.role, claim.phase) == (ordinal, role, ClaimPhase.COOLING) and not claim.terminating
        if port_fits(backend, claim) and claim.port not in observation.ports.taken and claim.reason != Reason.PORT_TAKEN
        if not holders_left(observation, claim) and not claim.returned
    )
    return min(fitting, key=lambda claim: claim.port, default=None)


def _new_port(observation: Observation, backend: Backend, ordinal: int, role: PortRole, found: Allotment) -> int | Lack:
    own = {claim.port: claim for claim in observation.claims}
    pinned = backend.pin(role)
    if pinned is not None:
        return _pinned(observation, role, pinned, own.get(pinned))
    pins = {backend.pin(other) for other in backend.roles}
    promised = pins | {port for port in found.values() if isinstance(port, int)}
    for port in _probed(observation, backend, ordinal):
        if port not in observation.ports.taken and port not in own and port not in promised:
            return port
    return Lack(Reason.PORT_POOL_EXHAUSTED, _exhaustion(observation, backend))


def _pinned(observation: Observation, role: PortRole, port: int, own: Claim | None) -> int | Lack:
    pin = PIN_FIELDS[role]
    if own is not None:
        ends = (
            "the reuse delay ends" if own.phase is ClaimPhase.COOLING else f"pod {own.pod_name} is proven to have ended"
        )
        message = f"port {port} is {own.phase} by this backend until {ends}; remove {pin} to start on another"
        return Lack(Reason.PINNED_PORT_WITHHELD, message)
    if port in observation.ports.taken:
        who = observation.ports.taken_by.get(port, "an object outside this operator")
        message = (
            f"port {port} of {pin} is held by {who}; "
            f"pin another port, remove the pin, or delete the holder (kubectl get portclaim port-{port})"
        )
        return Lack(Reason.PINNED_PORT_TAKEN, message)
    return port


def _probed(observation: Observation, backend: Backend, ordinal: int) -> Iterator[int]:
    """Ports that are taken on some node come last."""
    yield from sorted(probe_order(observation, backend, ordinal), key=lambda port: port in observation.ports.taken_on)


def probe_order(observation: Observation, backend: Backend, ordinal: int) -> Iterator[int]:
    """Every port of the pools once, in the instance's own order: a repeated attempt asks for the same first."""
    first, last = backend.port_range or (0, MAX_PORT)
    ports = [port for pool in observation.ports.pools for port in range(max(first, pool[0]), min(last, pool[1]) + 1)]
    yield from Random(f"{backend.ref.uid}/{ordinal}").sample(ports, len(ports))


def _exhaustion(observation: Observation, backend: Backend) -> str:
    ports = observation.ports
    pool = ", ".join(f"{first}-{last}" for first, last in ports.pools)
    if backend.port_range is not None:
        pool = f"{backend.port_range[0]}-{backend.port_range[1]} (exposure.portRange, within {pool})"
    own = Counter(str(claim.phase) for claim in observation.claims)
    counts = [f"{count} {phase} by other backends" for phase, count in sorted(ports.taken_in.items())]
    counts += [f"{count} {phase} by this backend" for phase, count in sorted(own.items())]
    outside = len(ports.taken) - sum(ports.taken_in.values())
    counts += [f"{outside} held outside this operator"] if outside > 0 else []
    needed = "no free" if len(backend.roles) == 1 else f"an instance needs {len(backend.roles)} ports: not so many free"
    return (
        f"{needed} {backend.exposure} port in {pool}: {', '.join(counts) or 'it is empty'}; "
        "delete a backend, wait for a cooling claim, or have the pool widened (kubectl get portclaims)"
    )
