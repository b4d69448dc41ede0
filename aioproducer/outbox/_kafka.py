"""Kafka as a relay uses it: a producer whose transactions carry rows and the position."""

from __future__ import annotations

from asyncio import as_completed, create_task, gather
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._producer.producer import Producer
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import (
    BrokerError,
    ConfigurationError,
    InvalidPartitionError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    RecordFilteredError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimeoutError,
)
from aioproducer.outbox._arguments import check_exact
from aioproducer.outbox._calls import fetch_error
from aioproducer.outbox._errors import InDoubtError
from aioproducer.outbox._protocol import Position, PositionRefusedError, RowsRefusedError, StoredRow
from aioproducer.outbox._record import decode_headers
from aioproducer.records import OffsetAndMetadata, TopicPartition, check_partition, check_topic_name

if TYPE_CHECKING:
    from aioproducer._producer.bulk import BulkDelivery
    from aioproducer._producer.send_methods import SendMethods
    from aioproducer._producer.transaction import Transaction
    from aioproducer.config import ProducerConfig
    from aioproducer.records import Headers

ID_PREFIX: Final = "aioproducer.outbox."
TOLD_AFTER_S: Final = 5.0
_OF_RECORDS: Final = (
    RecordTooLargeError,
    InvalidRecordError,
    SerializationError,
    InvalidPartitionError,
    InvalidTopicError,
    TopicAuthorizationError,
    RecordFilteredError,
)
_LOST_MARKERS: Final = (
    "the offset of group {group!r} is of a transaction that hangs: its coordinator gave its markers up, as Kafka does "
    "where no replica of a partition is there, such as the only one as it starts again. `aioproducer txn list "
    "--hanging --longest 60` shows it: end it with `aioproducer txn abort` in every topic first, and in "
    "__consumer_offsets last, since the relay then goes on by itself"
)
_PAYLOADS: Final = frozenset({bytes, bytearray, memoryview, type(None)})
_OWN: Final = ("transactional_id", "key_serializer", "value_serializer")


class _Columns(NamedTuple):
    """Rows of one topic, column by column: as `StoredRow`."""

    ids: Sequence[int]
    topics: Sequence[str]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[str | None]
    partitions: Sequence[int | None]
    timestamps: Sequence[int]

    def part(self, begin: int, end: int) -> _Columns:
        return self if end - begin == len(self.ids) else _Columns._make(column[begin:end] for column in self)


class _Part(NamedTuple):
    """Rows that are sent by one call: of one topic, and of one value of the column `partition`."""

    rows: _Columns
    headers: Sequence[Headers | None] | None


