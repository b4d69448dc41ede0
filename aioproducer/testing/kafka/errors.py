"""Why a real broker could not be started: one error class, and one for what the machine lacks.

KafkaError
└── BrokerStartError      (RuntimeError)   Maven failed, a port is taken, the broker died or did not get ready
    └── MissingToolError                   Java or Maven is not on this machine; `.missing` says how to get it
"""

from collections.abc import Sequence

from aioproducer.errors import KafkaError


class BrokerStartError(KafkaError, RuntimeError):
    """A real broker could not be started; the message ends with what it said last."""


class MissingToolError(BrokerStartError):
    """This machine lacks a program that real Kafka needs."""

    def __init__(self, missing: Sequence[str]) -> None:
        """Join the lines of `missing` (of `missing_for_kafka`), which stay readable one by one."""
        super().__init__("; ".join(missing))
        self.missing: tuple[str, ...] = tuple(missing)
        """One line for each missing program, with the command that installs it."""
