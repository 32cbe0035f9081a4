"""Columns, JSON and YAML: what `-o` chooses."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import yaml

from kubectl_mb.printable import printable

_GAP = "   "


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def for_machines(self) -> bool:
        return self in (Output.JSON, Output.YAML)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As kubectl lays it out: capitals, left-aligned, and no trailing blanks."""
    lines = [[name.upper() for name in header], *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def rendered(value: Any, output: Output) -> str:
    if output is Output.YAML:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120).rstrip()
    return json.dumps(value, indent=2, ensure_ascii=False)


def listed(items: Sequence[Any]) -> dict[str, Any]:
    """As kubectl wraps several objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}
