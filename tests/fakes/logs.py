"""Loggers that keep what the library logs: events, or lines of text."""

import logging
from typing import Self


class EventList:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **values: object) -> None:
        self.events.append((event, values))

    info = warning = error = debug

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


class LogCapture(logging.Handler):
    """Keeps the formatted lines of the logger "aioproducer" while it is installed."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def __enter__(self) -> Self:
        logger = logging.getLogger("aioproducer")
        self._level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("aioproducer")
        logger.removeHandler(self)
        logger.setLevel(self._level)

    def naming(self, word: str) -> list[str]:
        return [line for line in self.lines if word in line]
