"""Every command of the tutorials, as a reader would type it, and what they say that it prints."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.backends import WEIGHTS
from e2e.cluster.kind_cluster import is_ready
from e2e.cluster.nodes import KindNodes, UnsupportedNodes, node_control
from e2e.conftest import ROOT, is_ending, smollm2
from e2e.kubectl import Kubectl, until
from e2e.transcript import commands, fits, outputs
from e2e.weights import fill_volume

TUTORIALS = ROOT / "docs/tutorials"
NAMESPACE = "tutorial"
"""As the tutorials say it."""


@pytest.fixture
def shell(kubectl: Kubectl, operator: str) -> Iterator[dict[str, str]]:
    """The environment of a reader who has all that a tutorial asks for."""
    assert operator
    until("no earlier tutorial is ending", lambda: not is_ending(kubectl.get("namespace", NAMESPACE)))
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield {"KUBECONFIG": str(kubectl.kubeconfig), "MODEL": str(smollm2()), "PATH": programs}
    kubectl.delete("namespace", NAMESPACE)


def test_the_first_model_is_served_asked_changed_and_ended(shell: dict[str, str]) -> None:
    follow("first-model.md", shell)


def test_two_models_take_turns_on_a_gpu(kubectl: Kubectl, shell: dict[str, str]) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    fill_volume(kubectl, NAMESPACE, WEIGHTS, {"model.gguf": smollm2()})
    follow("two-models-one-gpu.md", shell)


def test_a_model_in_git_is_applied_again_and_again_scaled_planned_and_pruned(
    kubectl: Kubectl, shell: dict[str, str]
) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    fill_volume(kubectl, NAMESPACE, WEIGHTS, {"model.gguf": smollm2()})
    follow("gitops.md", shell)


@pytest.fixture
def nodes(kubectl: Kubectl) -> Iterator[KindNodes]:
    """All are well again afterwards."""
    names = [node["metadata"]["name"] for node in kubectl.list("nodes")]
    match node_control(names):
        case UnsupportedNodes(reason):
            pytest.skip(reason)
        case KindNodes() as control:
            yield control
            for name in names:
                control.start(name)
            until("every node is well", lambda: all(is_ready(node) for node in kubectl.list("nodes")))


@pytest.mark.node_faults
def test_a_node_is_lost_with_a_model_on_it_and_its_port_is_kept_until_somebody_knows(
    kubectl: Kubectl, shell: dict[str, str], nodes: KindNodes
) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    fill_volume(kubectl, NAMESPACE, WEIGHTS, {"model.gguf": smollm2()})
    follow("lost-node.md", {**nodes.docker.env, **shell})


def follow(tutorial: str, environment: dict[str, str]) -> None:
    script = commands((TUTORIALS / tutorial).read_text())
    for command, printed in zip(script, outputs(script, ROOT, environment), strict=True):
        assert fits(command.shown, printed), f"`{command.line}` printed:\n{printed}\n\nthe page shows:\n{command.shown}"
