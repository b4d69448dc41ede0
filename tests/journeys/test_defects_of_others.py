"""Defects that were found in today's Python producers, and must not be in this one."""

import asyncio
import pickle
import resource

import pytest

from aioproducer import (
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    NotEnoughReplicasError,
    Outcome,
    Producer,
    ProducerClosedError,
    ProtocolError,
    TlsRefusedError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import background_tasks, producing
from tests.fakes.virtual_loop import in_virtual_time
from tests.fakes.wrong_servers import HTTP_ANSWER, HUGE_FRAME, NEGATIVE_FRAME, TLS_ALERT, dead_port, server_that_says
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
MESSAGE_TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19


async def in_time(seconds: float, waited: object) -> object:
    """Await something that hangs in other producers."""
    async with asyncio.timeout(seconds):
        return await waited  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["sender", "metadata", "producer-id"])
async def test_cancelled_background_task_fails_everything_at_once(
    producer: Producer, one_broker: FakeCluster, kind: str
) -> None:
    """Other producers hang from then on, and stop as if nothing were lost."""
    one_broker.faults.stall(PRODUCE)
    pending = producer.send("orders", b"v")
    unknown = producer.send("nowhere", b"v")
    partitions = asyncio.create_task(producer.partitions_for("elsewhere"))
    flushing = asyncio.create_task(producer.flush())
    await asyncio.wait([pending], timeout=0.02)

    background_tasks()[kind].cancel()

    for waiting in (pending, unknown, partitions):
        with pytest.raises(KafkaError, match=f"the producer's {kind} task was cancelled from outside"):
            await in_time(1, waiting)
    assert isinstance(await in_time(1, asyncio.gather(flushing, return_exceptions=True)), list)
    for verb in (producer.send, producer.send_nowait, producer.enqueue):
        with pytest.raises(KafkaError, match=kind):
            verb("orders", b"later")
    for later in (producer.flush(), producer.partitions_for("orders"), producer.start()):
        with pytest.raises(KafkaError, match=kind):
            await in_time(1, later)
    await in_time(1, producer.close())
    assert "closed" in repr(producer)


async def test_failures_of_a_dead_producer_are_raised_by_close(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers).start()
    one_broker.faults.stall(PRODUCE)
    producer.send("orders", b"v")
    await producer.partitions_for("orders")
    background_tasks()["sender"].cancel()
    await asyncio.sleep(0.01)

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await in_time(1, producer.close())


async def test_brokers_down_from_the_start_is_an_error_in_time() -> None:
    """Start raises within max_block_ms, names the broker that refused, and leaves nothing behind."""
    async with dead_port() as address:
        producer = Producer(address, max_block_ms=150)

        with pytest.raises(MetadataTimeoutError, match=rf"(?s)0\.15 s.*{address}.*refused"):
            await in_time(1, producer.start())

    assert background_tasks() == {}
    with pytest.raises(ProducerClosedError):
        producer.send("orders", b"v")
    with pytest.raises(ProducerClosedError):
        await producer.start()
    await producer.close()


async def test_brokers_down_bound_send_flush_and_close() -> None:
    async with dead_port() as address:
        producer = Producer(address, max_block_ms=100, delivery_timeout_ms=200, request_timeout_ms=100, linger_ms=0)
        await producer.start(wait=False)
        lost = producer.send("orders", b"v")
        producer.send("orders", b"never retrieved")
        with pytest.raises((MetadataTimeoutError, DeliveryTimeoutError), match="refused") as caught:
            await in_time(1, lost)
        with pytest.raises(UndeliveredError):
            await in_time(1, producer.flush())
        producer.send("orders", b"v")
        with pytest.raises(UndeliveredError):
            await in_time(1, producer.close(0.05))

    assert caught.value.outcome is Outcome.NOT_WRITTEN


