"""Names that are legal but awkward, and tenants who must not meet."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import TINY, Backend, claims_of, generate, manifest
from e2e.conftest import tenant
from e2e.kubectl import Kubectl, KubectlError, until
from e2e.weights import tiny_model

Make = Callable[..., Backend]

AWKWARD = ["llama-3.2-1b", "7b-chat", "x" * 63, "a", "a-0"]


def test_awkward_names_serve_side_by_side(backend: Make) -> None:
    backends = [backend(name, resources={"limits": None}) for name in AWKWARD]  # more of them than a node has GPUs
    addresses = {one.until_ready() for one in backends}
    assert len(addresses) == len(AWKWARD)
    for address in addresses:
        assert generate(address, "Hello", "--max-tokens", "2") is not None
    for one in backends:
        one.delete()
    for one in backends:
        one.until_gone()


@pytest.fixture
def tenants(kubectl: Kubectl, operator: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    assert operator
    weights = {TINY: tiny_model(tmp_path / TINY)}
    first, second = tenant(kubectl, "tenant-a", weights), tenant(kubectl, "tenant-b", weights)
    yield next(first), next(second)
    for ending in (first, second):
        next(ending, None)


def as_editor_of(kubectl: Kubectl, namespace: str) -> Kubectl:
    """A person whose only right is the role `edit` in that namespace."""
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "person", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "person", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "person", "namespace": namespace}],
        },
    )
    return kubectl.as_token(kubectl.run("create", "token", "person", "-n", namespace).strip())


def test_tenants_use_their_own_backends_and_cannot_touch_anothers(kubectl: Kubectl, tenants: tuple[str, str]) -> None:
    anna_in, bert_in = tenants
    anna, bert = as_editor_of(kubectl, anna_in), as_editor_of(kubectl, bert_in)
    anna.apply(manifest("same-name", anna_in))
    bert.apply(manifest("same-name", bert_in))
    annas, berts = Backend(anna, "same-name", anna_in), Backend(bert, "same-name", bert_in)
    assert annas.until_ready() != berts.until_ready()
    for refused in (
        lambda: bert.get("modelbackend", "same-name", anna_in),
        lambda: bert.delete("modelbackend", "same-name", anna_in),
        lambda: bert.list("portclaims"),
    ):
        with pytest.raises(KubectlError, match="forbidden"):
            refused()
    (instance,) = annas.status["instances"]
    (claim,) = claims_of(kubectl, annas.uid)
    assert (instance["port"], instance["pod"]) == (claim["spec"]["port"], claim["status"]["pod"])
    with pytest.raises(KubectlError, match="forbidden"):
        anna.delete("portclaim", claim["metadata"]["name"])
    annas.delete()
    annas.until_gone()
    assert berts.condition("Ready")["status"] == "True"
    berts.delete()
    until("both are gone", lambda: berts.object is None)
