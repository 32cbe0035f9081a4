"""How Flux, Helm and whoever else reads kstatus see a live ModelBackend, in every phase: by the library itself.

Prints the table of what was seen (`pytest -s`).
"""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, TINY, WEIGHTS, Backend, stream
from e2e.helm.programs import build
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]


class Table:
    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def see(self, phase: str, one: Backend, expected: str) -> None:
        """Waits until the library says so, and keeps what it says."""

        def seen() -> tuple[Object, Object] | None:
            found = one.object
            assert found is not None, f"{one.name} is gone"
            verdict = judged(found)
            return (found, verdict) if verdict["status"] == expected else None

        found, verdict = until(f"{one.name} {phase}: {expected}", seen)
        ready: Object = next((c for c in found["status"].get("conditions", ()) if c["type"] == "Ready"), {})
        reason = f"{ready.get('status', '-')} {ready.get('reason', '-')}"
        self.rows.append((phase, reason, verdict["status"], verdict["message"]))


def judged(raw: Object) -> Object:
    done = subprocess.run(
        [str(build() / "kstatus")], input=json.dumps([raw]), capture_output=True, text=True, check=True, timeout=60
    )
    (verdict,) = json.loads(done.stdout)
    assert isinstance(verdict, dict)
    return verdict


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    yield table
    print()
    for phase, ready, verdict, message in (("phase", "Ready", "kstatus", "message"), *table.rows):
        print(f"| {phase} | {ready} | {verdict} | {message} |")


def change(kubectl: Kubectl, one: Backend, **spec: object) -> None:
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": spec})


def test_kstatus_sees_a_whole_life_as_a_person_would(kubectl: Kubectl, backend: Make, table: Table) -> None:
    one = backend("kstatus-life", file=SMOLLM2)
    table.see("just applied", one, "InProgress")
    address = one.until_ready()
    table.see("serves", one, "Current")
    running = stream(address, *STREAM)
    change(kubectl, one, runtime={"slots": 2})
    table.see("edited while a request runs", one, "InProgress")
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    table.see("serves the new spec", one, "Current")
    change(kubectl, one, suspend=True)
    until("it is suspended", lambda: one.condition("Ready").get("reason") == "Suspended" and not one.pods())
    table.see("suspended", one, "Current")
    change(kubectl, one, suspend=False)
    address = one.until_ready()
    running = stream(address, *STREAM)
    one.delete()
    table.see("deleted while a request runs", one, "Terminating")
    running.communicate(timeout=STREAM_SECONDS)
    one.until_gone()


@pytest.mark.parametrize(
    ("phase", "reason", "spec"),
    [
        ("no node has so many GPUs", "Unschedulable", {"resources": {"limits": {"nvidia.com/gpu": 99}}}),
        ("no such image", "ImageUnavailable", {"runtime": {"image": "localhost/no-such-image:1"}}),
        (
            "no such file",
            "ModelFileMissing",
            {"model": {"source": {"persistentVolumeClaim": {"claimName": WEIGHTS, "path": f"no-{TINY}"}}}},
        ),
    ],
)
def test_kstatus_says_failed_where_a_person_must_look(
    backend: Make, table: Table, phase: str, reason: str, spec: Object
) -> None:
    one = backend(f"kstatus-{reason.lower()}", **spec)
    one.until_stalled(reason)
    table.see(phase, one, "Failed")
    one.delete()
    one.until_gone()
