"""A run's results in a file that is whole at any moment: a work that is in it need not be run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.serving.rows import Goal, Row


@dataclass(slots=True)
class Record:
    """`machine` says what was measured, and how often. `path` may be None: kept in memory only."""

    path: Path | None
    machine: str
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def resumed(cls, path: Path, machine: str) -> Record:
        """With the rows of an earlier run, if there was one. Raises ValueError where it measured something else."""
        record = cls(path, machine)
        if path.exists():
            told = json.loads(path.read_text())
            if told["machine"] != machine:
                raise ValueError(f"{path} is of another run: {told['machine']}, now: {machine}. Take another file.")
            record.rows = [_row(each) for each in told["rows"]]
        return record

    @property
    def works(self) -> set[str]:
        return {row.work for row in self.rows}

    def add(self, rows: Sequence[Row], load_average: float) -> None:
        """All rows of one work, at once."""
        self.rows += rows
        if self.path is not None:
            told = {"machine": self.machine, "load_average": load_average, "rows": [row.as_json() for row in self.rows]}
            draft = self.path.with_name(f"{self.path.name}.part")
            draft.write_text(json.dumps(told, indent=1) + "\n")
            draft.replace(self.path)


def _row(told: dict[str, Any]) -> Row:
    kept = {name: told[name] for name in ("work", "measure", "ours", "other", "against")}
    return Row(**kept, goal=Goal(**told["goal"]))
