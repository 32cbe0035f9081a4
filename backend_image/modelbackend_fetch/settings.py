"""What to fetch and where to put it, from the environment (MODELBACKEND_FETCH_<NAME>).

Secrets come in variables or files of their own and are in no field that is ever printed.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from .failures import Failure, FetchError

ENVIRONMENT_PREFIX = "MODELBACKEND_FETCH_"


class _Place(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Http(_Place):
    kind: Literal["http"] = "http"
    url: str


class HuggingFace(_Place):
    kind: Literal["huggingFace"] = "huggingFace"
    endpoint: str = "https://huggingface.co"
    repo: str
    revision: str = "main"
    file: str


class S3(_Place):
    """Without an endpoint, that of Amazon in the region."""

    kind: Literal["s3"] = "s3"
    endpoint: str = ""
    region: str = "us-east-1"
    bucket: str
    key: str


Place = Annotated[Http | HuggingFace | S3, Field(discriminator="kind")]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, env_ignore_empty=True)

    source: Place = Field(description="as JSON")
    target: Path = Field(description="the file; its folder is this source's own in the cache")
    sha256: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$", description="of the file, of a split one's first part")
    context_length: int | None = Field(None, ge=1, description="tokens per request that the server is asked for")
    weights_in_memory: bool = Field(False, description="no GPU takes any: what is over the memory limit is refused")
    offline: bool = Field(False, description="ask nothing of the network: what is not cached is a failure")

    token: SecretStr = Field(SecretStr(""), description="bearer token")
    access_key_id: SecretStr = Field(SecretStr(""), description="of S3; without one, requests are not signed")
    secret_access_key: SecretStr = SecretStr("")
    session_token: SecretStr = SecretStr("")
    headers_folder: Path | None = Field(None, description="a file per header: its name, and its value in it")
    ca_file: Path | None = Field(None, description="certificates to trust beside the system's")

    control_token_file: Path | None = Field(None, description="bearer token of whoever may ask how far it is")
    listen_address: str = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    control_port: int = Field(50052, ge=0, le=65535)
    uid: str = Field("", description="metadata.uid of the ModelBackend")
    model: str = Field("", description="name of the model")
    pod_uid: str = Field("", description="metadata.uid of this pod")

    stall_seconds: float = Field(60, gt=0, description="without a byte, after which the connection is given up")
    tries: int = Field(6, ge=1, description="in a row that brought nothing; then the process ends, with words")
    first_pause_seconds: float = Field(1, gt=0, description="before the second of them; doubled before each next one")
    longest_pause_seconds: float = Field(60, gt=0, description="bound of a pause, unless the other side asks for more")

    termination_log: Path = Field(Path("/dev/termination-log"), description="where the kubelet reads the last words")


def read_settings(**given: Any) -> Settings:
    """What is given stands before the environment.

    Raises FetchError with a line for each thing that is wrong, without its value: it may be a secret."""
    try:
        return Settings(**given)
    except ValidationError as invalid:
        lines = [f"{ENVIRONMENT_PREFIX}{_path(error['loc'])}: {error['msg']}" for error in invalid.errors()]
        raise FetchError(Failure.BAD_CONFIGURATION, "bad configuration: " + "; ".join(lines)) from None


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join([str(location[0]).upper(), *map(str, location[1:])]) if location else ""
