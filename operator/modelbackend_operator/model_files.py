"""The model's file in the pod: the volume it is on, its path there, and the container that fetches it if need be.

What is fetched goes into a cache volume, into a folder named after where it comes from: backends that ask for the same
file find it there. Where it comes from, and how the fetcher is told, is the contract with `modelbackend_fetch`.
"""

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from modelbackend_operator.spec import (
    ConfigMapKeyReference,
    HttpSource,
    HuggingFaceSource,
    ModelBackendSpec,
    ModelSource,
    ModelSpec,
    S3Source,
    SecretKeyReference,
)

FETCHER = "fetch-model"
FETCH_COMMAND = "modelbackend-fetch"
FETCH_PREFIX = "MODELBACKEND_FETCH_"
MODELS_PATH = "/models"
HEADERS_PATH = "/var/run/modelbackend/headers"
CA_PATH = "/var/run/modelbackend/ca"
CA_FILE = "ca.crt"
ACCESS_KEY_ID = "AWS_ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "AWS_SECRET_ACCESS_KEY"
SESSION_TOKEN = "AWS_SESSION_TOKEN"
"""Keys of the Secret in credentialsSecretRef, by the names that AWS's own tools use."""

LONGEST_NAME_BYTES = 200
"""Of a file; 255 is what file systems take, and the fetcher appends to it while it works."""
_ANY_NAME = "model.gguf"
_FETCHERS_RESOURCES = ("cpu", "memory", "ephemeral-storage")

Raw = dict[str, Any]
Fetched = HuggingFaceSource | S3Source | HttpSource


def fetched_source(source: ModelSource) -> Fetched | None:
    """The one that is downloaded, or None where the file lies on a volume already."""
    return source.hugging_face or source.s3 or source.http


def path_leaves_volume(source: ModelSource) -> bool:
    """Whether the path climbs out of what it is relative to. The CRD refuses it first."""
    on_volume = (source.persistent_volume_claim, source.host_path, source.image)
    paths = [given.path for given in on_volume if given is not None]
    if source.hugging_face is not None:
        paths.append(source.hugging_face.file)
    return any(".." in PurePosixPath(path).parts for path in paths)


def model_path(model: ModelSpec) -> str:
    """In the container. Raises ValueError where there is none: such a spec is refused before a pod is made."""
    source = model.source
    if path_leaves_volume(source):
        raise ValueError("the path of model.source has a .. part")
    fetched = fetched_source(source)
    if fetched is not None:
        return f"{MODELS_PATH}/{_folder(fetched, model.sha256)}/{_file_name(fetched)}"
    if source.host_path is not None:
        return f"{MODELS_PATH}/{PurePosixPath(source.host_path.path).name}"
    on_volume = source.persistent_volume_claim or source.image
    assert on_volume is not None
    return f"{MODELS_PATH}/{on_volume.path.lstrip('/')}"


def model_mount(model: ModelSpec) -> Raw:
    """A volume is mounted whole; of a node's file system the one file is, and nothing beside it."""
    path = model_path(model) if model.source.host_path is not None else MODELS_PATH
    return {"name": "model", "mountPath": path, "readOnly": True}


def model_volume(spec: ModelBackendSpec) -> Raw:
    """Read-only by its mount alone: a volume attached read-only could not be shared with a pod that fills it."""
    source, cache = spec.model.source, spec.model.cache
    if source.host_path is not None:
        return {"hostPath": {"path": source.host_path.path, "type": "File"}}
    if source.image is not None:
        return {"image": {"reference": source.image.reference}}
    if source.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": source.persistent_volume_claim.claim_name}}
    if cache is not None and cache.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.persistent_volume_claim.claim_name}}
    limit = cache.empty_dir.size_limit if cache is not None and cache.empty_dir is not None else None
    return {"emptyDir": {} if limit is None else {"sizeLimit": limit}}


def needs_shared_group(spec: ModelBackendSpec) -> bool:
    """A new volume belongs to root; the kubelet can give it to a group that the fetcher is in."""
    return spec.model.cache is not None and spec.model.cache.persistent_volume_claim is not None


def secret_volumes(source: ModelSource) -> list[tuple[str, str, Raw]]:
    """What the fetcher alone is shown: name and path of the mount, and the volume."""
    found: list[tuple[str, str, Raw]] = []
    if source.http is not None and source.http.headers_secret_ref is not None:
        secret = {"secretName": source.http.headers_secret_ref.name, "defaultMode": 0o444}
        found.append(("fetch-headers", HEADERS_PATH, {"secret": secret}))
    bundle = _ca_bundle(source)
    if bundle is not None:
        items = [{"key": bundle.key, "path": CA_FILE}]
        found.append(("fetch-ca", CA_PATH, {"configMap": {"name": bundle.name, "items": items}}))
    return found


