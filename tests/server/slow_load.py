"""A model that takes as long to load as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from modelbackend_server.llama import Model
from tests.server.harness import PATIENCE_SECONDS


def slow_load(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Models load only once the event is set."""
    may_load = threading.Event()
    load = Model.load

    def slow(path: Path, *, gpu_layers: int, progress: Callable[[float], bool]) -> Model:
        assert may_load.wait(PATIENCE_SECONDS)
        return load(path, gpu_layers=gpu_layers, progress=progress)

    monkeypatch.setattr(Model, "load", slow)
    return may_load
