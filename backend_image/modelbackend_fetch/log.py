"""Logs to standard error, one JSON object a line, in the shape of the server's."""

from __future__ import annotations

import sys

import structlog

Logger = structlog.typing.FilteringBoundLogger


def configure() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def logger() -> Logger:
    bound: Logger = structlog.get_logger()
    return bound
