"""Instants and spans as kubectl writes them."""

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span(duration: timedelta) -> str:
    """Its two largest units: `14s`, `3m20s`, `2h5m`, `6d`."""
    left = max(0, int(duration.total_seconds()))
    parts: list[str] = []
    for unit, seconds in _UNITS:
        if left >= seconds or (unit == "s" and not parts):
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    days = parts[0].endswith("d") and int(parts[0][:-1]) > 2
    return "".join(parts[:1] if days else parts[:2])


def age(since: datetime | None, now: datetime) -> str:
    return span(now - since) if since is not None else "<unknown>"


def clock_time(moment: datetime, now: datetime) -> str:
    """With the date where it is not today's."""
    utc = moment.astimezone(UTC)
    return f"{utc:%H:%M:%S} UTC" if utc.date() == now.astimezone(UTC).date() else f"{utc:%Y-%m-%d %H:%M:%S} UTC"


def since_words(moment: datetime, now: datetime) -> str:
    return f"{clock_time(moment, now)}, {span(now - moment)} ago"


def until_words(moment: datetime, now: datetime) -> str:
    when = f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"
    return f"{clock_time(moment, now)} ({when})"
