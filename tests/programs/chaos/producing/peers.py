"""Other clients with the methods of `Producer` that the workloads call: `RecordingClient` drives them all alike.

A peer is called for one record after another, in the order of the workload's calls: what comes out of order then is its
own doing. It has no word for "not written", so the outcome of a record that it took and failed is UNKNOWN.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import confluent_kafka
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError

from aioproducer import KafkaError, Outcome, Producer, RecordMetadata, TopicPartition

OnDelivery = Callable[[RecordMetadata | None, BaseException | None], None]

POLL_S: Final = 0.005
"""Pause between two looks for what librdkafka reports, or for room in its queue."""

LOOK_UP_S: Final = 2.0


class ChaosClient(Protocol):
    """The methods of a producer that workloads call."""

    async def start(self) -> None:
        """Connect."""

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""

    async def enqueue(
        self, topic: str, value: bytes, *, partition: int | None, timestamp: int, on_delivery: OnDelivery
    ) -> object:
        """Give a record, and wait for room."""

    def send(
        self, topic: str, value: bytes, *, partition: int | None, timestamp: int, on_delivery: OnDelivery
    ) -> object:
        """Give a record without waiting."""

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  # as `Producer.close`
        """Send what is left, within seconds."""


@dataclass(slots=True, kw_only=True)
class PeerRecord:
    """A record on its way into a peer."""

    topic: str
    value: bytes
    partition: int | None
    timestamp: int
    on_delivery: OnDelivery
    until: float  # time of the loop; later it is refused
    taken: asyncio.Future[None]  # done when the peer has taken or refused it

    def delivered(self, partition: int, offset: int, timestamp: int) -> None:
        place = TopicPartition(self.topic, partition)
        self.on_delivery(RecordMetadata(self.topic, partition, place, offset, timestamp, 0, -1), None)

    def failed(self, reason: object, outcome: Outcome) -> None:
        self.on_delivery(None, KafkaError(str(reason), outcome=outcome))


class Peer(ABC):
    """A peer behind a queue; a task of its own gives it one record after another."""

    def __init__(self, *, max_block_ms: int) -> None:
        self._max_block_s = max_block_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[PeerRecord] = asyncio.Queue()  # no longer than `max_block_ms`
        self._giving: asyncio.Task[None] | None = None
        self._is_closing = False

    async def start(self) -> None:
        await self._connect()
        self._giving = asyncio.create_task(self._give())

    async def enqueue(
        self, topic: str, value: bytes, *, partition: int | None, timestamp: int, on_delivery: OnDelivery
    ) -> None:
        await self.send(topic, value, partition=partition, timestamp=timestamp, on_delivery=on_delivery)

    def send(
        self, topic: str, value: bytes, *, partition: int | None, timestamp: int, on_delivery: OnDelivery
    ) -> asyncio.Future[None]:
        if self._is_closing:
            raise KafkaError("the producer closes", outcome=Outcome.NOT_WRITTEN)
        record = PeerRecord(
            topic=topic,
            value=value,
            partition=partition,
            timestamp=timestamp,
            on_delivery=on_delivery,
            until=self._loop.time() + self._max_block_s,
            taken=self._loop.create_future(),
        )
        self._waiting.put_nowait(record)
        return record.taken

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  # as `Producer.close`
        self._is_closing, until = True, self._loop.time() + timeout
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._waiting.join()
        if self._giving is not None:
            self._giving.cancel()
            await asyncio.wait([self._giving])
        while not self._waiting.empty():
            self._refuse(self._waiting.get_nowait(), "the producer closes")
        await self._end(until - self._loop.time())

    async def _give(self) -> None:
        while True:
            record = await self._waiting.get()
            try:
                async with asyncio.timeout_at(record.until):
                    await self._take(record)
            except (TimeoutError, AiokafkaError, confluent_kafka.KafkaException) as error:
                self._refuse(record, error)
            except asyncio.CancelledError:
                self._refuse(record, "the producer closes")
                raise
            else:
                record.taken.set_result(None)
            finally:
                self._waiting.task_done()

    def _refuse(self, record: PeerRecord, reason: object) -> None:
        record.failed(reason, Outcome.NOT_WRITTEN)
        record.taken.set_result(None)

    @abstractmethod
    async def _connect(self) -> None:
        """Connect; raises `KafkaError` if that fails."""

    @abstractmethod
    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; raises `KafkaError` if they are not known."""

    @abstractmethod
    async def _take(self, record: PeerRecord) -> None:
        """Give the client a record when it has room; after an exception it has not taken the record."""

    @abstractmethod
    async def _end(self, timeout_s: float) -> None:
        """Send what is left; then every record has ended."""


