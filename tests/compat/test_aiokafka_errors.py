"""Failures raise aiokafka's errors, with this library's as the cause."""

import asyncio
import gc

import pytest
from aiokafka import errors

from aioproducer import (
    AuthenticationError,
    BrokerConnectionError,
    BufferFullError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidPartitionError,
    KafkaError,
    MetadataTimeoutError,
    NoTransactionError,
    Outcome,
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from aioproducer.compat import AIOKafkaProducer
from aioproducer.compat.aiokafka.errors import IN_ORDER, as_aiokafka
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.compat.aiokafka_programs import producer_of
from tests.fakes.producing import background_tasks
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
REQUEST_TIMED_OUT = 7
NOT_LEADER = 6
LEADER_NOT_AVAILABLE = 5
NOT_AUTHORIZED = 29


@pytest.mark.slow
async def test_unknown_topic_is_aiokafkas_error(one_broker: FakeCluster) -> None:
    async with producer_of(one_broker, request_timeout_ms=1_000) as producer:
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await producer.send_and_wait("unknown", b"1")
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await producer.partitions_for("unknown")


@pytest.mark.parametrize(
    "code,expected",
    [
        (REQUEST_TIMED_OUT, errors.RequestTimedOutError),
        (NOT_LEADER, errors.NotLeaderForPartitionError),
        (LEADER_NOT_AVAILABLE, errors.LeaderNotAvailableError),
    ],
)
async def test_last_answer_of_the_broker_is_the_error(
    one_broker: FakeCluster, code: int, expected: type[Exception]
) -> None:
    one_broker.faults.error(code, Where(api=ApiKey.PRODUCE, topic="orders", partition=0), times=None)
    async with producer_of(one_broker, request_timeout_ms=200, retry_backoff_ms=20) as producer:
        failing = await producer.send("orders", b"1", partition=0)
        passing = await producer.send("orders", b"2", partition=1)
        with pytest.raises(expected) as raised:
            await failing

        assert (await passing).offset == 0
    assert isinstance(raised.value, errors.KafkaError)
    assert isinstance(raised.value.__cause__, DeliveryTimeoutError)
    assert raised.value.__cause__.outcome in {Outcome.NOT_WRITTEN, Outcome.UNKNOWN}


async def test_refused_call_leaves_no_future_behind(one_broker: FakeCluster) -> None:
    """The caller never gets the future, so asyncio would warn of an exception that was never retrieved."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with producer_of(one_broker) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"1", timestamp=None)
        for call in (producer.send("orders", b"1", partition=99), producer.send_batch(batch, "orders", partition=99)):
            with pytest.raises(AssertionError, match=r"partition must be 0\.\.\d"):
                await call
        await producer.send_and_wait("orders", b"2", partition=0)
    gc.collect()

    assert complaints == []


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": True}])
async def test_silent_broker_is_a_request_timeout(one_broker: FakeCluster, options: dict[str, bool]) -> None:
    """The class is that of aiokafka, also for a record behind the unanswered one. Each future has its own instance."""
    async with producer_of(one_broker, request_timeout_ms=150, retry_backoff_ms=20, **options) as producer:
        await producer.send_and_wait("orders", b"0", partition=0)
        one_broker.faults.stall(PRODUCE, times=None)
        futures = [await producer.send("orders", b"%d" % number, partition=0) for number in range(2)]
        first, second = await asyncio.gather(*futures, return_exceptions=True)

    assert (type(first), type(second)) == (errors.RequestTimedOutError, errors.RequestTimedOutError)
    assert first is not second


async def test_dead_broker_is_a_node_that_is_not_ready(one_broker: FakeCluster) -> None:
    """The class is aiokafka's, whether or not the record was sent before the broker died."""
    async with producer_of(one_broker, request_timeout_ms=200, retry_backoff_ms=20) as producer:
        await producer.send_and_wait("orders", b"0", partition=0)
        one_broker.faults.stall(PRODUCE, times=None)
        sent = await producer.send("orders", b"1", partition=0)
        await one_broker.kill(1)
        unsent = await producer.send("orders", b"2", partition=1)
        found = await asyncio.gather(sent, unsent, return_exceptions=True)

    assert [type(error) for error in found] == [errors.NodeNotReadyError] * 2


async def test_last_attempt_decides_the_class(one_broker: FakeCluster) -> None:
    """The broker refused the record at first, and then died: aiokafka would have met a node that is not ready last."""
    async with producer_of(one_broker, request_timeout_ms=300, retry_backoff_ms=20) as producer:
        await producer.send_and_wait("orders", b"0", partition=0)
        refused = one_broker.faults.error(NOT_LEADER, PRODUCE, times=None)
        future = await producer.send("orders", b"1", partition=0)
        async with asyncio.timeout(5):
            while not refused.hits:  # noqa: ASYNC110 - the broker tells only who asks
                await asyncio.sleep(0.01)
        await one_broker.kill(1)
        with pytest.raises(errors.NodeNotReadyError):
            await future


@pytest.mark.parametrize(
    "error,expected",
    [
        (BufferFullError("full"), errors.KafkaTimeoutError),
        (MetadataTimeoutError("late"), errors.UnknownTopicOrPartitionError),
        (ProtocolError("not an answer"), errors.KafkaProtocolError),
        (BrokerConnectionError("lost"), errors.KafkaConnectionError),
        (AuthenticationError("no"), errors.AuthenticationFailedError),
        (UnsupportedVersionError("old"), errors.IncompatibleBrokerVersion),
        (RecordTooLargeError("large"), errors.MessageSizeTooLargeError),
        (ProducerClosedError("closed"), errors.ProducerClosed),
        (NoTransactionError("none"), errors.IllegalOperation),
        (ProducerFencedError("fenced"), errors.ProducerFenced),
        (InvalidPartitionError("no"), AssertionError),
        (KafkaError("other"), errors.KafkaError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_classes_are_those_of_the_page(error: KafkaError, expected: type[Exception]) -> None:
    translated = as_aiokafka(error)

    assert type(translated) is expected
    assert translated.__cause__ is error


async def test_partition_without_leader_is_aiokafkas_error() -> None:
    """The leader died and no broker took over."""
    async with (
        FakeCluster(2, topics={"t": 2}, replication_factor=1) as cluster,
        producer_of(cluster, request_timeout_ms=300, retry_backoff_ms=20) as producer,
    ):
        await producer.send_and_wait("t", b"0", partition=0)
        await cluster.kill(cluster.leader_of("t", 0))
        with pytest.raises(errors.LeaderNotAvailableError):
            await producer.send_and_wait("t", b"1", partition=0)


async def test_lost_connections_are_a_connection_error(one_broker: FakeCluster) -> None:
    """The broker accepts each connection and closes it at the record: aiokafka's class."""
    async with producer_of(one_broker, request_timeout_ms=200, retry_backoff_ms=20) as producer:
        await producer.send_and_wait("orders", b"0", partition=0)
        one_broker.faults.drop_connection(PRODUCE, times=None)
        with pytest.raises(errors.KafkaConnectionError):
            await producer.send_and_wait("orders", b"1", partition=0)


async def test_refusal_by_the_broker_is_its_code(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    """The class is the one that aiokafka has for the code."""
    one_broker.faults.error(NOT_AUTHORIZED, PRODUCE)

    with pytest.raises(errors.TopicAuthorizationFailedError) as raised:
        await producer.send_and_wait("orders", b"1")

    assert isinstance(raised.value.__cause__, KafkaError)


async def test_retries_keep_the_order_and_make_no_duplicate(one_broker: FakeCluster) -> None:
    one_broker.faults.drop_connection(PRODUCE, after_append=True, times=2)
    async with producer_of(one_broker, enable_idempotence=True, retry_backoff_ms=20) as producer:
        futures = [await producer.send("orders", b"%d" % number, partition=0) for number in range(10)]
        offsets = [metadata.offset for metadata in await asyncio.gather(*futures)]

    assert offsets == list(range(10))
    assert values(one_broker, "orders") == [b"%d" % number for number in range(10)]


async def test_dead_background_task_fails_records(one_broker: FakeCluster) -> None:
    """The waiting record and every later one get aiokafka's class."""
    producer = producer_of(one_broker, linger_ms=60_000)
    await producer.start()
    future = await producer.send("orders", b"1")
    background_tasks()["sender"].cancel()

    with pytest.raises(errors.KafkaError, match="sender task"):
        await future
    with pytest.raises(errors.KafkaError, match="sender task"):
        await producer.send("orders", b"2")
    await producer.stop()


@pytest.mark.parametrize("cause,expected", [(None, AssertionError), (ZeroDivisionError(), errors.IllegalStateError)])
def test_failed_producer_is_no_wrong_order(cause: Exception | None, expected: type[Exception]) -> None:
    """The error has the failure of the background task as its cause."""
    ours = IllegalStateError("producer 'p' has failed")
    ours.__cause__ = cause

    with pytest.raises(expected) as raised, IN_ORDER:
        raise ours

    assert raised.value.__cause__ is ours
