"""What aiokafka logs, told to people: not before it is needed, and not over and over."""

import logging
import sys
import time

REPEAT_AFTER_S = 60.0


class ConsumerLog(logging.Handler):
    """Takes aiokafka's errors: keeps the last one while the consumer starts, later shows each, once a minute."""

    def __init__(self) -> None:
        """Take the place of what would print them all."""
        super().__init__(logging.ERROR)
        self.is_shown = False
        self.last = ""
        self._shown_at: dict[str, float] = {}
        library = logging.getLogger("aiokafka")
        library.addHandler(self)
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep or show one."""
        self.last = message = record.getMessage()
        now = time.monotonic()
        if not self.is_shown or now - self._shown_at.get(message, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return
        self._shown_at[message] = now
        print(f"aioproducer: {message}", file=sys.stderr)
