"""What a benchmark gives: rows of a table, each with the figure that is wanted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """At least, or where `lower` is better at most, so much: of ours over the other, or of ours by itself."""

    wanted: float
    lower: bool = False
    of_ours_alone: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Medians. `other` is llama-server's figure, or the one that ours is held against."""

    work: str
    measure: str
    ours: float
    other: float
    goal: Goal
    against: str = "llama-server"

    @property
    def ratio(self) -> float:
        return self.ours / self.other if self.other else math.inf

    @property
    def reached(self) -> bool:
        found = self.ours if self.goal.of_ours_alone else self.ratio
        return found <= self.goal.wanted if self.goal.lower else found >= self.goal.wanted

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"ratio": self.ratio, "reached": self.reached}


HEAD = f"{'work':28}{'measure':28}{'ours':>10}{'other':>12}{'ratio':>8}  wanted"


def line(row: Row) -> str:
    sign = "<=" if row.goal.lower else ">="
    whose = " of ours" if row.goal.of_ours_alone else ""
    mark = "" if row.reached else "  NOT REACHED"
    against = "" if row.against == "llama-server" else f" (other: {row.against})"
    figures = f"{row.ours:10.3f}{row.other:12.3f}{row.ratio:8.2f}"
    return f"{row.work:28}{row.measure:28}{figures}  {sign} {row.goal.wanted:g}{whose}{mark}{against}"


def summary(rows: list[Row]) -> str:
    reached = sum(row.reached for row in rows)
    ratios = "; ".join(f"{row.work} {row.measure} {row.ratio:.2f}{'' if row.reached else '!'}" for row in rows)
    return f"ratios ({reached} of {len(rows)} reached, ! is not): {ratios}"
