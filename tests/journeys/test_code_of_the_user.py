"""Code of the user that fails: callbacks, serializers, partitioners, interceptors and log handlers."""

import asyncio
import dataclasses
import enum
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import structlog

from aioproducer import (
    IllegalStateError,
    KafkaError,
    MetadataNotReadyError,
    Outcome,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordFilteredError,
    RecordMetadata,
    RecordTooLargeError,
    RoundRobinPartitioner,
    SerializationError,
    StringSerializer,
    TopicAuthorizationError,
    TopicPartition,
)
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import producing
from tests.produced import VERBS, give, produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29

# Callbacks


async def test_callbacks_run_in_record_order_before_awaiters(producer: Producer, one_broker: FakeCluster) -> None:
    told: list[object] = []

    def note(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        told.append(metadata.offset if metadata is not None else type(error).__name__)

    for verb in VERBS:
        await give(producer, verb, "orders", b"v", partition=0, on_delivery=note)
        told.append("awaited")
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    for _ in range(3):
        producer.send("orders", b"v", partition=0, on_delivery=note)
    await producer.flush()  # the callback got the failure: it counts as retrieved

    expected: list[object] = []
    for offset in range(4):
        expected += [offset, "awaited"]
    assert told == [*expected, *["TopicAuthorizationError"] * 3]


async def test_failing_callbacks_do_not_stop_others(producer: Producer) -> None:
    told: list[str] = []

    def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    async def mistaken(*_: object) -> None:
        told.append("never")

    with LogCapture() as log:
        deliveries = [
            producer.send("orders", b"v", partition=0, on_delivery=lambda *_: 1 / 0),
            producer.send("orders", b"v", partition=0, on_delivery=cancelled),
            producer.send("orders", b"v", partition=0, on_delivery=partial(mistaken)),
            producer.send("orders", b"v", partition=0, on_delivery=lambda *_: told.append("last")),
        ]
        metadata = await asyncio.wait_for(asyncio.gather(*deliveries), 30)

    assert [each.offset for each in metadata] == [0, 1, 2, 3]
    assert told == ["last"]
    failures = log.naming("on_delivery_failed")
    assert [word for word in ("ZeroDivisionError", "CancelledError", "must not be async") if word in str(failures)] == [
        "ZeroDivisionError",
        "CancelledError",
        "must not be async",
    ]


async def test_callback_may_send(producer: Producer, one_broker: FakeCluster) -> None:
    sent: list[asyncio.Future[RecordMetadata]] = []

    def send_next(metadata: RecordMetadata | None, _error: object) -> None:
        assert metadata is not None
        sent.append(producer.send("orders", b"next", partition=0))
        sent.append(asyncio.ensure_future(producer.flush()))  # type: ignore[arg-type]

    await producer.send("orders", b"first", partition=0, on_delivery=send_next)
    await asyncio.wait_for(asyncio.gather(*sent), 30)

    assert values(one_broker, "orders") == [b"first", b"next"]


class Cancelling:
    """A serializer, a partitioner and an interceptor, each of which looks at a future that was cancelled."""

    def partition(self, *_: object) -> int:
        raise asyncio.CancelledError

    def serialize(self, topic: str, value: object) -> bytes:
        raise asyncio.CancelledError(topic, value)


@pytest.mark.parametrize("is_known", [True, False], ids=["topic known", "topic unknown"])
async def test_partitioner_that_raises_a_cancellation_fails_one_record(
    one_broker: FakeCluster, *, is_known: bool
) -> None:
    """Called for a waiting record, the partitioner's cancellation would otherwise end a task of the producer."""
    async with Producer(one_broker.bootstrap_servers, partitioner=Cancelling()) as producer:  # type: ignore[arg-type]
        if is_known:
            await producer.partitions_for("orders")
        with pytest.raises(KafkaError, match=r"Cancelling\.partition failed: CancelledError"):
            await producer.send("orders", b"v")

        assert (await producer.send("orders", b"v", partition=0)).offset == 0


async def test_serializer_that_raises_a_cancellation_has_failed(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, value_serializer=Cancelling()) as producer:  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="CancelledError"):
            await producer.enqueue("orders", "v")