class ProducerLog:
    """A producer, made at each `open`.

    Args:
        config: of the user's.
        prefix: of the transactional id and the group, before the identity of the outbox.
        is_exact: whether it has transactions.

    Raises:
        ConfigurationError: an option that is the relay's.
    """

    def __init__(self, config: ProducerConfig, *, prefix: str, is_exact: bool) -> None:
        for name in _OWN:
            if getattr(config, name) is not None:
                raise ConfigurationError(
                    f"{name} is not for a relay: rows are bytes, and have an id of their own", option=name
                )
        if is_exact:
            check_exact(config)
        self._config = config
        self._prefix = prefix
        self._is_exact = is_exact
        self._group = ""
        self._asked: dict[str, float] = {}  # topics that are looked up, and since when; monotonic seconds
        self.producer: Producer | None = None

    async def open(self, identity: str) -> None:
        """Take the transactional id: from now on no older relay commits."""
        await self.close()
        self._group = f"{self._prefix}{identity}"
        config = self._config.replace(linger_ms=0)  # rows are handed over in one go: nothing more is waited for
        if self._is_exact:
            config = config.replace(transactional_id=self._group)
        self.producer = producer = Producer(config)
        try:
            await producer.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Drop the producer, with a transaction that may be open: the next `open` ends it."""
        producer, self.producer = self.producer, None
        if producer is not None:
            with suppress(KafkaError):  # failures of rows are known, or found out by the next start
                await producer.close(0)

    async def position(self, topic: str) -> Position | None:
        """Return the group's offset; waits while a transaction may still change it.

        Raises:
            InDoubtError: one hangs: this producer has ended its own, so Kafka has lost the markers.
        """
        try:
            found = await self._open.committed_offsets(self._group, [TopicPartition(topic, 0)])
        except TransactionTimeoutError as error:
            last = error.last_broker_error
            if isinstance(last, BrokerError) and last.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise InDoubtError(_LOST_MARKERS.format(group=self._group)) from error
            raise
        offset = found[TopicPartition(topic, 0)]
        return None if offset is None else Position(offset.offset, offset.metadata)

    async def _faults_of_topics(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return why topics are refused for good; those that are there are left out.

        A topic may have been made a moment ago, so brokers that do not know it are asked until `max_block_ms` is over,
        for all of them at the same time.
        """
        if len(topics) == 1:  # as nearly always: no task is made
            found: Sequence[str | BaseException | None] = [await self._fault_of_topic(topic) for topic in topics]
        else:
            found = await gather(*map(self._fault_of_topic, topics), return_exceptions=True)
        faults: dict[str, str] = {}
        for topic, fault in zip(topics, found, strict=True):
            if isinstance(fault, BaseException):
                raise fault
            if fault is not None:
                faults[topic] = fault
        return faults

    async def topic_that_is_there(self, topics: Collection[str]) -> tuple[str | None, Mapping[str, str]]:
        """Return the first topic that brokers name, or None; and, by topic, why others are refused for good."""
        faults: dict[str, str] = {}
        looks = [create_task(self._named_fault_of_topic(topic)) for topic in topics]
        for look in looks:
            look.add_done_callback(fetch_error)
        try:
            for ended in as_completed(looks):
                topic, fault = await ended
                if fault is None:
                    return topic, faults
                faults[topic] = fault
        finally:
            for look in looks:
                look.cancel()
        return None, faults

    async def _named_fault_of_topic(self, topic: str) -> tuple[str, str | None]:
        return topic, await self._fault_of_topic(topic)

    async def _fault_of_topic(self, topic: str) -> str | None:
        self._asked[topic] = monotonic()
        try:
            check_topic_name(topic)
            await self._open.partitions_for(topic)
        except (TypeError, ValueError, BrokerError, MetadataTimeoutError) as error:
            if not _is_refusal(error):
                raise
            return str(error)
        finally:
            self._asked.pop(topic, None)
        return None

    def missing_topic(self) -> str:
        """Return which topics no broker has named yet; empty unless that takes long."""
        now = monotonic()
        missing = sorted(topic for topic, since in self._asked.items() if now - since >= TOLD_AFTER_S)
        if not missing:
            return ""
        names = f"topic {missing[0]!r}" if len(missing) == 1 else f"topics {', '.join(map(repr, missing))}"
        return f"no broker has named the {names} yet; they are asked until max_block_ms is over"

    async def commit(self, rows: Sequence[StoredRow], topic: str, position: Position) -> None:
        """Commit rows and position in one transaction.

        Raises:
            RowsRefusedError: rows are refused for good; nothing is committed.
            PositionRefusedError: no broker has the topic; nothing is committed, nor will be.
            KafkaError: it may be committed.
        """
        producer = self._open
        parts = await self._parts(rows)
        if not self._is_exact:
            sent = await _enqueue(producer, parts)
            _raise_refusals(await _errors(sent))
            return
        sent = []
        try:
            async with producer.transaction() as transaction:
                sent = await _enqueue(transaction, parts)
                await self._send_position(transaction, topic, position)
        except TransactionAbortableError:
            errors = await _errors(sent)
            _raise_refusals(
                {row: each for row, each in errors.items() if not isinstance(each, TransactionAbortedError)}
            )
            raise  # its text has the cause

    async def _send_position(self, transaction: Transaction, topic: str, position: Position) -> None:
        """Send the position; its error leaves the block of the transaction, whose commit is then never asked for."""
        offset = OffsetAndMetadata(position.number, position.token)
        try:
            await transaction.send_offsets({TopicPartition(topic, 0): offset}, self._group)
        except TransactionTimeoutError as error:
            last = error.last_broker_error
            if isinstance(last, BrokerError) and last.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise PositionRefusedError(
                    f"topic {topic!r}, in which the outbox's group has its offset, is gone, so nothing was committed; "
                    "the relay begins again with another topic"
                ) from error
            raise

    @property
    def _open(self) -> Producer:
        assert self.producer is not None, "open before"
        return self.producer

    async def _parts(self, rows: Sequence[StoredRow]) -> list[_Part]:
        """Divide rows by topic, and look each topic up before a transaction is open; raises what is refused."""
        parts: list[_Part] = []
        refused: dict[int, str] = {}
        by_topic = _by_topic(rows)
        faults_of_topics = await self._faults_of_topics(by_topic)
        for topic, columns in by_topic.items():
            if topic in faults_of_topics:
                refused |= dict.fromkeys(columns.ids, faults_of_topics[topic])
                continue
            headers, faults = _headers_of(columns)
            refused |= faults
            refused |= _faults_of_partitions(columns)
            refused |= _faults_of_payloads(columns)
            parts += _by_partition(columns, headers)
        if refused:
            raise RowsRefusedError(refused)
        return parts


def _by_topic(rows: Sequence[StoredRow]) -> dict[str, _Columns]:
    if not rows:
        return {}
    columns = _Columns._make(zip(*rows, strict=True))
    topics = dict.fromkeys(columns.topics)
    if len(topics) == 1:
        return dict.fromkeys(topics, columns)
    return {topic: _Columns._make(zip(*(row for row in rows if row.topic == topic), strict=True)) for topic in topics}


