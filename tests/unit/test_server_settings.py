"""What can be set, and that a mistake is named by its flag and its variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelbackend_server.cpus import usable_cpus
from modelbackend_server.exits import ExitCode, UnservableError
from modelbackend_server.settings import Settings, parse


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MODELBACKEND_{name.upper()}", raising=False)


def test_a_file_is_enough() -> None:
    settings = parse(["--model", "weights/small-q4.gguf"])
    assert settings.model_path == Path("weights/small-q4.gguf")
    assert settings.model_name == "small-q4"
    assert settings.threads == usable_cpus()
    assert (settings.grpc_port, settings.control_port, settings.metrics_port) == (50051, 50052, 9090)


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBACKEND_SLOTS", "")
    monkeypatch.setenv("MODELBACKEND_CONTROL_TOKEN_FILE", "")
    settings = parse(["--model=x.gguf"])
    assert settings.slots == 1
    assert settings.control_token_file is None


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(UnservableError) as wrong:
        parse(["--slots=0", "--grpc-port=70000"])
    assert wrong.value.exit.code is ExitCode.BAD_CONFIGURATION
    for part in (
        "--model (MODELBACKEND_MODEL_PATH): Field required",
        "--slots (MODELBACKEND_SLOTS): Input should be greater than or equal to 1",
        "--grpc-port (MODELBACKEND_GRPC_PORT): Input should be less than or equal to 65535",
    ):
        assert part in wrong.value.exit.words


def test_a_batch_has_room_for_a_token_of_every_slot() -> None:
    with pytest.raises(UnservableError, match="batch_tokens 2 is less than one token for each of 3 slots"):
        parse(["--model=x.gguf", "--slots=3", "--batch-tokens=2"])


@pytest.mark.parametrize("flag", ["--request-timeout-seconds=nan", "--drain-seconds=-1", "--drain-seconds=inf"])
def test_a_time_is_a_number_of_seconds(flag: str) -> None:
    with pytest.raises(UnservableError, match="seconds"):
        parse(["--model=x.gguf", flag])
