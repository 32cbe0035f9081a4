"""What the chart renders, for every combination of values, without a cluster."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.helm.chart import NAMESPACE, ROOT, ChartError, Object, objects, render
from e2e.helm.manifests import written
from modelbackend_operator.settings import Settings
from tests.chart.matrix import VALUES
from tests.chart.pod_security import breaches
from tests.crd_files import PLURALS, read_crd

PREFIX = "MODELBACKEND_OPERATOR_"


@pytest.fixture(scope="module", params=list(VALUES.values()), ids=list(VALUES))
def rendered(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[Object]]:
    return request.param, objects(render(request.param))


def of_kind(found: list[Object], kind: str) -> list[Object]:
    return [one for one in found if one["kind"] == kind]


def pod_specs(found: list[Object]) -> Iterator[Object]:
    for one in found:
        if one["kind"] == "Pod":
            yield one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["spec"]["template"]["spec"]


def deployment(found: list[Object]) -> Object:
    (one,) = of_kind(found, "Deployment")
    return one


def environment(found: list[Object]) -> dict[str, str]:
    (container,) = deployment(found)["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", NAMESPACE) for one in container["env"]}


def test_what_is_rendered_is_whole(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    _, found = rendered
    names = Counter((one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found)
    assert [name for name, times in names.items() if times > 1] == []
    for one in found:
        assert one["apiVersion"]
        if one["kind"] != "CustomResourceDefinition":
            assert one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_a_key_that_is_written_twice_is_noticed() -> None:
    with pytest.raises(yaml.YAMLError, match="written twice: a"):
        objects("a: 1\nb: 2\na: 3\n")


def test_every_pod_fits_the_restricted_standard(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    specs = list(pod_specs(rendered[1]))
    assert specs
    for spec in specs:
        assert breaches(spec) == []
        assert all(container["resources"]["limits"]["memory"] for container in spec["containers"])


def test_a_pod_that_does_not_fit_is_noticed() -> None:
    loose = {"hostNetwork": True, "containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    assert len(breaches(loose)) == 7


def test_both_kinds_are_rendered_whatever_the_values_and_are_kept(
    rendered: tuple[dict[str, Any], list[Object]],
) -> None:
    crds = {one["spec"]["names"]["plural"]: one for one in of_kind(rendered[1], "CustomResourceDefinition")}
    assert sorted(crds) == sorted(PLURALS)
    for plural, crd in crds.items():
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert crd == read_crd(plural)


def test_copies_are_up_to_date() -> None:
    """`make manifests` writes them."""
    stale = [str(path.relative_to(ROOT)) for path, text in written().items() if path.read_text() != text]
    assert stale == []


def test_the_selector_never_changes_because_it_never_can(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    values, found = rendered
    one = deployment(found)
    name = values.get("fullnameOverride", "modelbackend-operator")
    assert one["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": name}}
    assert one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == name


def test_nothing_but_the_operator_is_selected_as_the_operator(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    values, found = rendered
    name = values.get("fullnameOverride", "modelbackend-operator")
    pods = [one for one in found if one["kind"] == "Pod"]
    pods += [one["spec"]["template"] for one in of_kind(found, "Job")]
    assert [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/name"] == name] == []
    for service in of_kind(found, "Service"):
        assert service["spec"]["selector"] == {"app.kubernetes.io/name": name}


def test_one_replica_is_replaced_and_several_elect_a_leader(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    values, found = rendered
    several = values.get("replicas", 1) > 1
    spec = deployment(found)["spec"]
    assert spec["strategy"]["type"] == ("RollingUpdate" if several else "Recreate")
    assert (environment(found).get(f"{PREFIX}LEADER_ELECTION") == "true") is several
    assert bool(of_kind(found, "PodDisruptionBudget")) is several
    assert bool(spec["template"]["spec"].get("topologySpreadConstraints")) is several


# -- rights ------------------------------------------------------------------------------------------------------------


def rules(found: list[Object]) -> Iterator[tuple[Object, Object]]:
    for one in found:
        for rule in one.get("rules", ()):
            yield one, rule


def test_no_right_is_a_wildcard_and_no_secret_can_be_listed(rendered: tuple[dict[str, Any], list[Object]]) -> None:
    for one, rule in rules(rendered[1]):
        words = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
        assert "*" not in words, one["metadata"]["name"]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert not {"pods/exec", "pods/portforward", "nodes/proxy"} & set(rule["resources"])
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
            assert (rule["verbs"], rule["resourceNames"]) == (["get"], ["modelbackend-operator-control-key"])


def test_with_some_namespaces_rights_on_pods_exist_in_those_only() -> None:
    found = objects(render({"watchNamespaces": ["models"]}))
    everywhere = [rule for one, rule in rules(found) if one["kind"] == "ClusterRole"]
    ours = {resource for rule in everywhere for resource in rule["resources"]}
    users = {"modelbackends", "modelbackends/scale", "modelbackends/status"}
    assert ours - users == {"portclaims", "portclaims/status", "nodes", "namespaces"}
    pods_in = {one["metadata"]["namespace"] for one, rule in rules(found) if "pods" in rule["resources"]}
    assert pods_in == {"models", NAMESPACE}
    assert environment(found)[f"{PREFIX}WATCH_NAMESPACES"] == f"{NAMESPACE},models"


# -- values -----------------------------------------------------------------------------------------------------------


def test_every_setting_of_the_chart_reaches_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    values = VALUES["every setting"]
    for name, value in environment(objects(render(values))).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.node_ports == ((30000, 30085), (31000, 31010))
    assert settings.allow_host_path is True
    given = {re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name): v for name, v in values["settings"].items()}
    told = settings.model_dump(mode="json")
    assert {name: told[name] for name in given} == given


def test_the_chart_knows_every_setting_but_those_it_makes_itself() -> None:
    given = {
        re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name) for name in VALUES["every setting"]["settings"]
    }
    made = {"namespace", "server_image", "leader_election", "watch_namespaces"}
    inside_a_pod_fixed = {"control_path", "http_port", "http_host"}
    assert given | made | inside_a_pod_fixed == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 2}, "'replica' not allowed"),
        ({"replicas": 0}, "/replicas"),
        ({"replicas": "two"}, "/replicas"),
        ({"settings": {"nodePorts": "30000"}}, "nodePorts"),
        ({"settings": {"nodeports": "30000-30001"}}, "'nodeports' not allowed"),
        ({"settings": {"evidenceNodeRemoved": "Maybe"}}, "evidenceNodeRemoved"),
        ({"uninstall": {"guard": "Ask"}}, "guard"),
        ({"watchNamespaces": ["Models"]}, "watchNamespaces"),
        ({"networkPolicy": {"backends": [{}]}}, "namespace"),
        ({"image": {"tag": ""}}, "tag"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_value_is_refused_with_its_place(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ChartError, match=re.escape(words)):
        render(values)