def _headers_of(columns: _Columns) -> tuple[Sequence[Headers | None] | None, Mapping[int, str]]:
    """Return the headers of rows, None if none has any, and what is wrong with some."""
    if not any(columns.headers):
        return None, {}
    headers: list[Headers | None] = []
    faults: dict[int, str] = {}
    for number, text in zip(columns.ids, columns.headers, strict=True):
        try:
            headers.append(tuple(decode_headers(text) or ()))
        except ValueError as error:
            faults[number] = str(error)
    return headers, faults


def _faults_of_partitions(columns: _Columns) -> dict[int, str]:
    """Return what is wrong with values of the column `partition`, by id."""
    faults: dict[int | None, str] = {}
    for partition in set(columns.partitions):
        try:
            check_partition(partition)
        except (TypeError, ValueError) as error:
            faults[partition] = str(error)
    if not faults:  # as nearly always
        return {}
    return {id_: faults[each] for id_, each in zip(columns.ids, columns.partitions, strict=True) if each in faults}


def _faults_of_payloads(columns: _Columns) -> dict[int, str]:
    """Return what is wrong with keys and values, by id: SQLite keeps a text or a number in a column of bytes."""
    faults: dict[int, str] = {}
    for name, payloads in (("key", columns.keys), ("value", columns.values)):
        if not _PAYLOADS.issuperset(map(type, payloads)):  # hardly ever
            faults |= {
                id_: f"{name} must be bytes or NULL, not {type(payload).__name__}: write CAST(... AS BLOB) in SQL"
                for id_, payload in zip(columns.ids, payloads, strict=True)
                if type(payload) not in _PAYLOADS
            }
    return faults


def _by_partition(columns: _Columns, headers: Sequence[Headers | None] | None) -> Iterable[_Part]:
    """Divide rows where the column `partition` changes, so that the order of their ids stays."""
    changes = []
    if len(set(columns.partitions)) > 1:
        pairs = enumerate(pairwise(columns.partitions), 1)
        changes = [at for at, (before, after) in pairs if before != after]
    for begin, end in pairwise([0, *changes, len(columns.ids)]):
        yield _Part(columns.part(begin, end), None if headers is None else headers[begin:end])


async def _enqueue(to: SendMethods, parts: Iterable[_Part]) -> list[tuple[BulkDelivery, Sequence[int]]]:
    """Enqueue rows, and return the ids of each call; raises what is refused at once."""
    sent: list[tuple[BulkDelivery, Sequence[int]]] = []
    for rows, headers in parts:
        partition = rows.partitions[0]
        bulk = await to.send_many(
            rows.topics[0],
            rows.values,
            keys=rows.keys,
            partition=partition,
            timestamps=rows.timestamps,
            record_headers=headers,
        )
        sent.append((bulk, rows.ids))
    refused = {ids[at]: str(error) for bulk, ids in sent for at, error in bulk.refused.items() if _is_refusal(error)}
    if refused:
        raise RowsRefusedError(refused)
    return sent


async def _errors(sent: Iterable[tuple[BulkDelivery, Sequence[int]]]) -> dict[int, Exception]:
    """Return what each row has failed with, by id."""
    errors: dict[int, Exception] = {}
    for bulk, ids in sent:
        errors |= {ids[at]: error for at, error in (await bulk).errors.items()}
    return errors


def _raise_refusals(errors: Mapping[int, Exception]) -> None:
    """Raise for the rows that are refused for good, or else the first error."""
    refused = {number: error for number, error in errors.items() if _is_refusal(error)}
    if refused:
        raise RowsRefusedError({number: str(error) for number, error in _culprits(refused).items()})
    for error in errors.values():
        raise error


def _culprits(refused: Mapping[int, Exception]) -> Mapping[int, Exception]:
    """Return the rows that a broker has named, where it refused whole batches because of one of their records."""
    by_partition: dict[tuple[str | None, int | None], list[int]] = {}
    for number, error in refused.items():
        if isinstance(error, InvalidRecordError) and error.record_index is not None:
            by_partition.setdefault((error.topic, error.partition), []).append(number)
    if not by_partition:
        return refused
    named: dict[int, Exception] = {}
    for numbers in by_partition.values():
        first = refused[numbers[0]]
        assert isinstance(first, InvalidRecordError)
        assert first.record_index is not None
        number = numbers[min(first.record_index, len(numbers) - 1)]
        named[number] = refused[number]
    return named


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, MetadataTimeoutError):
        cause = error.last_broker_error
        is_missing = isinstance(cause, BrokerError) and cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_missing or isinstance(cause, _OF_RECORDS)
    return isinstance(error, _OF_RECORDS) or not isinstance(error, KafkaError)
