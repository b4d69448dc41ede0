"""The meaning of a failed batch for the loop, and the search for the record that keeps its batch from committing.

    batch fails, one of its records at fault ──▶ the same records again, each in a transaction of its own
        │                                             │ one fails `ATTEMPTS` times
        └── all of them commit: batches again         └──▶ poison: the hook is called, or the loop ends

Pure; `exactly_once.py` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import (
    AuthorizationError,
    BrokerError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UndeliveredError,
    UnsupportedVersionError,
)
from aioproducer.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka import ConsumerRecord

    from aioproducer.integrations.aiokafka.batches import RecordBatch
    from aioproducer.records import OffsetAndMetadata


ATTEMPTS: Final = 3
"""A record that fails alone this often is poison; fewer failures of user code may have had a passing reason."""


class PoisonSearch:
    """The records under suspicion, and how often each has failed alone."""

    def __init__(self) -> None:
        self._until: dict[TopicPartition, int] = {}
        """Partition -> the offset after the last record under suspicion."""
        self._failures: dict[tuple[TopicPartition, int], int] = {}
        self._found: dict[tuple[TopicPartition, int], Exception] = {}

    @property
    def is_on(self) -> bool:
        """Whether any record is under suspicion."""
        return bool(self._until)

    def limit(self, max_records: int) -> int:
        """Return how many records the next transaction may have."""
        return 1 if self.is_on else max_records

    def failed(self, batch: RecordBatch, error: Exception) -> None:
        """Note that one of the batch's records is at fault."""
        for partition, offset in batch.next_offsets().items():
            self._until[partition] = max(offset.offset, self._until.get(partition, 0))
        if len(batch.records) > 1:
            return
        place = _place(batch.records[0])
        self._failures[place] = self._failures.get(place, 0) + 1
        if self._failures[place] >= ATTEMPTS:
            self._found[place] = error

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Clear the records before these offsets of suspicion."""
        for partition, offset in offsets.items():
            if offset.offset >= self._until.get(partition, 0):
                self._until.pop(partition, None)
            for place in [place for place in self._failures if place[0] == partition and place[1] < offset.offset]:
                del self._failures[place]
                self._found.pop(place, None)

    def keep(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Forget partitions that are no longer assigned: their new owner tests their records."""
        self._until = {partition: until for partition, until in self._until.items() if partition in partitions}
        self._failures = {place: count for place, count in self._failures.items() if place[0] in partitions}
        self._found = {place: error for place, error in self._found.items() if place[0] in partitions}

    def error_of(self, record: ConsumerRecord) -> Exception | None:
        """Return the error of a poison record; None if it is not known to be one."""
        return self._found.get(_place(record)) if self._found else None


def _place(record: ConsumerRecord) -> tuple[TopicPartition, int]:
    return TopicPartition(record.topic, record.partition), record.offset


RECORD_ERRORS: Final = (RecordTooLargeError, InvalidRecordError, SerializationError, InvalidPartitionError)
"""The same record will fail the same way each time."""

FATAL_ERRORS: Final = (AuthorizationError, IllegalStateError, UnsupportedVersionError)
"""A retry cannot succeed until a user or operator changes something."""

ABORTABLE: Final = (TransactionAbortableError, TransactionAbortedError, TransactionTimeoutError)
"""Another transaction can succeed, even if the cause looks like fencing: with transactions V2 it may be the time-out of
this transaction. A producer that really is fenced fails when it begins the next one."""


class RebalancedError(KafkaError):
    """The reason why a transaction is aborted after a rebalance."""


class _LeftInTheMiddleError(KafkaError):
    """The reason why a batch is aborted whose code did not finish."""


def left_in_the_middle() -> KafkaError:
    """Return the reason to abort a batch whose code did not finish."""
    return _LeftInTheMiddleError("the loop was left in the middle of the batch")


class Meaning(Enum):
    """Facts of a failure that decide about the next attempt."""

    PASSING = "passing"
    """The cluster has a problem, or the group is rebalancing: retry the same batch after a pause."""

    RECORD = "record"
    """One of the records is at fault, and will fail again."""

    FATAL = "fatal"
    """This producer, or this user, can never commit."""


def meaning_of(error: BaseException) -> Meaning:
    """Return what the failure of a commit, or of the user's own code, means for the next attempt."""
    if not isinstance(error, KafkaError):
        return Meaning.RECORD  # the user's own code
    causes = list(_causes(error))
    if any(isinstance(cause, FATAL_ERRORS) or _is_of_forgotten_id(cause) for cause in causes):
        return Meaning.FATAL
    if isinstance(error, TransactionError) and not isinstance(error, ABORTABLE):
        return Meaning.FATAL
    if any(isinstance(cause, RECORD_ERRORS) for cause in causes):
        return Meaning.RECORD
    return Meaning.PASSING


def _is_of_forgotten_id(cause: BaseException) -> bool:
    """Whether the brokers no longer know the producer, which ends it."""
    return isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its causes, and the members of an error group."""
    while error is not None:
        yield error
        if isinstance(error, UndeliveredError):
            for part in error.exceptions:
                yield from _causes(part)
        if isinstance(error, KafkaError) and error.last_broker_error is not None:
            yield error.last_broker_error
        error = error.__cause__
