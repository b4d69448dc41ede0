"""How much exactly-once processing takes at once, and for how long."""

from __future__ import annotations

import math
from typing import NamedTuple

from aioproducer.errors import ConfigurationError
from aioproducer.producer import Producer


class LoopLimits(NamedTuple):
    """How much at once, and for how long; see `exactly_once`."""

    max_records: int
    max_seconds: float
    shutdown_seconds: float

    def check(self, producer: Producer) -> None:
        """Refuse what cannot be, by itself or with this producer.

        Raises:
            ConfigurationError: an option of the producer makes it impossible.
            TypeError: a limit that is no number, or no producer.
            ValueError: a limit out of range.
        """
        if not isinstance(producer, Producer):
            raise TypeError(f"producer must be a Producer, not {type(producer).__name__}")
        if not isinstance(self.max_records, int) or isinstance(self.max_records, bool):
            raise TypeError(f"max_records must be an int, not {type(self.max_records).__name__}")
        if self.max_records < 1:
            raise ValueError(f"max_records must be 1 or more, not {self.max_records}")
        for name, seconds in (("max_seconds", self.max_seconds), ("shutdown_seconds", self.shutdown_seconds)):
            if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
                raise TypeError(f"{name} must be a number, not {type(seconds).__name__}")
            if not 0 < seconds < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {seconds}")
        self._check_options(producer)

    def _check_options(self, producer: Producer) -> None:
        if producer.config.transactional_id is None:
            raise ConfigurationError(
                "the producer needs a transactional_id: one of this worker's own, the same after its restart",
                option="transactional_id",
            )
        timeout_ms = producer.config.transaction_timeout_ms
        if self.max_seconds * 1000 >= timeout_ms:
            raise ConfigurationError(
                f"transaction_timeout_ms={timeout_ms} of the producer must be above max_seconds={self.max_seconds:g}: "
                "the broker would abort every transaction",
                option="transaction_timeout_ms",
            )
