"""How GitOps tools read a ModelBackend, in every phase: by their own code, as a person would say it.

kstatus (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus) decides for Flux, `kpt` and Helm; Argo CD
runs a script, which is in examples/argocd.
"""

import json
import subprocess

import pytest
import yaml

from e2e.helm.chart import ROOT
from e2e.helm.programs import build
from tests.gitops.recorded import Object, all_recorded, condition

SCRIPT = ROOT / "examples/argocd/health.lua"

PROGRESS = ("InProgress", "Progressing")
FAILED = ("Failed", "Degraded")
BY_REASON = {
    "WaitingForOperator": PROGRESS,
    "Ready": ("Current", "Healthy"),
    "Starting": PROGRESS,
    "ModelLoading": PROGRESS,
    "Preparing": PROGRESS,
    "RollingOut": PROGRESS,
    "Draining": PROGRESS,
    "Busy": PROGRESS,
    "AwaitingProof": PROGRESS,
    "WaitingForModelLock": PROGRESS,
    "NamespaceTerminating": PROGRESS,
    "Suspended": ("Current", "Suspended"),
    "NoInstances": ("Current", "Suspended"),
}
"""What kstatus and Argo CD say of one that is not being deleted, by the reason of Ready. Other reasons: FAILED."""


def expected(raw: Object) -> tuple[str, str]:
    if "deletionTimestamp" in raw["metadata"]:
        return ("Terminating", "Progressing")
    if raw["status"]["observedGeneration"] != raw["metadata"]["generation"]:
        return PROGRESS
    if condition(raw, "Reconciling").get("reason") == "NamespaceTerminating":
        return PROGRESS  # it serves until it is deleted with its namespace
    reason = condition(raw, "Ready")["reason"]
    if reason == "ServerSilent" and "readiness probe" in condition(raw, "Ready")["message"]:
        return PROGRESS  # it served a moment ago; its kubelet restarts it if that lasts
    return BY_REASON.get(reason, FAILED)


@pytest.fixture(scope="module")
def recorded() -> list[Object]:
    return all_recorded()


def judge(program: str, objects: list[Object], *arguments: str) -> list[Object]:
    command = [str(build() / program), *arguments]
    done = subprocess.run(command, input=json.dumps(objects), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[Object] = json.loads(done.stdout)
    return answers


def wrong(recorded: list[Object], answers: list[Object], which: int) -> list[str]:
    return [
        f"{answer['status']} ({answer['message']}) instead of {expected(raw)[which]}: {json.dumps(raw['status'])}"
        for raw, answer in zip(recorded, answers, strict=True)
        if answer["status"] != expected(raw)[which]
    ]


def test_lives_and_rows_show_every_phase(recorded: list[Object]) -> None:
    """The tests below are about all of them."""
    assert {expected(raw) for raw in recorded} >= {
        ("InProgress", "Progressing"),
        ("Current", "Healthy"),
        ("Failed", "Degraded"),
        ("Terminating", "Progressing"),
        ("Current", "Suspended"),
    }
    assert len({condition(raw, "Ready")["reason"] for raw in recorded}) > 15
    assert len(recorded) > 100


def test_kstatus_says_what_a_person_would(recorded: list[Object]) -> None:
    assert wrong(recorded, judge("kstatus", recorded), 0) == []


def test_argo_cd_says_what_a_person_would(recorded: list[Object]) -> None:
    assert wrong(recorded, judge("argo-health", recorded, str(SCRIPT)), 1) == []


def test_argo_cd_tells_why(recorded: list[Object]) -> None:
    answers = judge("argo-health", recorded, str(SCRIPT))
    for raw, answer in zip(recorded, answers, strict=True):
        if answer["status"] == "Degraded":
            assert answer["message"].startswith(f"{condition(raw, 'Stalled')['reason']}: ")


def test_an_object_without_any_status_is_in_progress() -> None:
    """Of an API server that does not apply the default of the kind."""
    bare = {"apiVersion": "modelbackend.dev/v1alpha1", "kind": "ModelBackend", "metadata": {"generation": 1}}
    (answer,) = judge("argo-health", [bare], str(SCRIPT))
    assert answer["status"] == "Progressing"


def test_the_config_map_has_the_script_word_for_word() -> None:
    config = yaml.safe_load((ROOT / "examples/argocd/argocd-cm.yaml").read_text())
    assert config["data"]["resource.customizations.health.modelbackend.dev_ModelBackend"] == SCRIPT.read_text()
