"""Logs to standard error: one JSON object a line for machines, columns for a person at a terminal.

structlog rather than the standard library's logging: an event with named fields is its native form, and the two
renderings are one list of functions.
"""

from __future__ import annotations

import sys

import structlog

Logger = structlog.typing.FilteringBoundLogger


def configure(level: str) -> None:
    """Sets up all logging of the process; level is a name such as "info"."""
    if sys.stderr.isatty():
        shape: list[structlog.typing.Processor] = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(),
        ]
    else:
        shape = [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=[structlog.processors.add_log_level, *shape],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def logger(**fields: object) -> Logger:
    bound: Logger = structlog.get_logger(**fields)
    return bound