# Interceptors


class Noting(ProducerInterceptor):
    def __init__(self) -> None:
        self.told: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, metadata: RecordMetadata, headers: object) -> None:
        self.told.append((metadata.offset, headers))

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: object) -> None:
        self.told.append((topic_partition, type(error), headers))

    def close(self) -> None:
        self.told.append("closed")


async def test_interceptor_sees_a_records_whole_life(one_broker: FakeCluster) -> None:
    """Sends before callbacks, acknowledgements, failures, failures at the call, and the end."""
    noting = Noting()
    seen = (("seen", b"1"),)
    producer = Producer(one_broker.bootstrap_servers, interceptors=[noting], value_serializer=StringSerializer())
    async with producer:
        await producer.send(
            "orders", "v", partition=0, headers=[("own", None)], on_delivery=lambda *_: noting.told.append("callback")
        )
        one_broker.faults.error(FORBIDDEN, PRODUCE)
        with pytest.raises(KafkaError):
            await producer.send("orders", "v", partition=0)
        with pytest.raises(SerializationError):
            producer.send("orders", 5)
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", "x" * 2_000_000, partition=1)
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("elsewhere", "v")

    kinds = [entry[1].__name__ if isinstance(entry, tuple) and len(entry) == 3 else entry for entry in noting.told]
    assert kinds == [
        (0, (("own", None), ("seen", b"1"))),
        "callback",
        "TopicAuthorizationError",
        "SerializationError",
        "RecordTooLargeError",
        "MetadataNotReadyError",
        "closed",
    ]
    assert noting.told[2] == (TopicPartition("orders", 0), noting.told[2][1], seen)  # type: ignore[index]
    assert values(one_broker, "orders") == [b"v"]


async def test_interceptor_is_told_of_a_refusal_for_partition_0(one_broker: FakeCluster) -> None:
    noting = Noting()
    async with Producer(one_broker.bootstrap_servers, interceptors=[noting]) as producer:
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", b"x" * 2_000_000, partition=0)

    assert noting.told == [(TopicPartition("orders", 0), RecordTooLargeError, (("seen", b"1"),)), "closed"]


async def test_interceptor_is_told_which_partition_refused(one_broker: FakeCluster) -> None:
    noting = Noting()
    async with Producer(one_broker.bootstrap_servers, interceptors=[noting]) as producer:
        one_broker.faults.error(FORBIDDEN, PRODUCE)
        with pytest.raises(KafkaError) as refused:
            await producer.send("orders", b"v", key=b"k")

    assert refused.value.partition in {0, 1, 2}
    place = TopicPartition("orders", refused.value.partition)
    assert noting.told == [(place, refused.type, (("seen", b"1"),)), "closed"]


