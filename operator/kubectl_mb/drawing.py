"""A timeline as text, as SVG, or as an HTML page that needs nothing else."""

from collections.abc import Iterator
from datetime import datetime
from html import escape

from kubectl_mb.clock import clock_time, span
from kubectl_mb.printable import printable
from kubectl_mb.timeline import Lane, Span, Timeline, Tone

COLUMNS = 72

_WIDTH, _LEFT, _ROW, _TOP, _RIGHT = 1100, 260, 34, 56, 20
_COLOURS = {
    Tone.WAITING: "#c8ccd4",
    Tone.LOADING: "#8fb7e3",
    Tone.SERVING: "#57a773",
    Tone.DRAINING: "#e8b84a",
    Tone.ENDING: "#d98b4a",
    Tone.UNPROVEN: "#c8503c",
    Tone.HELD: "#7c8db5",
    Tone.COOLING: "#b9d3ea",
}
_LEGEND = {
    Tone.WAITING: "waits",
    Tone.LOADING: "loads or runs",
    Tone.SERVING: "serves",
    Tone.DRAINING: "drains",
    Tone.ENDING: "told to end",
    Tone.UNPROVEN: "unproven",
    Tone.HELD: "held",
    Tone.COOLING: "cooling",
}


def as_text(life: Timeline) -> str:
    return "\n".join([_heading(life), "", *_bars(life), "", *_legend(life), "", *_told(life)]).rstrip()


def as_svg(life: Timeline) -> str:
    height = _TOP + _ROW * (len(life.lanes) + 1) + 40
    body = "\n".join([*_axis(life, height), *_lanes(life), *_events(life, height), *_svg_legend(height)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="12" y="24" font-size="16" font-weight="bold">{escape(_heading(life))}</text>\n{body}\n</svg>'
    )


def as_html(life: Timeline) -> str:
    rows = "\n".join(
        f'<tr class="{"warning" if mark.is_warning else "normal"}"><td>{escape(clock_time(mark.at, life.end))}</td>'
        f"<td>{escape(mark.label)}</td><td>{escape(mark.text)}</td></tr>"
        for mark in life.marks
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(life.title)}</title>\n'
        "<style>body{font-family:sans-serif;margin:1.5rem}td{padding:.2rem .8rem;vertical-align:top}"
        ".warning{background:#fdf0ea}</style></head>\n"
        f"<body>\n{as_svg(life)}\n<table>\n{rows}\n</table>\n</body></html>"
    )


def _heading(life: Timeline) -> str:
    return f"{life.title}: {span(life.end - life.start)} from {clock_time(life.start, life.end)}"


# -- text -------------------------------------------------------------------------------------------------------------


def _bars(life: Timeline) -> Iterator[str]:
    width = max((len(lane.title) for lane in life.lanes), default=0)
    for lane in life.lanes:
        yield f"{lane.title.ljust(width)}  |{_strokes(life, lane)}|"


def _strokes(life: Timeline, lane: Lane) -> str:
    cells = [" "] * COLUMNS
    for one in lane.spans:
        first, last = _column(life, one.start), _column(life, one.end or life.end)
        for column in range(first, max(last, first + 1)):
            cells[min(column, COLUMNS - 1)] = one.tone.value
    return "".join(cells)


def _column(life: Timeline, moment: datetime) -> int:
    return min(COLUMNS, round(_share(life, moment) * COLUMNS))


def _share(life: Timeline, moment: datetime) -> float:
    whole = (life.end - life.start).total_seconds()
    return min(1.0, max(0.0, (moment - life.start).total_seconds() / whole))


def _legend(life: Timeline) -> list[str]:
    used = {one.tone for lane in life.lanes for one in lane.spans}
    return ["   ".join(f"{tone.value} {_LEGEND[tone]}" for tone in Tone if tone in used)]


def _told(life: Timeline) -> Iterator[str]:
    width = max((len(mark.label) for mark in life.marks), default=0)
    for mark in life.marks:
        yield f"{clock_time(mark.at, life.end)}  {mark.label.ljust(width)}  {printable(mark.text)}"


# -- SVG --------------------------------------------------------------------------------------------------------------


def _x(life: Timeline, moment: datetime) -> float:
    return round(_LEFT + _share(life, moment) * (_WIDTH - _LEFT - _RIGHT), 1)


def _axis(life: Timeline, height: int) -> Iterator[str]:
    step = (life.end - life.start) / 5
    for index in range(6):
        moment = life.start + step * index
        x, anchor = _x(life, moment), "end" if index == 5 else "middle"
        yield f'<line x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{height - 44}" stroke="#e3e6eb"/>'
        yield f'<text x="{x}" y="{_TOP - 12}" text-anchor="{anchor}" fill="#667">{moment:%H:%M:%S}</text>'


def _lanes(life: Timeline) -> Iterator[str]:
    for index, lane in enumerate(life.lanes):
        y = _TOP + index * _ROW
        yield f'<text x="12" y="{y + 18}">{escape(_short(lane.title))}</text>'
        for one in lane.spans:
            yield _bar(life, one, y)


def _bar(life: Timeline, one: Span, y: int) -> str:
    left, right = _x(life, one.start), _x(life, one.end or life.end)
    length = span((one.end or life.end) - one.start)
    title = f"{one.label}: {length} from {clock_time(one.start, life.end)}"
    return (
        f'<rect x="{left}" y="{y + 3}" width="{max(2.0, round(right - left, 1))}" height="22" rx="3" '
        f'fill="{_COLOURS[one.tone]}"><title>{escape(title)}</title></rect>'
    )


def _events(life: Timeline, height: int) -> Iterator[str]:
    y = height - 62
    yield f'<text x="12" y="{y + 4}">Events</text>'
    for mark in life.marks:
        colour = "#c8503c" if mark.is_warning else "#556"
        title = f"{clock_time(mark.at, life.end)} {mark.label}: {mark.text}"
        yield f'<circle cx="{_x(life, mark.at)}" cy="{y}" r="5" fill="{colour}"><title>{escape(title)}</title></circle>'


def _svg_legend(height: int) -> Iterator[str]:
    for index, (tone, words) in enumerate(_LEGEND.items()):
        x = 12 + index * 130
        yield f'<rect x="{x}" y="{height - 24}" width="12" height="12" fill="{_COLOURS[tone]}"/>'
        yield f'<text x="{x + 18}" y="{height - 14}" fill="#445">{words}</text>'


def _short(title: str) -> str:
    return title if len(title) <= 34 else f"{title[:33]}…"
