"""The consumer that tasks read with and the driver asks; aiokafka is imported here and by the two that use it."""

import asyncio
import gc
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol
from weakref import proxy

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from aioproducer.errors import KafkaError
from aioproducer.integrations._aiokafka_security import aiokafka_security
from aioproducer.spark._source_options import SourceOptions, connection_config, consumer_arguments

START_INTERVAL_S: Final = 0.5


class ReadRecord(Protocol):
    """A record as aiokafka decodes it."""

    offset: int
    timestamp: int
    """In ms."""
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@asynccontextmanager
async def consumer_of(
    options: SourceOptions, *, group_id: str | None = None, patience_s: float = 0.0
) -> AsyncIterator[AIOKafkaConsumer]:
    """Run a consumer that commits nothing by itself and does not guess where to begin.

    Args:
        options: of the read.
        group_id: to which offsets are committed.
        patience_s: how long it goes on trying while no broker is there.

    Raises:
        KafkaError: no broker is there.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while (consumer := await _started(options, group_id)) is None:
        if asyncio.get_running_loop().time() >= deadline:
            limit = f" for {patience_s:g} s (kafkaConsumer.pollTimeoutMs)" if patience_s else ""
            raise KafkaError(f"no broker answers{limit}: {options.kafka['bootstrap.servers']}")
        await asyncio.sleep(START_INTERVAL_S)
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _started(options: SourceOptions, group_id: str | None) -> AIOKafkaConsumer | None:
    """Return a consumer that has reached a broker; None if none is there."""
    consumer = AIOKafkaConsumer(
        group_id=group_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=options.isolation,
        **dict(consumer_arguments(options.kafka)),
        **await aiokafka_security(connection_config(options.kafka)),
    )
    with suppress(AttributeError):
        consumer._client._conns = _Connections()  # noqa: SLF001  # see below
    try:
        await consumer.start()
        with suppress(AttributeError):
            consumer._fetcher._records = _Fetched()  # noqa: SLF001  # see below
    except BaseException as error:
        await consumer.stop()
        if isinstance(error, KafkaConnectionError):
            return None
        raise
    return consumer


# aiokafka asks for the topics that it reads by their names, and lets brokers create them: one that is deleted while it
# is read would be there again. It has no option against this; a test finds a version whose client works otherwise.


class _Connections(dict[Any, Any]):
    """The connections of aiokafka's client; what they ask creates no topic."""

    def __setitem__(self, node: Any, connection: Any) -> None:
        connection.send = partial(_send_without_creation, connection.send)
        super().__setitem__(node, connection)


def _send_without_creation(send: Callable[..., Any], request: Any, **options: Any) -> Any:
    if isinstance(request, MetadataRequest):
        request._allow_auto_topic_creation = False  # noqa: SLF001  # its client gives no value
    return send(request, **options)


# aiokafka makes a `ConsumerRecord` of each record, one by one, which takes three times as long as to decode it. It has
# no public way to the batches that it has decoded; if another version lacks these attributes, its records are taken one
# by one.


def records_of(given: Sequence[Any]) -> list[ReadRecord]:
    """Return the records of what the consumer of `consumer_of` gives."""
    records: list[ReadRecord] = []
    for each in given:
        if isinstance(each, _BatchRecords):
            records += each.records
        else:
            records.append(each)
    return records


class _BatchRecords:
    """The records of one batch, as one record whose offset is that of the last.

    It has the parts of a record that an agent of OpenTelemetry reads of what a consumer gives.
    """

    topic = ""
    partition = -1
    key = value = None
    headers: Sequence[tuple[str, bytes]] = ()

    def __init__(self, records: list[ReadRecord]) -> None:
        self.records = records
        self.offset = records[-1].offset


class _WholeBatch:
    """A batch of aiokafka's, of which each step gives all records."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[_BatchRecords]:
        if records := _decoded(self._batch):
            yield _BatchRecords(records)

    def __next__(self) -> Any:
        return next(self._batch)  # of a marker, which is looked at by itself


def _decoded(batch: Iterable[ReadRecord]) -> list[ReadRecord]:
    was_enabled = gc.isenabled()
    gc.disable()  # ten thousand objects, none of them garbage: to look through them takes longer than to make them
    try:
        return list(batch)
    finally:
        if was_enabled:
            gc.enable()


class _WholeBatches:
    """The batches that aiokafka has fetched of one partition."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.has_next = batches.has_next

    def next_batch(self) -> _WholeBatch:
        return _WholeBatch(self._batches.next_batch())


def _without_earlier(of_partition: Any, place: TopicPartition, batch: _BatchRecords) -> _BatchRecords:
    """Leave out the records before the offset that was asked for, which the first batch may have."""
    batch.topic, batch.partition = place
    first: int = of_partition.next_fetch_offset
    if batch.records[0].offset < first:
        batch.records = [record for record in batch.records if record.offset >= first]
    return batch


class _Fetched(OrderedDict[Any, Any]):
    """The records that aiokafka has fetched and not given yet, by partition."""

    def __setitem__(self, place: Any, fetched: Any) -> None:
        records: Any = getattr(fetched, "_partition_records", None)  # an error has none
        if hasattr(records, "_records") and hasattr(records, "_consumer_record"):
            records._records = _WholeBatches(records._records)  # noqa: SLF001  # as above
            # A cycle would keep what was fetched until the next collection of garbage.
            records._consumer_record = partial(_without_earlier, proxy(records))  # noqa: SLF001  # as above
        super().__setitem__(place, fetched)
