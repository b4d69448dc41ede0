"""Events: structlog, an event name and values, never a payload or a secret."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn, Protocol, cast

from aioproducer._native.unraisable import report_unraisable


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
    return GuardedLog(client_id)


class GuardedLog:
    """Log whose methods never raise.

    Filters, handlers and processors are the application's code, and they run in the middle of a start, a settlement
    or a lost connection. What the first of them raises is reported through `sys.unraisablehook`; later ones are not:
    a filter that fails for every event would fill standard error.

    Args:
        client_id: the producer's; bound to every event.
    """

    __slots__ = ("_client_id", "_has_reported", "_logger")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._has_reported = False
        self._logger: EventLog | None = None
        try:
            self._logger = _logger(client_id)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a logger factory or wrapper class of the application's
            self._report(error)

    def debug(self, event: str, **values: object) -> None:
        """Log at level DEBUG."""
        self._write("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        """Log at level INFO."""
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """Log at level WARNING."""
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        """Log at level ERROR."""
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        try:
            if self._logger is not None:
                getattr(self._logger, level)(event, **values)
        except (KeyboardInterrupt, SystemExit) as error:
            _raise_on_loop(error)
        except BaseException as error:  # noqa: BLE001  # also CancelledError, or a Timeout of gevent
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if not self._has_reported:
            self._has_reported = True
            report_unraisable(error, self)

    def __repr__(self) -> str:
        return f"<event log of producer {self._client_id!r}; its further exceptions are not reported>"


def _logger(client_id: str) -> EventLog:
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


def _raise_on_loop(error: BaseException) -> None:
    """End the program as the handler asks, but from a callback of its own: the work that has logged is done first."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise error from None
    loop.call_soon(_raise, error)


def _raise(error: BaseException) -> NoReturn:
    raise error