@pytest.mark.parametrize("verb", VERBS)
async def test_interceptor_is_told_of_a_refusal_before_metadata(one_broker: FakeCluster, verb: str) -> None:
    """A partitioner of the user's waits for the topic, too, so that nothing has been appended."""
    noting = Noting()
    options = {"interceptors": [noting], "partitioner": RoundRobinPartitioner()}
    async with Producer(one_broker.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises((RecordTooLargeError, MetadataNotReadyError)) as refused:
            await give(producer, verb, "elsewhere", b"x" * 2_000_000)

    assert noting.told == [(TopicPartition("elsewhere", -1), refused.type, (("seen", b"1"),)), "closed"]


async def test_interceptor_is_told_of_a_refused_handed_over_record(one_broker: FakeCluster) -> None:
    """`BlockingProducer.enqueue` hands records over; their size is checked in another place."""
    noting = Noting()
    options = {"interceptors": [noting], "partitioner": RoundRobinPartitioner()}
    async with Producer(one_broker.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError):
            await producer._non_blocking().enqueue("elsewhere", b"x" * 2_000_000)

    assert noting.told == [(TopicPartition("elsewhere", -1), RecordTooLargeError, (("seen", b"1"),)), "closed"]


class Destination(enum.StrEnum):
    ORDERS = "orders"


@pytest.mark.parametrize("verb", VERBS)
async def test_interceptor_may_name_the_topic_by_an_enum(one_broker: FakeCluster, verb: str) -> None:
    """A caller may use an enum, too: the record is appended, and does not wait."""

    class Redirecting(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return dataclasses.replace(record, topic=Destination.ORDERS)

    async with Producer(one_broker.bootstrap_servers, interceptors=[Redirecting()]) as producer:
        await producer.partitions_for("orders")
        metadata = await give(producer, verb, "elsewhere", b"v")

    assert (metadata.topic, type(metadata.topic)) == ("orders", str)
    assert values(one_broker, "orders") == [b"v"]


async def test_failing_interceptor_is_logged_once_and_skipped(one_broker: FakeCluster) -> None:
    class Failing(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ZeroDivisionError(str(len(record.topic)))

        def on_acknowledgement(self, metadata: RecordMetadata, headers: object) -> None:  # noqa: ARG002
            raise ZeroDivisionError

    noting = Noting()
    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers, interceptors=[Failing(), noting]) as producer:
            for _ in range(5):
                await producer.send("orders", b"v", partition=0)
            failures = producer.statistics().interceptor_failures

    assert (failures, len(log.naming("interceptor_failed"))) == (10, 2)
    assert [dict(record.headers) for record in one_broker.records("orders", 0)] == [{"seen": b"1"}] * 5
    assert noting.told[-1] == "closed"


class Dropping(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        return None if record.value == b"drop" else record


@pytest.mark.parametrize("verb", VERBS)
async def test_dropped_record_is_an_error_of_its_own(one_broker: FakeCluster, verb: str) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[Dropping()]) as producer:
        with pytest.raises(RecordFilteredError, match="'orders'") as caught:
            await give(producer, verb, "orders", b"drop")
        producer.send("orders", b"drop")
        await producer.flush()
        assert (caught.value.outcome, producer.statistics().records_filtered) == (Outcome.NOT_WRITTEN, 2)
        assert produce_requests(one_broker) == 0
        await producer.send("orders", b"keep")

    assert values(one_broker, "orders") == [b"keep"]


async def test_dropped_record_keeps_the_time_0(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[Dropping()]) as producer:
        delivery = producer.send("orders", b"drop", timestamp=0)

        assert delivery.timestamp == 0


async def test_interceptor_that_returns_nonsense_is_skipped(one_broker: FakeCluster) -> None:
    class Nonsense(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record.topic  # type: ignore[return-value]

    async with Producer(one_broker.bootstrap_servers, interceptors=[Nonsense()]) as producer:
        await producer.send("orders", b"v")
        assert producer.statistics().interceptor_failures == 1


# The application's filters, handlers and processors may fail or block: records, starts and closes go on


LOG = logging.getLogger("aioproducer")


class Defect(BaseException):
    """Not an Exception, like `gevent.Timeout` and `pytest.fail`."""


class FailingFilter(logging.Filter):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  # the signature of its base
        raise self._error


class EmittingHandler(logging.Handler):
    def __init__(self, emit: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        self._emit(record)


def failing_filter(error: BaseException) -> None:
    LOG.addFilter(FailingFilter(error))


def failing_handler(error: BaseException) -> None:
    logging.getLogger().addHandler(EmittingHandler(FailingFilter(error).filter))


def failing_processor(error: BaseException) -> None:
    def processor(*_: object) -> str:
        raise error

    structlog.configure(processors=[processor])


def failing_logger_factory(error: BaseException) -> None:
    def wrapper_class(*_: object, **__: object) -> structlog.BoundLogger:
        raise error

    structlog.configure(wrapper_class=wrapper_class)  # type: ignore[arg-type]  # not a class, on purpose


@pytest.fixture(autouse=True)
def at_debug() -> Iterator[None]:
    """Let every event through; forget what a test configures."""
    root = logging.getLogger()
    level, filters, handlers = LOG.level, list(LOG.filters), list(root.handlers)
    LOG.setLevel(logging.DEBUG)
    yield
    LOG.setLevel(level)
    LOG.filters[:], root.handlers[:] = filters, handlers
    structlog.reset_defaults()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    exceptions: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: exceptions.append(report.exc_value))
    return exceptions


async def test_defect_in_one_callback_leaves_the_others_of_its_batch(one_broker: FakeCluster) -> None:
    told: list[int] = []

    def on_delivery(number: int, *_: object) -> None:
        if number == 0:
            raise Defect
        told.append(number)

    asyncio.get_running_loop().set_exception_handler(lambda _, details: told.append(-len(details)))
    async with Producer(one_broker.bootstrap_servers) as producer:
        await producer.partitions_for("orders")
        for number in range(4):
            producer.send("orders", b"v", partition=0, on_delivery=partial(on_delivery, number))
        await producer.flush()

    assert [number for number in told if number > 0] == [1, 2, 3]
    assert len(told) == 4


@pytest.mark.parametrize("error", [AttributeError("request_id"), Defect(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("fail", [failing_filter, failing_handler, failing_processor, failing_logger_factory])
async def test_logging_that_raises_changes_nothing(
    reported: list[BaseException | None], fail: Callable[[BaseException], None], error: BaseException
) -> None:
    fail(error)
    async with producing(FakeCluster(2, topics={"orders": 2}), linger_ms=0) as (cluster, producer):
        cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, PRODUCE)
        with pytest.raises(TopicAuthorizationError):
            await producer.send("orders", b"refused", partition=0)
        await producer.send("orders", b"a", partition=0)
        await cluster.kill(1)
        for partition in range(2):
            await producer.send("orders", b"b", partition=partition)
        await producer.close()

    assert reported == [error]


def test_exit_asked_by_a_handler_comes_after_the_work() -> None:
    """`sys.exit` in a handler ends the program, as in any callback, but completes the current work first."""
    told: list[str] = []

    def exit_once(record: logging.LogRecord) -> bool:
        LOG.removeFilter(exit_once)
        raise SystemExit(record.levelno)

    async def main() -> None:
        async with producing() as (cluster, producer):
            await producer.send("orders", b"v")
            LOG.addFilter(exit_once)
            cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, PRODUCE)
            await producer.send("orders", b"v", on_delivery=lambda _, error: told.append(type(error).__name__))

    with pytest.raises(SystemExit):
        asyncio.run(main())

    assert told == ["TopicAuthorizationError"]


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
async def test_handler_may_send_while_an_event_is_logged(level: int) -> None:
    """Events are logged in the middle of a start, an append or a settlement."""
    LOG.setLevel(level)
    lines: list[str] = []
    async with FakeCluster(2, topics={"orders": 2, "logs": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)

        def emit(record: logging.LogRecord) -> None:
            try:
                producer.send("logs", record.getMessage().encode(), on_delivery=lambda *_: None)
            except IllegalStateError:
                return  # not started, or closed
            lines.append(record.getMessage())

        logging.getLogger().addHandler(EmittingHandler(emit))
        await producer.start()
        cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE, topic="orders"))
        with pytest.raises(TopicAuthorizationError):
            await producer.send("orders", b"refused", partition=0)
        await cluster.kill(1)
        for partition in range(2):
            await producer.send("orders", b"v", partition=partition)
        await producer.flush()
        written = {record.value for record in cluster.records("logs", 0)}
        LOG.setLevel(logging.CRITICAL)
        await producer.close()

    assert any("batch_failed" in line for line in lines)
    assert written >= {line.encode() for line in lines if "batch_failed" in line}


async def test_waiting_in_a_handler_on_the_loops_own_thread_is_refused() -> None:
    refusals: list[str] = []
    async with producing(FakeCluster(1, topics={"logs": 1})) as (_, producer):

        def emit(record: logging.LogRecord) -> None:
            with pytest.raises(IllegalStateError, match="event loop's own thread") as caught:
                producer.send_threadsafe("logs", record.getMessage().encode()).result()
            refusals.append(str(caught.value))

        application = logging.getLogger("application")
        handler = EmittingHandler(emit)
        application.addHandler(handler)
        try:
            application.warning("line")
        finally:
            application.removeHandler(handler)
        await producer.flush()
        assert len(refusals) == 1
