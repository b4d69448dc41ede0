"""Log events of `exactly_once`, one per failed attempt at a batch and one per poison record.

A failure of the user's code is logged with its traceback, which names file and line. Trouble with the cluster is not:
its traceback would show this package only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.integrations.aiokafka.failures import Meaning, meaning_of

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

    from aioproducer._logs import EventLog


def log_attempt(log: EventLog, error: Exception, *, again_in_s: float = 0) -> None:
    """Log that a batch was not committed.

    Args:
        log: of the producer.
        error: the reason.
        again_in_s: seconds until the next attempt.
    """
    log.warning(
        "batch_not_committed",
        error=f"{type(error).__name__}: {error}",
        again_in_s=round(again_in_s, 3),
        exc_info=error if meaning_of(error) is Meaning.RECORD else None,
    )


def log_poison(log: EventLog, record: ConsumerRecord, error: Exception) -> None:
    """Log that a record failed at each attempt and is given to `on_poison`."""
    log.warning(
        "poison_record",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        error=f"{type(error).__name__}: {error}",
        exc_info=error,
    )