class Librdkafka(Peer):
    """confluent-kafka, with idempotence."""

    def __init__(self, bootstrap: str, *, client_id: str, **options: Any) -> None:
        super().__init__(max_block_ms=options["max_block_ms"])
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": options["enable_idempotence"],
                "acks": "all",
                "request.timeout.ms": options["request_timeout_ms"],
                "socket.timeout.ms": options["request_timeout_ms"],
                "delivery.timeout.ms": options["delivery_timeout_ms"],
                "linger.ms": options["linger_ms"],
                "batch.size": options["batch_size"],
                "queue.buffering.max.kbytes": options["buffer_memory"] // 1024,
                "compression.type": options["compression_type"],
                "max.in.flight": options["max_in_flight_requests_per_connection"],
                "metadata.max.age.ms": options["metadata_max_age_ms"],
                "log_level": 0,
            }
        )
        self._polling: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        self._polling = asyncio.create_task(self._poll())

    async def partitions_for(self, topic: str) -> list[int]:
        try:
            found = await asyncio.to_thread(self._producer.list_topics, topic, LOOK_UP_S)
        except confluent_kafka.KafkaException as error:
            raise KafkaError(str(error)) from error
        return list(found.topics[topic].partitions)

    async def _take(self, record: PeerRecord) -> None:
        def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                record.failed(error, Outcome.UNKNOWN)
            else:
                record.delivered(partition, offset, message.timestamp()[1])

        partition = -1 if record.partition is None else record.partition
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, partition=partition, timestamp=record.timestamp, on_delivery=on_delivery
                )
            except BufferError:
                await asyncio.sleep(POLL_S)
            else:
                return

    async def _poll(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(POLL_S)

    async def _end(self, timeout_s: float) -> None:
        until = self._loop.time() + timeout_s
        while len(self._producer) and self._loop.time() < until:  # noqa: ASYNC110  # reports come by polling only
            await asyncio.sleep(POLL_S)
        self._producer.purge()
        while len(self._producer):  # noqa: ASYNC110  # as above
            await asyncio.sleep(POLL_S)
        if self._polling is not None:
            self._polling.cancel()


class Aiokafka(Peer):
    """aiokafka, with idempotence; its `request_timeout_ms` is also the life of a record."""

    def __init__(self, bootstrap: str, *, client_id: str, **options: Any) -> None:
        super().__init__(max_block_ms=options["max_block_ms"])
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # how clients log is not compared
        codec = options["compression_type"]
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            enable_idempotence=options["enable_idempotence"],
            acks="all",
            request_timeout_ms=options["delivery_timeout_ms"],
            linger_ms=options["linger_ms"],
            max_batch_size=options["batch_size"],
            compression_type=None if codec == "none" else codec,
            metadata_max_age_ms=options["metadata_max_age_ms"],
        )
        self._unfinished: dict[asyncio.Future[Any], PeerRecord] = {}

    async def _connect(self) -> None:
        try:
            await self._producer.start()
        except AiokafkaError as error:
            raise KafkaError(str(error)) from error

    async def partitions_for(self, topic: str) -> list[int]:
        try:
            return sorted(await self._producer.partitions_for(topic))
        except AiokafkaError as error:
            raise KafkaError(str(error)) from error

    async def _take(self, record: PeerRecord) -> None:
        sent = await self._producer.send(
            record.topic, record.value, partition=record.partition, timestamp_ms=record.timestamp
        )
        self._unfinished[sent] = record
        sent.add_done_callback(self._ended)

    def _ended(self, sent: "asyncio.Future[Any]") -> None:
        record = self._unfinished.pop(sent, None)
        if record is None:
            return
        if sent.cancelled() or sent.exception() is not None:
            record.failed("cancelled" if sent.cancelled() else sent.exception(), Outcome.UNKNOWN)
        else:
            metadata = sent.result()
            record.delivered(metadata.partition, metadata.offset, record.timestamp)  # it tells the batch's first

    async def _end(self, timeout_s: float) -> None:
        stopping = asyncio.create_task(self._producer.stop())
        await asyncio.wait([stopping], timeout=max(timeout_s, 0))
        stopping.cancel()
        for sent in list(self._unfinished):
            self._unfinished.pop(sent).failed("not sent when it was closed", Outcome.UNKNOWN)


CLIENTS: Final[Mapping[str, Callable[..., ChaosClient]]] = {
    "aioproducer": Producer,
    "confluent-kafka": Librdkafka,
    "aiokafka": Aiokafka,
}
"""By the names that `--client` takes."""
