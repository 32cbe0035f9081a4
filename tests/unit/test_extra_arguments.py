"""`runtime.extraArgs`: what changes how a server computes is taken; what says who and where it is, never."""

import posixpath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelbackend_operator.extra_arguments import ALLOWED, FIELDS, OWNED
from modelbackend_operator.model_files import MODELS_PATH
from modelbackend_server.settings import FLAG_NAMES, Settings, adapters
from tests.unit.test_injection import WORDS, seen_by_the_server
from tests.unit.test_pod_template import a_backend, a_pod, container_of, environment_of, hash_of

IMAGE = {"source": {"image": {"reference": "r", "path": "m.gguf"}}}
HUB = {"source": {"huggingFace": {"repo": "a/b", "file": "m.gguf"}}}


def refused(*arguments: str, **spec: Any) -> tuple[str, ...]:
    return a_backend(runtime={"extraArgs": list(arguments)}, **spec).refused


def added(*arguments: str, **spec: Any) -> dict[str, str]:
    given = environment_of(a_pod(runtime={"extraArgs": list(arguments)}, **spec))
    return {name: given[name] for name in given.keys() - environment_of(a_pod(**spec)).keys()}


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--prompt-cache-bytes=1048576", "PROMPT_CACHE_BYTES", "1048576"),
        ("--share-prefixes=false", "SHARE_PREFIXES", "false"),
        ("--step-seconds=0.5", "STEP_SECONDS", "0.5"),
        ("--stuck-seconds=30", "STUCK_SECONDS", "30"),
        ("--stall-seconds=5", "STALL_SECONDS", "5"),
        ("--log-level=debug", "LOG_LEVEL", "debug"),
        ("--lora=a.gguf", "LORA", f"{MODELS_PATH}/a.gguf"),
        ("--lora=a.gguf:0.5,b/c.gguf:-1", "LORA", f"{MODELS_PATH}/a.gguf:0.5,{MODELS_PATH}/b/c.gguf:-1"),
    ],
)
def test_a_flag_that_is_taken_reaches_the_server_as_its_setting(argument: str, name: str, value: str) -> None:
    assert refused(argument) == ()
    assert added(argument) == {f"MODELBACKEND_{name}": value}
    taken = Settings.model_validate({"model_path": "m", name.lower(): value})
    assert taken != Settings.model_validate({"model_path": "m"})
    assert hash_of(runtime={"extraArgs": [argument]}) != hash_of()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--grpc-port=1", "--grpc-port is set by the operator, remove it"),
        ("--uid=x", "--uid is set by the operator"),
        ("--listen-address=0.0.0.0", "--listen-address is set by the operator"),
        ("--control-token-file=/x", "--control-token-file is set by the operator"),
        ("--slots=4", "--slots has a field of its own, use spec.runtime.slots"),
        ("--tls-folder=/x", "--tls-folder has a field of its own, use spec.serving.tls"),
        ("--mmproj=a.gguf", "--mmproj is no flag that may be given here, remove it; these may: log-level, lora,"),
        ("--verbose", "write it as --name=value"),
        ("-v=1", "write it as --name=value"),
        ("--lora", "write it as --name=value"),
        ("--lora=", "write it as --name=value"),
        ("--prompt-cache-bytes=1e9", "must be a whole number from 0 to"),
        ("--prompt-cache-bytes=-1", "must be a whole number from 0 to"),
        ("--prompt-cache-bytes=1125899906842625", "must be a whole number from 0 to"),
        ("--step-seconds=0", "must be a number of seconds, more than 0 and at most 60"),
        ("--step-seconds=61", "must be a number of seconds"),
        ("--stuck-seconds=nan", "must be a number of seconds"),
        ("--share-prefixes=no", "must be true or false"),
        ("--log-level=trace", "must be debug or info or warning or error"),
        ("--lora=/etc/passwd", "must name files by their paths inside the model's volume"),
        ("--lora=a/../../b", "must name files by their paths"),
        ("--lora=a.gguf,", "must name files by their paths"),
        ("--lora=a.gguf:b:1", "must name files by their paths"),
        ("--lora=a\nb", "must name files by their paths"),
        ("--lora=a.gguf:much", "has a scale that is no number: much"),
        ("--lora=a.gguf:inf", "has a scale that is no number: inf"),
    ],
)
def test_a_flag_that_is_not_taken_is_refused_with_what_to_do_and_reaches_nothing(argument: str, words: str) -> None:
    (sentence,) = refused(argument)
    assert sentence.startswith("spec.runtime.extraArgs[0]: ")
    assert words in sentence
    assert sentence.endswith(".")
    assert added(argument) == {}


def test_each_wrong_flag_has_its_own_sentence_and_one_given_twice_is_wrong() -> None:
    sentences = refused("--log-level=debug", "--http-port=80", "--log-level=info")
    assert [sentence.partition(":")[0] for sentence in sentences] == [
        "spec.runtime.extraArgs[1]",
        "spec.runtime.extraArgs[2]",
    ]
    assert "given twice" in sentences[1]


def test_adapters_lie_on_a_volume_that_is_mounted_whole() -> None:
    assert refused("--lora=a.gguf", model=IMAGE) == ()
    for model in (HUB, {"source": {"hostPath": {"path": "/srv/m.gguf"}}}):
        (sentence,) = refused("--lora=a.gguf", model=model)
        assert "takes a model on a persistentVolumeClaim or in an image" in sentence


def test_every_flag_of_the_server_is_taken_has_a_field_or_is_the_operators() -> None:
    flags = [FLAG_NAMES.get(name, name).replace("_", "-") for name in Settings.model_fields]
    assert sorted(flags) == sorted([*ALLOWED, *FIELDS, *OWNED])


USUAL = {one["name"] for one in container_of(a_pod())["env"]}


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(ALLOWED | OWNED)), value=WORDS)
def test_no_value_becomes_another_variable_an_argument_or_a_file_elsewhere(name: str, value: str) -> None:
    container = container_of(a_pod(runtime={"extraArgs": [f"--{name}={value}"]}))
    assert "command" not in container
    assert "args" not in container
    seen = seen_by_the_server(container["env"])
    more = {one["name"] for one in container["env"]} - USUAL
    if not refused(f"--{name}={value}"):
        assert more == {f"MODELBACKEND_{name.replace('-', '_').upper()}"}
        paths = [str(path) for path, _ in adapters(seen.get("MODELBACKEND_LORA", ""))]
        assert all(posixpath.normpath(path).startswith(f"{MODELS_PATH}/") for path in paths)
    else:
        assert more == set()
