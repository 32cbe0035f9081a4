"""`plan`: tried on a real API server, judged by the operator's rule."""

import json
from pathlib import Path

import pytest
import yaml

from kubectl_mb.troubles import Exit
from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import make_backend
from tests.apiserver.world import SOURCE
from tests.kubectl.conftest import Shell
from tests.kubectl.objects import manifest

pytestmark = pytest.mark.apiserver


def test_a_plan_shows_the_change_and_writes_nothing(api_server: ApiServer, shell: Shell, tmp_path: Path) -> None:
    path = make_backend(api_server, shell.namespace)
    before = api_server.get(path).body
    file = tmp_path / "edited.yaml"
    file.write_text(manifest(shell.namespace, runtime={"contextLength": 512}))
    (found,) = json.loads(shell.shows("plan", "-f", str(file), "-o", "json"))
    assert found["changes"] == [{"path": "runtime.contextLength", "before": None, "after": 512, "restarts": True}]
    assert found["instances"] == [{"instance": 0, "what": "starts", "how": "a new pod"}]
    assert api_server.get(path).body == before


def test_a_plan_tells_a_script_whether_anything_would_stop(api_server: ApiServer, shell: Shell) -> None:
    make_backend(api_server, shell.namespace)
    other = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    text = f"{other}---\n{manifest(shell.namespace)}"
    assert "no change of the spec" in shell.shows("plan", "-f", "-", "--exit-code", stdin=text)
    assert "the backend is new" in shell.shows("plan", "-f", "-", stdin=manifest(shell.namespace, "another"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is no YAML"),
        ("kind: ConfigMap", "has no ModelBackend in it"),
        (manifest("{namespace}", model={"source": SOURCE, "name": "renamed"}), "kubectl apply would fail"),
        (manifest("{namespace}", replicas=-1), "kubectl apply would fail"),
    ],
    ids=["no YAML", "nothing of ours", "what may not change", "what the schema refuses"],
)
def test_what_could_not_be_applied_is_refused_in_words(
    api_server: ApiServer, shell: Shell, text: str, words: str
) -> None:
    make_backend(api_server, shell.namespace)
    code, message = shell.refuses("plan", "-f", "-", stdin=text.replace("{namespace}", shell.namespace))
    assert words in message
    assert code in (Exit.NO, Exit.NOT_FOUND)


def test_a_manifest_that_is_not_there_is_named(shell: Shell) -> None:
    code, message = shell.refuses("plan", "-f", "no-such-file.yaml")
    assert (code, "cannot read no-such-file.yaml" in message) == (Exit.NOT_FOUND, True)
