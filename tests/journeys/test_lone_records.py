"""A record that is awaited alone: its request leaves within the caller's step of the loop, without one of the sender's.

Where a request would take records apart that could go together, it leaves in the sender's turn, behind all callers.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from contextvars import ContextVar

import pytest

from aioproducer import (
    BackgroundTaskDiedError,
    Delivery,
    DeliveryTimeoutError,
    IllegalStateError,
    Outcome,
    Producer,
    ProducerOptions,
)
from aioproducer._network.connection import BrokerConnection
from aioproducer._network.requests import OutgoingRequest
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._sender.sender import Sender
from aioproducer.testing import ApiKey, FakeCluster, Where

PRODUCE = Where(api=ApiKey.PRODUCE)


@pytest.fixture
async def lone(one_broker: FakeCluster) -> AsyncIterator[Producer]:
    """A producer that has sent one record, and has nothing to do."""
    async with Producer(one_broker.bootstrap_servers, linger_ms=60_000, batch_size=10_000) as producer:
        await producer.send("orders", b"first", partition=0)
        yield producer


async def requests_of_its_step(producer: Producer) -> int:
    """Await one record; returns how many requests its caller's first step has handed to the transport."""
    before = producer.statistics().requests_sent
    caller = asyncio.ensure_future(producer.send_and_wait("orders", b"v", partition=0))
    await asyncio.sleep(0)  # until the caller waits: the sender comes later
    sent = producer.statistics().requests_sent - before
    await caller
    return sent


async def test_lone_record_leaves_in_its_callers_step(lone: Producer) -> None:
    assert [await requests_of_its_step(lone) for _ in range(3)] == [1, 1, 1]


async def several_together(producer: Producer, _: FakeCluster) -> None:
    await asyncio.gather(*(producer.send("orders", b"v", partition=0) for _ in range(2)))


async def another_partition_fills(producer: Producer, _: FakeCluster) -> None:
    producer.send("orders", b"v", partition=1)


async def another_topic_is_not_known_yet(producer: Producer, cluster: FakeCluster) -> None:
    cluster.faults.delay(0.1, Where(api=ApiKey.METADATA))
    producer.send("payments", b"v")


async def one_is_in_flight(producer: Producer, cluster: FakeCluster) -> None:
    cluster.faults.delay(0.05, PRODUCE)
    asyncio.ensure_future(producer.send_and_wait("orders", b"v", partition=0))  # noqa: RUF006  # answered before the test ends
    await asyncio.sleep(0)


async def the_broker_throttles(producer: Producer, cluster: FakeCluster) -> None:
    cluster.faults.throttle(100, PRODUCE, times=1)
    await producer.send("orders", b"v", partition=0)


@pytest.mark.parametrize(
    "prepare",
    [
        several_together,
        another_partition_fills,
        another_topic_is_not_known_yet,
        one_is_in_flight,
        the_broker_throttles,
    ],
)
async def test_record_that_may_have_company_waits_for_it(
    lone: Producer, one_broker: FakeCluster, prepare: Callable[[Producer, FakeCluster], Awaitable[None]]
) -> None:
    one_broker.create_topic("payments")
    await prepare(lone, one_broker)

    assert await requests_of_its_step(lone) == 0
    one_broker.faults.clear()


async def test_record_to_be_compressed_waits_for_a_turn(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, compression_type="gzip", linger_ms=60_000) as producer:
        await producer.send("orders", b"first", partition=0)

        assert await requests_of_its_step(producer) == 0


async def test_many_tasks_share_requests(lone: Producer) -> None:
    before = lone.statistics().batches_sent

    async def work() -> None:
        for _ in range(20):
            await lone.send("orders", b"v", partition=0)

    await asyncio.gather(*(work() for _ in range(50)))

    assert lone.statistics().batches_sent - before <= 2 * 20  # each of 50 records, but for some that went alone


