"""The tiny model once per session, the loop that production uses, and a gate before the model's every step."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from modelbackend_server import log
from tests.server.harness import Gate
from tests.server.tiny_gguf import TOOLS_TEMPLATE, write_tiny_gguf


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def logging() -> None:
    """As in production; pytest shows it where a test fails."""
    log.configure("info")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture(scope="session")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a chat template that has a place for tools."""
    path = tmp_path_factory.mktemp("models-with-tools") / "tiny.gguf"
    write_tiny_gguf(path, chat_template=TOOLS_TEMPLATE)
    return path


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Open at first. Left open at the end of each test, so that its server can end."""
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The SmolLM2 weights where `python3 -m images.model` puts them; skipped, and counted as such, without."""
    cache = Path(os.environ.get("MODELBACKEND_CACHE", Path.home() / ".cache" / "modelbackend-operator"))
    path = cache / "models" / "smollm2-135m-instruct-q4_1.gguf"
    if not path.exists():
        pytest.skip(f"{path} is missing: fetch it with python3 -m images.model")
    return path
