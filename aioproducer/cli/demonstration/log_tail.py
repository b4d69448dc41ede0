"""Keeps what libraries log off the screen, and the last of it at hand for when the verdict is bad."""

import logging
from collections import deque
from collections.abc import MutableMapping
from typing import NoReturn

import structlog

LINES = 12


class LogTail:
    """The last lines of this library's log."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES)

    def install(self) -> None:
        """Take over all logging of this process.

        aiokafka is silenced: it reports as an error that a broker which was just killed does not answer.
        """
        structlog.configure(
            processors=[self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        for library in ("aiokafka", "asyncio"):
            logging.getLogger(library).setLevel(logging.CRITICAL)

    def _keep(self, _: object, level: str, event: MutableMapping[str, object]) -> NoReturn:
        name = event.pop("event", "")
        values = " ".join(f"{key}={value!r}" for key, value in event.items() if key != "client_id")
        self.lines.append(f"{level} {name} {values}")
        raise structlog.DropEvent
