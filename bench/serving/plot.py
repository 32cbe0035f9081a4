"""The ratios as a picture: one bar a row, on a scale where twice as much and half as much are equally far from 1."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from bench.serving.rows import Row

LABEL_WIDTH, BAR_WIDTH, LINE_HEIGHT, MARGIN = 430, 420, 20, 30
WIDEST_RATIO = 16.0
GOOD, BAD, GOAL = "#2a7f62", "#b3402e", "#222"


def svg(rows: list[Row], title: str) -> str:
    height = 2 * MARGIN + LINE_HEIGHT * len(rows)
    width = LABEL_WIDTH + BAR_WIDTH + 90
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<text x="8" y="18">{escape(title)}</text>',
        f'<line x1="{_at(1)}" x2="{_at(1)}" y1="{MARGIN}" y2="{height - MARGIN}" stroke="#999"/>',
    ]
    for index, row in enumerate(rows):
        parts += _bar(row, MARGIN + index * LINE_HEIGHT)
    parts.append(f'<text x="{_at(1)}" y="{height - 8}" text-anchor="middle">1</text></svg>')
    return "\n".join(parts) + "\n"


def _bar(row: Row, top: int) -> list[str]:
    start, end = sorted((_at(1), _at(row.ratio)))
    parts = [
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 14}" text-anchor="end">{escape(f"{row.work}: {row.measure}")}</text>',
        f'<rect x="{start}" y="{top + 3}" width="{max(end - start, 1)}" height="{LINE_HEIGHT - 6}" '
        f'fill="{GOOD if row.reached else BAD}"/>',
        f'<text x="{LABEL_WIDTH + BAR_WIDTH + 8}" y="{top + 14}">{row.ratio:.2f}</text>',
    ]
    if not row.goal.of_ours_alone:
        wanted = _at(row.goal.wanted)
        parts.append(
            f'<line x1="{wanted}" x2="{wanted}" y1="{top + 1}" y2="{top + LINE_HEIGHT - 1}" stroke="{GOAL}" '
            'stroke-width="2"/>'
        )
    return parts


def _at(ratio: float) -> int:
    far = math.log(min(max(ratio, 1 / WIDEST_RATIO), WIDEST_RATIO)) / math.log(WIDEST_RATIO)
    return round(LABEL_WIDTH + BAR_WIDTH * (far + 1) / 2)


def write(path: Path, rows: list[Row], title: str) -> None:
    path.write_text(svg(rows, title))
