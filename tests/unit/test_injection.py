"""No word of a spec becomes more than the one value it is: not an argument, not another variable, not another file."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from modelbackend_operator.model_files import MODELS_PATH
from tests.unit.test_pod_template import a_pod, container_of

HOSTILE = [
    *("$(HOME)", "$$(HOME)", "$", "$(", "${IFS}", "$(MODELBACKEND_UID)", "`id`", "; rm -rf /", "&& id", "| id"),
    *("--help", "-rf", "'", '"', "\\", "\n", "\t", "\0", "=", "A=B", "%s", "{{ x }}", "~", "*", "\u202e", "é", " "),
    *("..", "../", "/..", "/etc/passwd"),
]
WORDS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), min_size=1, max_size=6).map("".join).filter(bool)
REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)|\$")


def expanded(value: str, known: Mapping[str, str]) -> str:
    """As the kubelet does with a variable's value: `$$` is a dollar, `$(NAME)` a variable that came before.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0]) if found[1] is not None else "$"

    return REFERENCE.sub(one, value)


def seen_by_the_server(variables: list[dict[str, Any]]) -> dict[str, str]:
    known: dict[str, str] = {"HOME": "/root"}
    for one in variables:
        known[one["name"]] = expanded(one.get("value", ""), known)
    return known


def stays_inside(path: str) -> bool:
    """What the kind's schema lets through."""
    return not path.startswith("/") and ".." not in path.split("/")


USUAL = container_of(a_pod())
USUAL_NAMES = {one["name"] for one in USUAL["env"]}


@settings(max_examples=200, deadline=None)
@given(name=WORDS, path=WORDS.filter(stays_inside), checksum=WORDS)
def test_names_and_paths_arrive_word_for_word_in_their_own_variables(name: str, path: str, checksum: str) -> None:
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": path}}
    container = container_of(a_pod(model={"name": name[:128], "source": source, "sha256": checksum}))
    assert "command" not in container
    assert "args" not in container
    assert {one["name"] for one in container["env"]} == USUAL_NAMES | {"MODELBACKEND_MODEL_SHA256"}
    seen = seen_by_the_server(container["env"])
    assert seen["MODELBACKEND_MODEL"] == name[:128]
    assert seen["MODELBACKEND_MODEL_SHA256"] == checksum
    assert seen["MODELBACKEND_MODEL_PATH"] == f"{MODELS_PATH}/{path}"
    assert posixpath.normpath(seen["MODELBACKEND_MODEL_PATH"]).startswith(MODELS_PATH)


@settings(max_examples=200, deadline=None)
@given(
    variables=st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(sorted(USUAL_NAMES)) | WORDS.map("MODELBACKEND_".__add__) | WORDS, "value": WORDS}
        ),
        max_size=5,
    )
)
def test_variables_of_the_spec_stand_in_for_none_of_ours(variables: list[dict[str, str]]) -> None:
    container = container_of(a_pod(env=variables))
    usual, seen = seen_by_the_server(USUAL["env"]), seen_by_the_server(container["env"])
    assert {name: seen[name] for name in USUAL_NAMES} == {name: usual[name] for name in USUAL_NAMES}
    assert {name for name in seen if name.startswith("MODELBACKEND_")} == USUAL_NAMES
