"""No word of a spec becomes more than the one value it is: not an argument, not another variable, not another file."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from modelbackend_fetch.settings import Place
from modelbackend_operator.extra_arguments import ALLOWED, FIELDS, OWNED
from modelbackend_operator.model_files import FETCH_COMMAND, MODELS_PATH
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


# -- the container that fetches ---------------------------------------------------------------------------------------

FETCHED = {
    "huggingFace": {"repo": WORDS, "file": WORDS.filter(stays_inside), "revision": WORDS, "endpoint": WORDS},
    "s3": {"bucket": WORDS, "key": WORDS, "endpoint": WORDS, "region": WORDS},
    "http": {"url": WORDS.map("https://models.example/".__add__)},
}
SECRETS = {
    "huggingFace": {"tokenSecretRef": {"name": "s", "key": "k"}},
    "s3": {"credentialsSecretRef": {"name": "s"}},
    "http": {"tokenSecretRef": {"name": "s", "key": "k"}, "headersSecretRef": {"name": "h"}},
}
SOURCES = st.sampled_from(sorted(FETCHED)).flatmap(
    lambda kind: st.fixed_dictionaries(FETCHED[kind]).map(lambda words: {kind: {**words, **SECRETS[kind]}})
)


@settings(max_examples=300, deadline=None)
@given(source=SOURCES, checksum=WORDS, variables=st.lists(st.fixed_dictionaries({"name": WORDS, "value": WORDS})))
def test_where_a_model_comes_from_arrives_word_for_word_at_the_fetcher_and_nowhere_else(
    source: dict[str, Any], checksum: str, variables: list[dict[str, str]]
) -> None:
    hostile = [{**one, "name": f"MODELBACKEND_FETCH_{one['name']}"} for one in variables]
    body = a_pod(model={"source": source, "sha256": checksum}, env=[*variables, *hostile])
    (fetcher,) = body["spec"]["initContainers"]
    assert (fetcher["command"], "args" in fetcher) == ([FETCH_COMMAND], False)
    given_by_us = {one["name"]: one for one in fetcher["env"] if one["name"].startswith("MODELBACKEND_")}
    assert len(given_by_us) == sum(one["name"].startswith("MODELBACKEND_") for one in fetcher["env"]), "each once"
    seen = seen_by_the_server(fetcher["env"])
    place = TypeAdapter[Place](Place).validate_json(seen["MODELBACKEND_FETCH_SOURCE"])
    ((kind, words),) = source.items()
    told = {name: word for name, word in words.items() if name not in SECRETS[kind]}
    assert place.model_dump() == {"kind": kind, **told}
    assert seen["MODELBACKEND_FETCH_SHA256"] == checksum
    target = seen["MODELBACKEND_FETCH_TARGET"]
    assert re.fullmatch(rf"{MODELS_PATH}/[0-9a-f]{{16}}/[^/\0]+", target), target
    assert posixpath.normpath(target) == target
    assert target == seen_by_the_server(container_of(body)["env"])["MODELBACKEND_MODEL_PATH"]


# -- further flags -----------------------------------------------------------------------------------------------------

FLAGS = st.sampled_from(sorted(ALLOWED | FIELDS.keys() | OWNED))
ARGUMENTS = WORDS | st.builds("--{}={}".format, FLAGS | WORDS, WORDS | st.sampled_from(["1", "true", "info", "a.gguf"]))


@settings(max_examples=300, deadline=None)
@given(arguments=st.lists(ARGUMENTS, max_size=6))
def test_a_further_flag_becomes_one_variable_that_may_be_given_or_nothing(arguments: list[str]) -> None:
    container = container_of(a_pod(runtime={"extraArgs": arguments}))
    assert not {"command", "args"} & container.keys()
    usual, seen = seen_by_the_server(USUAL["env"]), seen_by_the_server(container["env"])
    assert {name: seen[name] for name in USUAL_NAMES} == {name: usual[name] for name in USUAL_NAMES}
    added = {name: seen[name] for name in seen.keys() - usual.keys()}
    assert added.keys() <= {"MODELBACKEND_" + flag.replace("-", "_").upper() for flag in ALLOWED}
    paths = added.pop("MODELBACKEND_LORA", "")
    values = {argument.partition("=")[2] for argument in arguments}
    assert set(added.values()) <= values
    for item in filter(None, paths.split(",")):
        assert posixpath.normpath(item.rpartition(":")[0] or item).startswith(f"{MODELS_PATH}/")
