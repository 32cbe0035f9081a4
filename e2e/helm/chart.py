"""The chart as a test or a tool sees it: rendered by helm, read by a parser that is stricter than helm's own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.helm.programs import build

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "modelbackend-operator"
NAMESPACE = "modelbackend-system"
RELEASE = "modelbackend"

Object = dict[str, Any]


class ChartError(Exception):
    """helm said no; its words."""


def render(values: Mapping[str, Any] | None = None, *flags: str, program: str = "helm") -> str:
    """What `helm template` prints; by helm 4 where `program` is "helm4"."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        command = [str(build() / program), "template", RELEASE, str(CHART), "--namespace", NAMESPACE]
        done = subprocess.run([*command, "--values", file.name, *flags], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChartError(done.stderr.strip())
    return done.stdout


def objects(text: str) -> list[Object]:
    """Of a YAML stream. A key that is written twice is an error, as it is to a strict API server."""
    return [found for found in yaml.load_all(text, Loader=_NoDuplicates) if found]


class _NoDuplicates(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"written twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)
