"""Events: structlog, an event name and values, never a payload or a secret."""

from __future__ import annotations

import logging
from typing import Protocol, cast


class EventLog(Protocol):
    """What is used of a structlog logger."""

    def debug(self, event: str, **values: object) -> object:
        """Log what only someone who looks for it wants to know."""

    def info(self, event: str, **values: object) -> object:
        """Log what happens now and then."""

    def warning(self, event: str, **values: object) -> object:
        """Log what someone should look at."""

    def error(self, event: str, **values: object) -> object:
        """Log what someone must look at."""


def event_log(client_id: str) -> EventLog:
    """Return the log of one producer.

    Where the application has configured structlog, events go its way. Else they go to the standard library's logger
    "aioproducer", as `event key=value ...`: a library that nobody configured must not print.
    """
    import structlog  # noqa: PLC0415  # costs more than the rest of the package together

    standard = logging.getLogger("aioproducer")
    if not standard.handlers:
        standard.addHandler(logging.NullHandler())  # else warnings go to stderr where nobody configured logging
    if structlog.is_configured():
        return cast("EventLog", structlog.get_logger("aioproducer").bind(client_id=client_id))
    wrapped = structlog.wrap_logger(
        standard,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event", "client_id"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("EventLog", wrapped.bind(client_id=client_id))
