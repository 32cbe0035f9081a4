"""What can be set, by environment (MODELBACKEND_<NAME>) or by flag; the flag wins."""

from __future__ import annotations

import argparse
import math
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .cpus import usable_cpus
from .exits import ExitCode, UnservableError

ENVIRONMENT_PREFIX = "MODELBACKEND_"
# `modelbackend-server --model weights.gguf` is what people type; the environment names the field.
FLAG_NAMES = {"model_path": "model", "model": "name"}


def every_address() -> str:
    """The wildcard that takes IPv4 and IPv6, where the kernel has both."""
    return "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, env_ignore_empty=True)

    model_path: Path = Field(description="GGUF file to serve")
    model_sha256: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$", description="refuse a file with another hash")
    model: str = Field("", description="name of the model; the file's name without .gguf if not given")
    uid: str = Field("", description="metadata.uid of the ModelBackend this server belongs to")
    pod_uid: str = Field("", description="metadata.uid of this pod")

    listen_address: str = Field(
        default_factory=every_address, description="address for inference and metrics; all if not given"
    )
    grpc_port: int = Field(50051, ge=0, le=65535, description="inference; 0 takes any free port")
    http_port: int = Field(8080, ge=0, le=65535, description="the OpenAI-compatible API; 0 takes any free port")
    control_port: int = Field(50052, ge=0, le=65535, description="GetStatus and Drain; 0 takes any free port")
    metrics_port: int = Field(9090, ge=0, le=65535, description="Prometheus; 0 takes any free port")
    control_token_file: Path | None = Field(
        None, description="bearer token of control; without one it listens on the loopback address only"
    )
    token_file: Path | None = Field(None, description="bearer token that inference asks for, over gRPC and HTTP")
    tls_folder: Path | None = Field(
        None, description="tls.crt, tls.key and, if callers shall show a certificate, ca.crt; plain text if not given"
    )
    reflection: bool = Field(False, description="let gRPC clients ask for the protos")

    context_length: int | None = Field(
        None, ge=2, le=16_777_216, description="tokens per request; 4096, or what the model was trained with if less"
    )
    slots: int = Field(1, ge=1, le=64, description="requests the model works on at once")
    threads: int = Field(
        default_factory=usable_cpus, ge=1, le=1024, description="of computation; the CPU limit if not given"
    )
    batch_tokens: int = Field(
        512, ge=1, le=65_536, description="prompt tokens evaluated in one step; a cancel takes effect between steps"
    )
    micro_batch_tokens: int | None = Field(
        None, ge=1, le=65_536, description="of those, computed at a time; batch_tokens if not given"
    )
    step_seconds: float = Field(
        0.2, gt=0, le=60, description="target length of a step while texts stream; prompts are cut to fit it"
    )
    stuck_seconds: float = Field(
        300, gt=0, le=604_800, description="a step longer than this is aborted, and what was in it fails"
    )
    share_prefixes: bool = Field(
        True, description="reuse what another request has evaluated of the same prompt; its timing tells that it did"
    )
    prompt_cache_bytes: int = Field(
        0, ge=0, le=2**50, description="memory for what slots had evaluated before another prompt took them; 0 is none"
    )
    lora: str = Field(
        "", description="LoRA adapters, FILE or FILE:SCALE, separated by commas; they apply to every request"
    )
    flash_attention: Literal["auto", "enabled", "disabled"] | None = Field(
        None, description="disabled on CPUs, where it is slower, and auto on a GPU, if not given"
    )
    kv_cache_type: Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"] = Field(
        "f16", description="of the numbers in the KV cache; the quantised ones need flash attention"
    )
    mode: Literal["generate", "embed"] = Field("generate", description="texts, or vectors of texts")
    pooling: Literal["model", "mean", "cls", "last", "rank"] = Field(
        "model", description="how the vectors of a text's tokens become one, in mode embed"
    )
    gpu_layers: int = Field(-1, ge=-1, le=10_000, description="layers on the GPU, if built for one; -1 is all")

    max_pending: int = Field(256, ge=0, le=1_000_000, description="requests that may wait for a slot")
    max_pending_tokens: int | None = Field(
        None, ge=1, le=1_000_000_000, description="tokens of prompts that may wait; any number if not given"
    )
    max_batch_inputs: int = Field(1024, ge=1, le=100_000, description="texts in one request for vectors or a ranking")
    request_timeout_seconds: float = Field(600, gt=0, le=604_800, description="longest time of any request")
    stall_seconds: float = Field(
        60, gt=0, le=604_800, description="longest time a caller may take nothing of its answer"
    )
    drain_seconds: float = Field(30, ge=0, le=604_800, description="time for requests in flight after SIGTERM")

    termination_log: Path = Field(Path("/dev/termination-log"), description="where kubelet reads the last words")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _every_slot_takes_its_step(self) -> Settings:
        if self.batch_tokens < self.slots:
            raise ValueError(f"batch_tokens {self.batch_tokens} is less than one token for each of {self.slots} slots")
        return self

    @model_validator(mode="after")
    def _quantised_cache_needs_flash_attention(self) -> Settings:
        if self.kv_cache_type.startswith("q") and self.flash_attention != "enabled":
            raise ValueError(f"kv_cache_type {self.kv_cache_type} needs flash_attention enabled")
        return self

    @model_validator(mode="after")
    def _kept_prompts_are_shared(self) -> Settings:
        if self.prompt_cache_bytes and not self.share_prefixes:
            raise ValueError("prompt_cache_bytes needs share_prefixes: what is kept serves whoever asks for it")
        return self

    @field_validator("lora")
    @classmethod
    def _adapters_have_scales(cls, lora: str) -> str:
        adapters(lora)
        return lora

    @property
    def model_name(self) -> str:
        return self.model or self.model_path.stem


def adapters(lora: str) -> list[tuple[Path, float]]:
    """(file, scale) of each. Raises ValueError where a scale is no number."""
    found = []
    for item in filter(None, lora.split(",")):
        name, colon, scale = item.rpartition(":")
        found.append((Path(name), float(scale)) if colon else (Path(scale), 1.0))
    if not all(math.isfinite(scale) for _, scale in found):
        raise ValueError("a scale must be a finite number")
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnservableError(ExitCode.BAD_CONFIGURATION, f"bad configuration: {message}; --help lists the flags")


def parse(arguments: Sequence[str]) -> Settings:
    """Settings from flags and environment. Raises UnservableError (64) with a line for each thing that is wrong."""
    parser = _Parser(
        prog="modelbackend-server",
        description="Serves one GGUF model over gRPC. Each flag can also be set as "
        f"{ENVIRONMENT_PREFIX}<NAME> in the environment.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for name, field in Settings.model_fields.items():
        flag = FLAG_NAMES.get(name, name).replace("_", "-")
        computed = field.is_required() or field.default_factory or field.default in ("", None)
        default = "" if computed else f" [{field.default}]"
        words = ((field.description or "") + default).replace("%", "%%")
        parser.add_argument(f"--{flag}", dest=name, help=words, metavar="VALUE")
    try:
        return Settings(**vars(parser.parse_args(arguments)))
    except ValidationError as invalid:
        lines = [_words(error["loc"], error["msg"]) for error in invalid.errors()]
        raise UnservableError(ExitCode.BAD_CONFIGURATION, "bad configuration: " + "; ".join(lines)) from None


def _words(location: tuple[int | str, ...], message: str) -> str:
    if not location:
        return message
    name = str(location[0])
    flag = FLAG_NAMES.get(name, name).replace("_", "-")
    return f"--{flag} ({ENVIRONMENT_PREFIX}{name.upper()}): {message}"
