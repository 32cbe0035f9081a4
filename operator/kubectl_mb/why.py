"""The words of `kubectl mb why`."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from kubectl_mb.causes import Cause
from kubectl_mb.clock import since_words, until_words
from kubectl_mb.printable import printable
from kubectl_mb.sight import Sight, condition
from modelbackend_operator.api import Condition
from modelbackend_operator.timestamps import rfc3339

COLUMNS = 110


def words(sight: Sight, causes: Sequence[Cause], now: datetime) -> str:
    return "\n".join(
        [_headline(sight, causes), *(line for cause in causes for line in _lines(cause, now)), *_notes(sight)]
    )


def as_json(causes: Sequence[Cause]) -> list[dict[str, Any]]:
    return [
        {
            "subject": cause.subject,
            "reason": cause.reason,
            "waitsFor": cause.waits_for,
            "since": rfc3339(cause.since) if cause.since else None,
            "until": rfc3339(cause.until) if cause.until else None,
            "heldBy": list(cause.held_by),
            "releasedBy": cause.release or None,
        }
        for cause in causes
    ]


def _headline(sight: Sight, causes: Sequence[Cause]) -> str:
    if sight.backend is None:
        return f"{sight.title}: there is no such ModelBackend any more, but ports are still kept for it"
    ready = condition(sight.status, Condition.READY)
    serves = ready is not None and ready.status == "True" and bool(sight.status.ready_replicas)
    state = click.style("serves", fg="green") if serves else click.style("does not serve", fg="red")
    if not serves and sight.status.endpoints:
        state = click.style("serves, but not all that is asked for", fg="yellow")
    if sight.backend["metadata"].get("deletionTimestamp"):
        state = click.style("is being deleted", fg="yellow")
    where = ", ".join(f"instance {entry.ordinal} at {entry.address}" for entry in sight.status.endpoints)
    return f"{sight.title} {state}{f' ({where})' if where else ''}{'' if causes else '; it waits for nothing'}"


def _lines(cause: Cause, now: datetime) -> Iterator[str]:
    yield ""
    yield f"{click.style(cause.subject, bold=True)}: {cause.reason}"
    yield from _field("waits for", cause.waits_for)
    if cause.since is not None:
        yield from _field("since", since_words(cause.since, now))
    if cause.until is not None:
        yield from _field("at the latest", until_words(cause.until, now))
    for index, holder in enumerate(cause.held_by):
        yield from _field("" if index else "held by", holder)
    if cause.release:
        yield from _field("released by", cause.release)


def _field(name: str, text: str) -> list[str]:
    """Wrapped beside its name; a command that is too long for a line is not broken."""
    first = f"  {name:13} "
    return textwrap.wrap(
        printable(text),
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _notes(sight: Sight) -> Iterator[str]:
    if sight.hidden:
        yield ""
        yield f"You may not read {', '.join(sorted(sight.hidden))}, so what is there is not in this answer."
