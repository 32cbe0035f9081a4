"""Whole lives as stories: what the operator writes, what the cluster does, in the order of a day without haste.

    python -m tests.sim.golden        writes tests/sim/golden/*.log anew

A change of the rules that changes a story shows it in review. Every promise is checked on the way.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from modelbackend_operator.model.backend import Backend, Exposure, WhenUnconfirmed
from tests.sim.endings import what_is_wrong
from tests.sim.scenarios import AGAIN, B1, B2, on_host
from tests.sim.simulation import Simulation
from tests.sim.world import World

FOLDER = Path(__file__).parent / "golden"
S = TypeVar("S", bound=Simulation)


@dataclass(frozen=True)
class Settle:
    """Until nothing happens any more, though some moves of the cluster do not come."""

    held: tuple[str, ...] = ()


SETTLE = Settle()


@dataclass(frozen=True)
class Story:
    name: str
    title: str
    backends: tuple[Backend, ...]
    script: tuple[Settle | str, ...]
    """What people and machines do, by the names that `hands.py` gives it, and when everybody else comes to rest."""
    nodes: tuple[str, ...] = ("node-1",)
    later: tuple[Backend, ...] = ()
    trusts_removal: bool = False


FOR_OTHERS = replace(B2, model="n")
TWO_INSTANCES = replace(B1, ordinals=(0, 1))

STORIES = (
    Story(
        "handed-over",
        "proof does not come: the port stays withheld, the deletion goes on; the kubelet returns, the port is freed",
        on_host(B1),
        (
            SETTLE,
            "the kubelet of node-1 stops",
            "delete b1",
            SETTLE,
            "the kubelet of node-1 returns",
            SETTLE,
        ),
    ),
    Story(
        "waited-for",
        "proof does not come, and whenUnconfirmed is Wait: the deletion waits for it",
        on_host(replace(B1, when_unconfirmed=WhenUnconfirmed.WAIT)),
        (SETTLE, "the kubelet of node-1 stops", "delete b1", SETTLE, "the kubelet of node-1 returns", SETTLE),
    ),
    Story(
        "vanished-inside",
        "a pod without a claim is torn out: status remembers it, the deletion waits, an administrator's word ends that",
        (replace(B1, exposure=Exposure.CLUSTER_IP, when_unconfirmed=WhenUnconfirmed.WAIT),),
        (
            SETTLE,
            "node-1 loses power",
            "tear pod-1 out past its finalizer",
            SETTLE,
            "delete b1",
            SETTLE,
            "attest the end of pod-1",
            SETTLE,
        ),
    ),
    Story(
        "attested",
        "a pod torn out past its finalizer, its machine off for good: an administrator's word frees the port",
        on_host(B1),
        (
            SETTLE,
            "node-1 loses power",
            "force-delete pod-2",
            "strip the finalizer of pod-2",
            SETTLE,
            "attest the end of pod-2",
            SETTLE,
        ),
    ),
    Story(
        "graceful",
        "a backend starts, serves a request and is deleted while it runs",
        (B1,),
        (SETTLE, "a request reaches pod-2", "delete b1", SETTLE),
    ),
    Story(
        "forced",
        "a request does not finish, and is cut at the deadline",
        (B1,),
        (SETTLE, "a request reaches pod-2", "delete b1", Settle(("finish",))),
    ),
    Story(
        "busy",
        "without escalation a busy instance is left to finish, also past its deadline",
        (replace(B1, escalate=False),),
        (SETTLE, "a request reaches pod-2", "delete b1", Settle(("finish",)), SETTLE),
    ),
    Story(
        "inside",
        "a backend without a claim, for callers inside",
        (replace(B1, exposure=Exposure.CLUSTER_IP),),
        (SETTLE, "delete b1", SETTLE),
    ),
    Story(
        "edited",
        "a new template: the instance restarts behind the same port",
        on_host(B1),
        (SETTLE, "edit the template of b1", SETTLE),
    ),
    Story(
        "two-instances",
        "two instances of one backend are restarted one after the other, then suspended and resumed",
        (TWO_INSTANCES,),
        (SETTLE, "edit the template of b1", SETTLE, "suspend b1", SETTLE, "resume b1", SETTLE),
    ),
    Story(
        "two-of-one-model",
        "two backends of one model are deleted at once, and end one after the other",
        (B1, B2),
        (SETTLE, "delete b1", "delete b2", SETTLE),
    ),
    Story(
        "evicted",
        "others delete the pod: the instance comes back behind its port, after proof",
        (B1,),
        (SETTLE, "evict pod-2", SETTLE),
    ),
    Story(
        "force-deleted",
        "others delete the pod with grace 0: its finalizer keeps its last word",
        on_host(B1),
        (SETTLE, "force-delete pod-2", SETTLE),
    ),
    Story(
        "torn-out",
        "a pod is torn out past its finalizer: its port stays withheld, the instance starts on another",
        on_host(B1),
        (SETTLE, "force-delete pod-2", "strip the finalizer of pod-2", SETTLE, "delete b1", SETTLE),
    ),
    Story(
        "crashed",
        "the server crashes and is restarted by its kubelet",
        (B1,),
        (SETTLE, "the server of pod-2 crashes", SETTLE),
    ),
    Story(
        "rejected",
        "its node rejects the pod at admission: another is made",
        (B1,),
        (Settle(("run",)), "node-1 rejects pod-2", SETTLE),
    ),
    Story(
        "machine-lost",
        "the machine loses power, its pod is evicted, and it boots again",
        on_host(B1),
        (SETTLE, "node-1 loses power", SETTLE, "node-1 boots", SETTLE),
    ),
    Story(
        "node-removed",
        "the Node object is removed while its machine runs on",
        on_host(B1),
        (
            SETTLE,
            "the kubelet of node-1 stops",
            "Node node-1 is removed",
            SETTLE,
            "the kubelet of node-1 returns",
            SETTLE,
        ),
        nodes=("node-1", "node-2"),
    ),
    Story(
        "node-returned",
        "a Node is removed, which counts as proof, and its machine is back: the port is withheld again",
        on_host(B1),
        (
            SETTLE,
            "delete b1",
            "the kubelet of node-1 stops",
            "Node node-1 is removed",
            SETTLE,
            "the kubelet of node-1 returns",
            SETTLE,
            "attest the end of pod-2",
            SETTLE,
        ),
        nodes=("node-1", "node-2"),
        trusts_removal=True,
    ),
    Story(
        "made-again",
        "deleted, and made again under the same name",
        (B1,),
        (SETTLE, "delete b1", SETTLE, "create b1-again", SETTLE),
        later=(AGAIN,),
    ),
    Story(
        "made-again-beside",
        "made again under its name while the old one's process lives: it gets another port, the old one stays withheld",
        on_host(B1),
        (
            SETTLE,
            "the kubelet of node-1 stops",
            "delete b1",
            SETTLE,
            "create b1-again",
            SETTLE,
            "the kubelet of node-1 returns",
            SETTLE,
        ),
        later=on_host(AGAIN),
        nodes=("node-1", "node-2"),
    ),
    Story(
        "namespace-gone",
        "the namespace is deleted with everything in it",
        (B1, FOR_OTHERS),
        (SETTLE, "delete the namespace", SETTLE),
    ),
    Story(
        "in-the-foreground", "deleted with --cascade=foreground", (B1,), (SETTLE, "delete b1 in the foreground", SETTLE)
    ),
    Story(
        "hands",
        "a claim, a Service and the Lease are deleted by hand",
        (B1,),
        (SETTLE, "delete port-30000", "delete service-4", "suspend b1", SETTLE),
    ),
)


def lived(story: Story, simulating: Callable[[World], S]) -> S:
    """Once it is over. Raises where a promise breaks or a hand finds nothing to do."""
    world = World(
        *story.backends,
        later=story.later,
        nodes=story.nodes,
        pool=(30000, 30001),
        trusts_removal=story.trusts_removal,
    )
    simulation = simulating(world)
    for part in story.script:
        if isinstance(part, Settle):
            simulation.settle(heals=False, held=part.held)
        else:
            assert simulation.take(("hand", part)), f"{story.name}: nobody can {part}\n" + "\n".join(simulation.story)
            simulation.story[-1] = f"*   {part}"
    return simulation


def written(story: Story) -> str:
    """The story, and what is left in the end."""
    simulation = lived(story, Simulation)
    return "\n".join([f"# {story.title}", "", *simulation.story, "", "what is left:", *_left(simulation.world), ""])


def _left(world: World) -> list[str]:
    lines = []
    for uid, thing in sorted(world.state.objects.items()):
        words = [getattr(thing, name, None) for name in ("port", "phase", "pod_uid", "node_port")]
        lines.append(f"    {type(thing).__name__} {uid} " + " ".join(str(word) for word in words if word))
    lines += [f"    a process of {uid} on {run.node}" for uid, run in sorted(world.state.servers.items())]
    lines += [f"    but {wrong}" for wrong in what_is_wrong(world)]
    return lines or ["    nothing"]


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.log"):
        old.unlink()
    for story in STORIES:
        (FOLDER / f"{story.name}.log").write_text(written(story))
    print(f"golden: {len(STORIES)} stories in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