async def test_brokers_that_go_down_bound_delivery_flush_and_close(one_broker: FakeCluster) -> None:
    """Accepted records fail at delivery_timeout_ms; close keeps its own timeout."""
    producer = Producer(one_broker.bootstrap_servers, delivery_timeout_ms=200, request_timeout_ms=100, linger_ms=0)
    await producer.start()
    await producer.send("orders", b"v")
    await one_broker.kill(1)

    with pytest.raises(DeliveryTimeoutError, match=r"delivery_timeout_ms=200.*node 1") as caught:
        await in_time(1, producer.send("orders", b"v"))
    assert caught.value.elapsed_s is not None
    producer.send("orders", b"v")
    with pytest.raises(UndeliveredError):
        await in_time(1, producer.flush())
    producer.send("orders", b"v")
    with pytest.raises(UndeliveredError):
        await in_time(1, producer.close(0.05))
    assert background_tasks() == {}


async def test_answer_without_the_partition_is_no_answer(producer: Producer, one_broker: FakeCluster) -> None:
    """The connection closes, and the batch is sent again; its sequence prevents a duplicate."""
    fault = one_broker.faults.omit_partition(PRODUCE)

    metadata = await in_time(2, producer.send("orders", b"v"))

    assert (fault.hits, metadata.offset) == (1, 0)  # type: ignore[attr-defined]
    assert values(one_broker, "orders") == [b"v"]


async def test_answers_without_the_partition_end_at_the_deadline(one_broker: FakeCluster) -> None:
    one_broker.faults.omit_partition(PRODUCE, times=None)
    producer = Producer(one_broker.bootstrap_servers, delivery_timeout_ms=400, request_timeout_ms=200)
    async with producer:
        with pytest.raises(DeliveryTimeoutError) as caught:
            await in_time(2, producer.send("orders", b"v"))

    assert caught.value.outcome is Outcome.UNKNOWN
    assert isinstance(caught.value.last_broker_error, ProtocolError)


@in_virtual_time
async def test_deadline_error_names_the_brokers_last_error() -> None:
    async with producing(delivery_timeout_ms=300, request_timeout_ms=100) as (cluster, producer):
        cluster.faults.error(NOT_ENOUGH_REPLICAS, PRODUCE, times=None)
        with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS") as caught:
            await producer.send("orders", b"v")

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert isinstance(caught.value.last_broker_error, NotEnoughReplicasError)
    assert caught.value.last_broker_error.retriable


@pytest.mark.parametrize("size", [2**31 - 1, -5])
async def test_frame_of_a_wrong_size_closes_the_connection(
    producer: Producer, one_broker: FakeCluster, size: int
) -> None:
    fault = one_broker.faults.oversized_frame(PRODUCE, size=size)

    metadata = await in_time(2, producer.send("orders", b"v"))

    assert (fault.hits, metadata.offset) == (1, 0)  # type: ignore[attr-defined]
    assert values(one_broker, "orders") == [b"v"]