def fetcher(spec: ModelBackendSpec, shared: Raw) -> Raw | None:
    """The init container, or None. A run that fails is repeated by the kubelet, with its growing pauses.

    `shared` is what it has in common with the server: image, security, the control token, who it is.
    """
    source = fetched_source(spec.model.source)
    if source is None:
        return None
    volumes = secret_volumes(spec.model.source)
    return {
        **shared,
        "name": FETCHER,
        "command": [FETCH_COMMAND],
        "env": [*_environment(spec, source), *shared["env"]],
        "resources": _resources(spec.resources),
        "volumeMounts": [
            *shared["volumeMounts"],
            {"name": "model", "mountPath": MODELS_PATH},
            *({"name": name, "mountPath": path, "readOnly": True} for name, path, _ in volumes),
        ],
    }


def _resources(asked: Raw) -> Raw:
    """As much as the server gets, which adds nothing to the pod's; of its devices, none."""
    kept = {
        kind: {name: amount for name, amount in amounts.items() if name in _FETCHERS_RESOURCES}
        for kind, amounts in asked.items()
        if kind in ("limits", "requests")
    }
    return {kind: amounts for kind, amounts in kept.items() if amounts}


def _environment(spec: ModelBackendSpec, source: Fetched) -> list[Raw]:
    """Nothing of a Secret is in the pod's body: the kubelet reads it as it makes the container."""
    settings: dict[str, object] = {
        "SOURCE": json.dumps(_place(source), sort_keys=True),
        "TARGET": model_path(spec.model),
        "SHA256": spec.model.sha256,
        "CONTEXT_LENGTH": spec.runtime.context_length,
        "WEIGHTS_IN_MEMORY": "true" if _weights_in_memory(spec) else None,
        "OFFLINE": "true" if spec.model.cache is not None and spec.model.cache.offline else None,
        "HEADERS_FOLDER": HEADERS_PATH if isinstance(source, HttpSource) and source.headers_secret_ref else None,
        "CA_FILE": f"{CA_PATH}/{CA_FILE}" if _ca_bundle(spec.model.source) is not None else None,
    }
    return [
        *(variable(FETCH_PREFIX + name, value) for name, value in settings.items() if value is not None),
        *_secrets(source),
    ]


def _weights_in_memory(spec: ModelBackendSpec) -> bool:
    """Where it is certain: no layer may go to a GPU, or there is no way by which the pod could have got one."""
    if spec.runtime.gpu_layers is not None:
        return spec.runtime.gpu_layers == 0
    asked = {name for kind in ("limits", "requests") for name in spec.resources.get(kind, {})}
    devices = {name for name in asked - set(_FETCHERS_RESOURCES) if not name.startswith("hugepages-")}
    return not (devices or spec.resource_claims or spec.runtime_class_name)


def _secrets(source: Fetched) -> list[Raw]:
    if not isinstance(source, S3Source):
        return [_from_secret("TOKEN", source.token_secret_ref)] if source.token_secret_ref is not None else []
    if source.credentials_secret_ref is None:
        return []
    name = source.credentials_secret_ref.name
    return [
        _from_secret("ACCESS_KEY_ID", SecretKeyReference(name=name, key=ACCESS_KEY_ID)),
        _from_secret("SECRET_ACCESS_KEY", SecretKeyReference(name=name, key=SECRET_ACCESS_KEY)),
        _from_secret("SESSION_TOKEN", SecretKeyReference(name=name, key=SESSION_TOKEN), optional=True),
    ]


def _from_secret(name: str, reference: SecretKeyReference, *, optional: bool = False) -> Raw:
    selector = {"name": reference.name, "key": reference.key} | ({"optional": True} if optional else {})
    return {"name": FETCH_PREFIX + name, "valueFrom": {"secretKeyRef": selector}}


def variable(name: str, value: object) -> Raw:
    """Doubled, because the kubelet expands `$(NAME)` in a value, and a file may be called that."""
    return {"name": name, "value": str(value).replace("$", "$$")}


def _place(source: Fetched) -> Raw:
    """As the fetcher reads it (modelbackend_fetch/settings.py): where the file is, and nothing of who asks."""
    match source:
        case HuggingFaceSource():
            told = {"kind": "huggingFace", "repo": source.repo, "revision": source.revision, "file": source.file}
            return told | ({"endpoint": source.endpoint} if source.endpoint else {})
        case S3Source():
            told = {"kind": "s3", "bucket": source.bucket, "key": source.key}
            told |= {"endpoint": source.endpoint} if source.endpoint else {}
            return told | ({"region": source.region} if source.region else {})
        case HttpSource():
            return {"kind": "http", "url": source.url}


def _folder(source: Fetched, sha256: str | None) -> str:
    """With the checksum, so that two who ask one address for different files do not take turns at replacing them."""
    told = json.dumps([_place(source), (sha256 or "").lower()], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _file_name(source: Fetched) -> str:
    """The source's own, by which the parts of a split model find each other; any other where that is none."""
    match source:
        case HuggingFaceSource():
            path = source.file
        case S3Source():
            path = source.key
        case HttpSource():
            path = unquote(urlsplit(source.url).path)
    name = path.rpartition("/")[2]
    is_usable = name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= LONGEST_NAME_BYTES
    return name if is_usable else _ANY_NAME


def _ca_bundle(source: ModelSource) -> ConfigMapKeyReference | None:
    fetched = fetched_source(source)
    return fetched.ca_bundle_ref if fetched is not None else None
