"""The lifecycle as it is: state diagrams drawn from walks of the real rules.

    python -m tests.model.lifecycle        writes docs/lifecycle.md anew

Each arrow is a change that a walk has seen, with the writes of the operator (by their names in actions.py) or the
doings of the cluster that made it. Nothing here is drawn by hand.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from modelbackend_operator.actions import Action
from modelbackend_operator.instance_status import instance_of
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.outcome import Outcome
from tests.sim.world import World
from tests.unit.builders import a_backend
from tests.unit.walk import Walk

DOCUMENT = Path(__file__).parents[2] / "docs" / "lifecycle.md"
NOTHING = "[*]"
DOINGS = {
    "schedule": "scheduled",
    "run": "container starts",
    "load": "model loaded",
    "report": "kubelet reports it running",
    "ready": "kubelet counts it ready",
    "end": "kubelet ends it",
    "remove": "object removed",
    "delete": "others delete the pod",
    "tear": "object torn out",
    "reject": "node rejects the pod",
}
Arrows = dict[tuple[str, str], set[str]]


@dataclass
class WatchedWalk(Walk):
    instance_arrows: Arrows = field(default_factory=lambda: defaultdict(set))
    claim_arrows: Arrows = field(default_factory=lambda: defaultdict(set))
    instances: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)

    def _write(self, look: Observation, action: Action, how: str = "") -> Outcome:
        outcome = super()._write(look, action, how)
        self.note(type(action).__name__)
        return outcome

    def _move(self) -> bool:
        moved = super()._move()
        if moved:
            self.note(DOINGS.get(self.story[-1].split()[0], self.story[-1].split()[0]))
        return moved

    def note(self, cause: str) -> None:
        """What has changed since the last note is the work of `cause`."""
        self.instances = _changes(self.instances, dict(_instance_phases(self.world)), cause, self.instance_arrows)
        claims = {claim.ref.uid: str(claim.phase) for claim in self.world.state.all(Claim)}
        self.claims = _changes(self.claims, claims, cause, self.claim_arrows)


def _instance_phases(world: World) -> Iterator[tuple[str, str]]:
    for backend in world.state.all(Backend):
        look = world.observe(backend.ref.uid)
        for ordinal in {pod.ordinal for pod in look.pods} | set(backend.ordinals):
            seen = instance_of(look, backend, ordinal, (), world.now)
            yield f"{backend.ref.uid}/{ordinal}", str(seen.phase)


def _changes(before: dict[str, str], after: dict[str, str], cause: str, arrows: Arrows) -> dict[str, str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, NOTHING), after.get(name, NOTHING)
        if old != new:
            arrows[old, new].add(cause)
    return after


def watched() -> tuple[Arrows, Arrows]:
    """The arrows of every walk below."""
    instances: Arrows = defaultdict(set)
    claims: Arrows = defaultdict(set)
    for walk in (_whole_life(), _torn_out(), _evicted(), _rejected(), _never_scheduled()):
        for arrows, found in ((instances, walk.instance_arrows), (claims, walk.claim_arrows)):
            for ends, causes in found.items():
                arrows[ends] |= causes
    return instances, claims


def _started(**faults: tuple[str, ...]) -> WatchedWalk:
    backend = a_backend(ref=Ref("main", "main-uid", "", "models"), has_finalizer=False)
    walk = WatchedWalk(World(backend), **faults)  # type: ignore[arg-type]
    walk.note("applied")
    walk.settle()
    return walk


def _pod(walk: Walk) -> Pod:
    (pod,) = walk.world.state.all(Pod)
    return pod


def _deleted(walk: WatchedWalk) -> WatchedWalk:
    walk.world.delete_backend("main-uid")
    walk.note("others delete the backend")
    walk.settle()
    return walk


def _whole_life() -> WatchedWalk:
    """Started, restarted for a new spec with a request inside, deleted."""
    walk = _started()
    walk.world.request(_pod(walk))
    walk.world.edit(walk.world.state.all(Backend)[0], template_hash="hash-2")
    walk.settle()
    return _deleted(walk)


def _torn_out() -> WatchedWalk:
    walk = _started()
    walk.world.remove(_pod(walk))
    walk.note(DOINGS["tear"])
    walk.settle()
    return _deleted(walk)


def _evicted() -> WatchedWalk:
    walk = _started()
    walk.world.delete_pod(_pod(walk))
    walk.note(DOINGS["delete"])
    walk.settle()
    return walk


def _rejected() -> WatchedWalk:
    walk = _started(held=("run",))
    words = "Pod was rejected: Allocate failed due to no healthy devices present"
    walk.world.edit(_pod(walk), phase=PodPhase.FAILED, phase_reason="UnexpectedAdmissionError", phase_message=words)
    walk.note(DOINGS["reject"])
    walk.held = ()
    walk.settle()
    return walk


def _never_scheduled() -> WatchedWalk:
    return _deleted(_started(held=("schedule",)))


# -- the document -----------------------------------------------------------------------------------------------------


def document() -> str:
    instances, claims = watched()
    unseen = [phase for phase in map(str, ClaimPhase) if not any(phase in ends for ends in claims)]
    assert not unseen, f"no walk has seen a claim {unseen}"
    return f"""# The lifecycle, as the rules make it

Drawn from walks of the real rules through a fake cluster (`make docs-diagrams`); a test fails when it is stale. An
arrow carries everything that was seen to make that change: names in `CamelCase` are writes of the operator, classes of
[actions.py](../operator/modelbackend_operator/actions.py); the rest is done by the cluster or by people.

## An instance: `status.instances[].phase`

{_diagram(instances)}

`Waiting`: there is no pod. From `Unconfirmed` an instance starts on another port; its old one stays withheld.

## A port: `PortClaim.status.phase`

{_diagram(claims)}

Only evidence leads from `Bound` or `Withheld` to `Cooling`; `Withheld` has no arrow of time.
"""


def _diagram(arrows: Arrows) -> str:
    lines = [f"    {old} --> {new}: {', '.join(sorted(causes))}" for (old, new), causes in sorted(arrows.items())]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def main() -> None:
    DOCUMENT.write_text(document())
    print(f"wrote {DOCUMENT.name}")


if __name__ == "__main__":
    main()
