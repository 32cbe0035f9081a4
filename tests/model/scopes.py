"""How large a world TLC searches: each scope is exhaustive within its bounds, and says what it is for."""

from dataclasses import dataclass, replace
from pathlib import Path

SPECIFICATION = (Path(__file__).parent / "ModelBackend.tla").read_text()
PROMISES = (Path(__file__).parent / "Promises.tla").read_text()
INVARIANTS = ("PortExclusive", "PortWithheld", "OneShutdownPerModel", "NoDoublePod")
STEP_PROMISES = (
    "GateBeforeClaim",
    "NeverAdvertiseDying",
    "ForceOnlyAfterDeadline",
    "EvidenceNotAbsence",
    "FinalizerLast",
)
SAFETY = INVARIANTS + STEP_PROMISES
LIVENESS = "Eventually"


@dataclass(frozen=True, slots=True)
class Scope:
    """Numbers of things; `faults` bounds late writes, lost machines and hands that reach in, of one behaviour."""

    name: str
    backends: int = 1
    ordinals: int = 1
    incarnations: int = 2
    ports: int = 1
    exposure: str = "HostPort"
    hands_over: bool = True
    surges: bool = False
    faults: int = 1
    promises: tuple[str, ...] = SAFETY

    def configuration(self) -> str:
        """The text of TLC's configuration file."""
        invariants = [name for name in self.promises if name in INVARIANTS]
        properties = [name for name in self.promises if name not in INVARIANTS]
        return "\n".join(
            [
                "CONSTANTS",
                f"  Backends = {{{', '.join('ab'[: self.backends])}}}",
                f"  Ordinals = {{{', '.join('ij'[: self.ordinals])}}}",
                f"  Incarnations = {{{', '.join(map(str, range(1, self.incarnations + 1)))}}}",
                f"  Ports = {{{', '.join('xyz'[: self.ports])}}}",
                "  None = None",
                f'  Exposure = "{self.exposure}"',
                f"  HandsOver = {str(self.hands_over).upper()}",
                f"  Surges = {str(self.surges).upper()}",
                f"  FaultsMax = {self.faults}",
                *(
                    ["SPECIFICATION FairSpec"]
                    if LIVENESS in self.promises
                    else ["SPECIFICATION Spec", "SYMMETRY Alike"]
                ),
                *([f"INVARIANTS {' '.join(invariants)}"] if invariants else []),
                *([f"PROPERTIES {' '.join(properties)}"] if properties else []),
            ]
        )

    def only(self, promise: str) -> "Scope":
        return replace(self, promises=(promise,))


ONE_HOST_PORT = Scope("one backend, one host port, any one fault")
ONE_NODE_PORT = Scope("one backend, one node port with its Service, any one fault", exposure="NodePort")
TWO_FOR_ONE_PORT = Scope("two backends and one port", backends=2, incarnations=1)
TWO_OF_ONE_MODEL = Scope(
    "two backends of one model, no port", backends=2, incarnations=1, ports=0, exposure="ClusterIP", faults=0
)
ENDS = Scope("everything ends, any one fault", exposure="NodePort", promises=(LIVENESS,))
ENDS_WAITING = replace(ENDS, name="everything ends, and nothing is handed over", hands_over=False)

SURGE = Scope("one backend that surges, no port, any one fault", ports=0, exposure="ClusterIP", surges=True)
WAITS = Scope(
    "one backend that waits for every end, no port, any one fault",
    ports=0,
    exposure="ClusterIP",
    hands_over=False,
    promises=(*SAFETY, LIVENESS),
)
WAITS_BEHIND_PORTS = Scope("one backend that waits for every end, two ports", ports=2, hands_over=False)

QUICK = (ONE_NODE_PORT, TWO_OF_ONE_MODEL, ENDS, SURGE, WAITS)
"""For every test run: under two minutes on two cores."""
FULL = (
    *QUICK,
    ONE_HOST_PORT,
    TWO_FOR_ONE_PORT,
    ENDS_WAITING,
    WAITS_BEHIND_PORTS,
    Scope("one backend, two ports", ports=2),
    Scope("one backend that surges from port to port", ports=2, surges=True),
    Scope(
        "one backend of two instances, no port, no fault",
        ordinals=2,
        incarnations=1,
        ports=0,
        exposure="ClusterIP",
        faults=0,
    ),
)
"""Ten minutes on two cores."""
