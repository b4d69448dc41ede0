"""What aiokafka logs, told to people: not before it is needed, and not over and over."""

import logging
import sys
import time
from collections.abc import Callable

from aioproducer._protocol.cluster_text import printable

PASSING_S = 1.0
"""An error that is over after so long is none: a coordinator that is only just chosen, a leader that moves."""

REPEAT_AFTER_S = 60.0


class ConsumerLog(logging.Handler):
    """Takes aiokafka's errors: keeps the last one while the consumer starts; later shows those that last.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the place of what would print them all."""
        super().__init__(logging.ERROR)
        self.is_shown = False
        self.last: str = ""
        self._clock = clock
        self._show_at: dict[str, float] = {}
        library = logging.getLogger("aiokafka")
        library.addHandler(self)
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep or show one."""
        self.last = message = record.getMessage()
        now = self._clock()
        if not self.is_shown or now < self._show_at.setdefault(message, now + PASSING_S):
            return
        self._show_at[message] = now + REPEAT_AFTER_S
        print(f"aioproducer: {printable(message, None)}", file=sys.stderr)
