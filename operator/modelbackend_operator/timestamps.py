"""Instants on the wire: RFC 3339 in UTC, as the API server reads and writes them."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """metav1.Time: whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """metav1.MicroTime: exactly six fractional digits, also when they are zero; the API server takes no other form."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: object) -> datetime | None:
    """Either form, in UTC; None for what is absent or no instant."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
