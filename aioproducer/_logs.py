"""The event log: structlog events of a name and values, never a payload or a secret."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from abc import ABC, abstractmethod
from typing import Final, NoReturn, Protocol, cast

from aioproducer._native.unraisable import report_unraisable


class EventLog(Protocol):
    """The methods of a structlog logger that this package uses."""

    def debug(self, event: str, **values: object) -> object: ...

    def info(self, event: str, **values: object) -> object: ...

    def warning(self, event: str, **values: object) -> object: ...

    def error(self, event: str, **values: object) -> object: ...


def event_log(client_id: str) -> EventLog:
    """Return the log of one producer.

    Events go to structlog if the application has configured it, and otherwise to the standard library's logger
    "aioproducer", as `event key=value ...`, which prints nothing unless it is configured.
    """
    return GuardedLog(client_id)


class LogMethods(ABC):
    """The methods of an event log, by way of `_write`."""

    __slots__ = ()

    def debug(self, event: str, **values: object) -> None:
        self._write("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._write("error", event, values)

    @abstractmethod
    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        """Log one event."""


class GuardedLog(LogMethods):
    """Log whose methods never raise.

    Filters, handlers and processors are the application's code, and they run during a start, a settlement or the end of
    a connection. Their first exception is reported through `sys.unraisablehook`; later ones are not, since a filter
    that fails for every event would fill standard error.
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
    standard = logging.getLogger("aioproducer")
    if not standard.handlers:
        standard.addHandler(logging.NullHandler())  # else unconfigured logging prints warnings to stderr
    # An application that has configured structlog has imported it. To import it for the others would cost more than the
    # rest of this package together: it brings rich and pygments where they are installed.
    structlog = sys.modules.get("structlog")
    if structlog is not None and structlog.is_configured():
        return cast("EventLog", structlog.get_logger("aioproducer").bind(client_id=client_id))
    return StandardLog(standard, client_id)


_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


class StandardLog(LogMethods):
    """Log of the standard library: one line of `key=value` per event, as structlog's `KeyValueRenderer` writes it."""

    __slots__ = ("_client_id", "_logger")

    def __init__(self, logger: logging.Logger, client_id: str) -> None:
        self._logger = logger
        self._client_id = client_id

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        number = _LEVELS[level]
        if not self._logger.isEnabledFor(number):
            return
        error = values.pop("exc_info", None)
        if isinstance(error, BaseException):
            values["exception"] = "".join(traceback.format_exception(error)).removesuffix("\n")
        parts = {"event": event, "client_id": self._client_id, **values}
        self._logger.log(number, " ".join(f"{name}={value!r}" for name, value in parts.items()))


def _raise_on_loop(error: BaseException) -> None:
    """Raise in a later callback of the loop, so that the code that logged the event ends first."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise error from None
    loop.call_soon(_raise, error)


def _raise(error: BaseException) -> NoReturn:
    raise error
