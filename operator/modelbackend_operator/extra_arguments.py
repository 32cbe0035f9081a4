"""`runtime.extraArgs`: which further flags the server may be given, and what each may say.

Allowed is what only changes how one server computes. Its addresses, ports, identity and files of its own are the
operator's: a server that says it is another, or listens elsewhere, would break what ports and proofs rest on.
"""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from modelbackend_operator.model_files import MODELS_PATH
from modelbackend_operator.spec import ModelBackendSpec

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)=(.+)", re.DOTALL)
_DAY_SECONDS = 86_400
_PROMPT_CACHE_BYTES_MAX = 2**50

FIELDS = {
    "model": "model.source",
    "model-sha256": "model.sha256",
    "name": "model.name",
    "token-file": "serving.auth",
    "tls-folder": "serving.tls",
    "context-length": "runtime.contextLength",
    "slots": "runtime.slots",
    "threads": "runtime.threads",
    "batch-tokens": "runtime.batchSize",
    "micro-batch-tokens": "runtime.microBatchSize",
    "flash-attention": "runtime.flashAttention",
    "kv-cache-type": "runtime.kvCacheType",
    "mode": "runtime.mode",
    "pooling": "runtime.pooling",
    "gpu-layers": "runtime.gpuLayers",
    "max-pending": "serving.maxPending",
    "max-pending-tokens": "serving.maxPendingTokens",
    "max-batch-inputs": "serving.maxBatchInputs",
    "request-timeout-seconds": "serving.requestTimeoutSeconds",
    "drain-seconds": "shutdown.drainSeconds",
}
"""Flags that have a field of the spec, which is their one place."""

OWNED = frozenset(
    {
        *("uid", "pod-uid", "listen-address", "grpc-port", "http-port", "control-port", "metrics-port"),
        *("control-token-file", "reflection", "termination-log"),
    }
)


def _whole(value: str, most: int) -> str | None:
    # int() would also take signs, spaces and other scripts' digits.
    taken = value.isascii() and value.isdigit() and int(value) <= most
    return None if taken else f"must be a whole number from 0 to {most}"


def _seconds(value: str, most: float) -> str | None:
    taken = re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII) and 0 < float(value) <= most
    return None if taken else f"must be a number of seconds, more than 0 and at most {most}"


def _one_of(value: str, *words: str) -> str | None:
    return None if value in words else f"must be {' or '.join(words)}"


_ALLOWED: dict[str, Callable[[str], str | None]] = {
    "prompt-cache-bytes": lambda value: _whole(value, _PROMPT_CACHE_BYTES_MAX),
    "share-prefixes": lambda value: _one_of(value, "true", "false"),
    "step-seconds": lambda value: _seconds(value, 60),
    "stuck-seconds": lambda value: _seconds(value, 7 * _DAY_SECONDS),
    "stall-seconds": lambda value: _seconds(value, 7 * _DAY_SECONDS),
    "log-level": lambda value: _one_of(value, "debug", "info", "warning", "error"),
    "lora": lambda value: next((why for item in value.split(",") if (why := _wrong_adapter(item))), None),
}
"""Each says what is wrong with a value, or None."""

ALLOWED = frozenset(_ALLOWED)


def refused_arguments(spec: ModelBackendSpec) -> list[str]:
    """A sentence for each that is not taken, saying what to do."""
    seen: set[str] = set()
    sentences = []
    for index, argument in enumerate(spec.runtime.extra_args):
        why = _why_not(spec, argument, seen)
        if why is not None:
            sentences.append(f"spec.runtime.extraArgs[{index}]: {why}.")
    return sentences


def extra_settings(spec: ModelBackendSpec) -> Iterator[tuple[str, str]]:
    """(name of the server's setting, value), of those that are taken."""
    seen: set[str] = set()
    for argument in spec.runtime.extra_args:
        if _why_not(spec, argument, seen) is None:
            name, value = _split(argument)
            yield name.replace("-", "_").upper(), _in_the_pod(value) if name == "lora" else value


def _why_not(spec: ModelBackendSpec, argument: str, seen: set[str]) -> str | None:
    name, value = _split(argument)
    if not name:
        return "write it as --name=value"
    if name in FIELDS:
        return f"--{name} has a field of its own, use spec.{FIELDS[name]}"
    if name in OWNED:
        return f"--{name} is set by the operator, remove it"
    if name not in _ALLOWED:
        return f"--{name} is no flag that may be given here, remove it; these may: {', '.join(sorted(ALLOWED))}"
    if name in seen:
        return f"--{name} is given twice, remove one"
    seen.add(name)
    if wrong := _ALLOWED[name](value):
        return f"--{name} {wrong}"
    if name == "lora" and spec.model.source.persistent_volume_claim is None and spec.model.source.image is None:
        return "--lora names files beside the model's, which takes a model on a persistentVolumeClaim or in an image"
    return None


def _split(argument: str) -> tuple[str, str]:
    found = _FLAG.fullmatch(argument)
    return (found[1], found[2]) if found else ("", "")


# -- adapters ----------------------------------------------------------------------------------------------------------


def _wrong_adapter(item: str) -> str | None:
    path, scale = _adapter(item)
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or not path.isprintable() or ":" in path:
        return "must name files by their paths inside the model's volume, without a .. part, as FILE or FILE:SCALE"
    try:
        finite = scale is None or math.isfinite(float(scale))
    except ValueError:
        finite = False
    return None if finite else f"has a scale that is no number: {scale[:20] if scale else ''}"


def _in_the_pod(value: str) -> str:
    return ",".join(f"{MODELS_PATH}/{item}" for item in value.split(","))


def _adapter(item: str) -> tuple[str, str | None]:
    path, colon, scale = item.rpartition(":")
    return (path, scale) if colon else (item, None)