async def test_request_does_not_see_the_callers_variables(lone: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    of_the_caller = ContextVar("of_the_caller", default="unset")
    send, seen = BrokerConnection.send, []

    def look(connection: BrokerConnection, request: OutgoingRequest) -> None:
        seen.append(of_the_caller.get())
        send(connection, request)

    monkeypatch.setattr(BrokerConnection, "send", look)
    of_the_caller.set("a request's")
    assert await requests_of_its_step(lone) == 1

    assert seen == ["unset"]


def by_callback(delivery: Delivery) -> None:
    delivery.add_done_callback(lambda _: None)


def by_eager_task(delivery: Delivery) -> None:
    """What the first step of a task does, which eager tasks take within the call that makes them."""
    next(delivery.__await__())


WAYS = pytest.mark.parametrize("wait", [by_callback, by_eager_task])


async def test_record_with_a_callback_waits_for_a_turn(lone: Producer) -> None:
    """A callback may be added anywhere, also in a forked child."""
    before = lone.statistics().requests_sent
    delivery = lone.send("orders", b"v", partition=0)
    by_callback(delivery)

    assert lone.statistics().requests_sent == before
    await delivery


@WAYS
async def test_record_sent_within_a_request_waits_for_a_turn(
    lone: Producer, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Delivery], None]
) -> None:
    """As by a handler of a log line about it."""
    send, sent = BrokerConnection.send, []

    def send_another(connection: BrokerConnection, request: OutgoingRequest) -> None:
        monkeypatch.undo()
        sent.append(lone.send("orders", b"of a handler", partition=1))
        wait(sent[0])
        send(connection, request)

    monkeypatch.setattr(BrokerConnection, "send", send_another)
    await lone.send("orders", b"v", partition=0)

    assert await sent[0]
    assert await lone.send("orders", b"after both", partition=0)


@WAYS
@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_record_of_a_log_handler_does_not_overtake(
    one_broker: FakeCluster, *, wait: Callable[[Delivery], None], is_idempotent: bool
) -> None:
    """It is sent in the middle of a settlement, while the batch before it is neither on the wire nor queued."""
    log = logging.getLogger("aioproducer")
    options: ProducerOptions = {"enable_idempotence": is_idempotent, "linger_ms": 60_000}
    async with Producer(one_broker.bootstrap_servers, **options) as producer:
        await producer.send("orders", b"first", partition=1)
        sent: list[Delivery] = []

        def send_another(record: logging.LogRecord) -> bool:
            if "metadata_update_requested" in record.getMessage() and not sent:
                sent.append(producer.send("orders", b"of a handler", partition=0))
                wait(sent[0])
            return True

        one_broker.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, PRODUCE)
        level = log.level
        log.setLevel(logging.DEBUG)
        log.addFilter(send_another)
        try:
            await producer.send("orders", b"before it", partition=0)
        finally:
            log.removeFilter(send_another)
            log.setLevel(level)
        await sent[0]

    assert [record.value for record in one_broker.records("orders", 0)] == [b"before it", b"of a handler"]


async def test_overdue_record_is_not_sent_in_its_callers_step(lone: Producer, one_broker: FakeCluster) -> None:
    late = lone.send("orders", b"late", partition=0, deadline=0.02)
    time.sleep(0.1)  # noqa: ASYNC251  # the application's step takes longer than the deadline

    with pytest.raises(DeliveryTimeoutError) as raised:
        await late

    assert raised.value.outcome is Outcome.NOT_WRITTEN
    assert [record.value for record in one_broker.records("orders", 0)] == [b"first"]


def test_interrupt_in_a_callers_step_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer cannot go on, and says so at once."""

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster, closing(asyncio.new_event_loop()) as loop:
        producer = loop.run_until_complete(started(cluster.bootstrap_servers))
        monkeypatch.setattr(BrokerConnection, "send", interrupt)

        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(producer.send_and_wait("orders", b"v"))
        with pytest.raises(BackgroundTaskDiedError, match="was interrupted while it sent"):
            loop.run_until_complete(producer.send_and_wait("orders", b"v"))
        loop.run_until_complete(producer.close())


async def started(servers: str) -> Producer:
    producer = await Producer(servers, linger_ms=60_000).start()
    await producer.send("orders", b"first")
    return producer


async def test_defect_in_a_callers_step_ends_the_producer(
    one_broker: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await Producer(one_broker.bootstrap_servers, linger_ms=60_000).start()
    await producer.send("orders", b"first", partition=0)
    monkeypatch.setattr(Sender, "_send", lambda *_, **__: 1 / 0)

    with pytest.raises(IllegalStateError, match="division by zero") as raised:
        await producer.send("orders", b"v", partition=0)

    assert raised.value.outcome is Outcome.UNKNOWN
    await producer.close()
