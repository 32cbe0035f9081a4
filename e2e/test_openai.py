"""OpenAI's own client through a node port: of a Service of the user's own, and one that the operator claims."""

from collections.abc import Callable, Iterator

import openai
import pytest

from e2e.backends import SMOLLM2, UID_LABEL, Backend, claims_of
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]
HTTP_PORT = 8080


@pytest.fixture
def expose(kubectl: Kubectl, namespace: str) -> Iterator[Callable[[Backend], int]]:
    """Puts a NodePort Service of one's own in front of a backend's HTTP port; its number."""
    made: list[str] = []

    def make(one: Backend) -> int:
        name = f"{one.name}-http-of-mine"
        spec: Object = {
            "type": "NodePort",
            "selector": {UID_LABEL: one.uid},
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT}],
        }
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}} | {"spec": spec}
        )
        made.append(name)
        service = kubectl.get("service", name, namespace)
        assert service is not None
        return int(service["spec"]["ports"][0]["nodePort"])

    yield make
    for name in made:
        kubectl.delete("service", name, namespace)


def until_answered(client: openai.OpenAI) -> str:
    """The model's name, once the nodes' proxies know the port."""

    def name() -> str | None:
        try:
            return client.models.list().data[0].id
        except openai.APIConnectionError:
            return None

    return until("/v1/models answers through the node port", name)


def test_an_openai_stream_through_a_node_port_ends_whole_when_its_backend_is_deleted(
    kubectl: Kubectl, backend: Make, expose: Callable[[Backend], int]
) -> None:
    one = backend("openai", file=SMOLLM2)
    host, uid = one.until_ready().rpartition(":")[0], one.uid
    url = f"http://{host}:{expose(one)}/v1"
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
    model = until_answered(client)
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=16, temperature=0)
    print(f"{url}: {model} says {answer.choices[0].text!r}")
    assert answer.choices[0].text.startswith(" Paris.")

    stream = client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=200, temperature=0,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [next(stream)]
    one.delete()
    until("the stop record is written", lambda: one.condition("Drained"))
    print(f"deleted after {chunks[0].choices[0].text!r}")
    with pytest.raises(openai.APIError) as refused, openai.OpenAI(base_url=url, api_key="none", max_retries=0) as late:
        late.completions.create(model=model, prompt="Hello", max_tokens=1)
    print(f"a new request meanwhile: {refused.value!r}")
    chunks += stream
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    print(f"the rest came: {text!r}")
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 200
    one.until_gone()
    (claim,) = claims_of(kubectl, uid)
    assert claim["status"]["evidence"] == "ContainersTerminated"
    print(f"the claim of port {claim['spec']['port']}: {claim['status']['evidence']}")


@pytest.mark.parametrize("exposure", ["NodePort", "HostPort"])
def test_an_instance_with_a_second_port_serves_openais_clients_there_and_both_ports_are_withheld_while_it_runs(
    kubectl: Kubectl, backend: Make, exposure: str
) -> None:
    asked = {"type": exposure, "http": {}}
    one = backend(f"two-ports-{exposure.lower()}", file=SMOLLM2, exposure=asked, shutdown={"drainSeconds": 120})
    host, uid = one.until_ready().rpartition(":")[0], one.uid
    assert one.object is not None
    told = {entry["role"]: entry["address"] for entry in one.object["status"]["endpoints"]}
    ports = {claim["spec"]["role"]: claim["spec"]["port"] for claim in claims_of(kubectl, uid)}
    assert told == {role: f"{host}:{port}" for role, port in ports.items()}
    assert set(ports) == {"Grpc", "Http"}
    client = openai.OpenAI(base_url=f"http://{told['Http']}/v1", api_key="none", max_retries=0, timeout=120)
    stream = client.completions.create(
        model=until_answered(client), prompt="Once upon a time", max_tokens=200, temperature=0, stream=True
    )
    next(stream)
    one.delete()
    until("the stop record is written", lambda: one.condition("Drained"))
    phases = {claim["spec"]["role"]: claim["status"]["phase"] for claim in claims_of(kubectl, uid)}
    assert phases == {"Grpc": "Bound", "Http": "Bound"}
    assert [chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] == "length"
    one.until_gone()
    proofs = {claim["spec"]["role"]: claim["status"]["evidence"] for claim in claims_of(kubectl, uid)}
    assert proofs == dict.fromkeys(("Grpc", "Http"), "ContainersTerminated")