@pytest.mark.parametrize("frame", [HUGE_FRAME, NEGATIVE_FRAME])
async def test_endless_frame_is_not_buffered(frame: bytes) -> None:
    """A server that never stops sending after the size costs no memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with server_that_says(frame, then=bytes(1_000_000)) as address:
        producer = Producer(address, max_block_ms=200)
        with pytest.raises(MetadataTimeoutError, match=r"(?i)frame|size|bytes") as caught:
            await producer.start()

    assert isinstance(caught.value.__cause__, ProtocolError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


async def test_wrong_server_on_the_port_is_named() -> None:
    async with server_that_says(HTTP_ANSWER) as address:
        with pytest.raises(MetadataTimeoutError, match=rf"(?s){address}.*HTTP") as caught:
            await Producer(address, max_block_ms=150).start()

    assert isinstance(caught.value.__cause__, ProtocolError)
    assert isinstance(caught.value.last_broker_error, ProtocolError)


async def test_tls_listener_is_an_error_at_once_that_names_the_option() -> None:
    """A wrong port or protocol does not pass with time."""
    async with server_that_says(TLS_ALERT) as address:
        with pytest.raises(TlsRefusedError, match=rf"(?s){address}.*set security_protocol to 'SSL'"):
            await Producer(address, max_block_ms=60_000).start()


async def test_returned_timestamps_are_each_records_own(producer: Producer, one_broker: FakeCluster) -> None:
    sent = [producer.send("orders", b"v", partition=0, timestamp=1_000 + number) for number in range(3)]

    assert [metadata.timestamp for metadata in await asyncio.gather(*sent)] == [1_000, 1_001, 1_002]
    assert [record.timestamp for record in one_broker.records("orders", 0)] == [1_000, 1_001, 1_002]


async def test_leaderless_partition_poisons_nothing() -> None:
    async with FakeCluster(2, topics={"orders": 1}, replication_factor=1) as cluster:
        leader = cluster.leader_of("orders", 0)
        producer = Producer(cluster.bootstrap_servers, delivery_timeout_ms=250, request_timeout_ms=100, linger_ms=0)
        async with producer:
            await producer.send("orders", b"before")
            await cluster.kill(leader)
            with pytest.raises(DeliveryTimeoutError):
                await in_time(2, producer.send("orders", b"lost"))
            await cluster.restart(leader)
            later = [await in_time(2, sends_at_last(producer, b"after %d" % number)) for number in range(5)]

        assert later == [None] * 5
        written = values(cluster, "orders")
        assert [value for value in written if value != b"lost"] == [b"before", *(b"after %d" % n for n in range(5))]


async def sends_at_last(producer: Producer, value: bytes) -> None:
    """Send until it is delivered: the first may meet its deadline while the leader comes back."""
    while True:
        try:
            await producer.send("orders", value)
        except DeliveryTimeoutError as error:
            assert error.outcome is Outcome.NOT_WRITTEN  # noqa: PT017  # else a repetition would be a duplicate
        else:
            return


@pytest.mark.parametrize("verb", ["send", "send_nowait", "enqueue", "send_and_wait", "flush", "partitions_for"])
async def test_use_before_start_says_so(one_broker: FakeCluster, verb: str) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    arguments = {"flush": (), "partitions_for": ("orders",)}.get(verb, ("orders", b"v"))

    async def use() -> None:
        await getattr(producer, verb)(*arguments)

    with pytest.raises(IllegalStateError, match="not started: use `async with"):
        await use()

    assert len(one_broker.requests) == 0
    async with producer:
        await producer.send("orders", b"v")


async def test_logs_never_contain_payloads(one_broker: FakeCluster) -> None:
    """At no log level, when things fail, and in no text of an exception."""
    secret = b"hunter2-the-payload"
    with LogCapture() as log:
        producer = Producer(one_broker.bootstrap_servers, delivery_timeout_ms=300, request_timeout_ms=100)
        await producer.start()
        await producer.send("orders", secret, key=secret, headers=[("h", secret)])
        one_broker.faults.error(MESSAGE_TOO_LARGE, PRODUCE)
        with pytest.raises(KafkaError) as refused:
            await producer.send("orders", secret, key=secret, headers=[("h", secret)])
        with pytest.raises(TypeError) as wrong:
            producer.send("orders", secret.decode())  # type: ignore[arg-type]
        producer.send("orders", secret, on_delivery=lambda _metadata, _error: 1 / 0)
        await one_broker.kill(1)
        producer.send("orders", secret, key=secret)
        with pytest.raises(UndeliveredError) as undelivered:
            await producer.close(0.05)

    said = [*log.lines, repr(refused.value), repr(wrong.value), repr(undelivered.value), repr(producer)]
    assert len(log.lines) > 3
    assert [line for line in said if "hunter2" in line] == []


async def test_errors_survive_the_way_between_processes(one_broker: FakeCluster) -> None:
    one_broker.faults.error(NOT_ENOUGH_REPLICAS, PRODUCE, times=None)
    producer = Producer(one_broker.bootstrap_servers, delivery_timeout_ms=1_000, request_timeout_ms=500)
    await producer.start()
    with pytest.raises(DeliveryTimeoutError) as late:
        await producer.send("orders", b"v")
    producer.send("orders", b"v")
    with pytest.raises(UndeliveredError) as undelivered:
        await producer.close()

    twin = pickle.loads(pickle.dumps(late.value))
    group = pickle.loads(pickle.dumps(undelivered.value))
    assert (str(twin), twin.topic, twin.outcome) == (str(late.value), "orders", Outcome.NOT_WRITTEN)
    assert isinstance(twin.last_broker_error, NotEnoughReplicasError)
    assert (group.count, [type(error) for error in group.exceptions]) == (1, [DeliveryTimeoutError])
