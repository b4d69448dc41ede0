"""`purge`: what has not left ends as not written, and nothing else."""

import asyncio

import pytest

from aioproducer import (
    Delivery,
    IllegalStateError,
    Outcome,
    Producer,
    PurgedError,
    TransactionAbortableError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
SMALL = {"buffer_memory": 200_000, "batch_size": 10_000}


def assert_purged(*deliveries: Delivery) -> None:
    for delivery in deliveries:
        error = delivery.exception()
        assert isinstance(error, PurgedError)
        assert error.outcome is Outcome.NOT_WRITTEN


@in_virtual_time
async def test_records_in_batches_end_and_those_on_the_wire_go_on() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        sent = producer.send("orders", b"sent")
        await asyncio.sleep(0.1)
        later = [producer.send("orders", b"later") for _ in range(3)]

        assert producer.purge() == 3

        assert_purged(*later)
        assert not sent.done()
        cluster.faults.remove(stall)
        await sent
        await producer.send("orders", b"next")
        assert values(cluster, "orders") == [b"sent", b"next"]
        assert producer.purge() == 0


@in_virtual_time
async def test_purged_batches_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async with producing(FakeCluster(1, topics={"orders": 8}), linger_ms=1000) as (_, producer):
        await producer.partitions_for("orders")
        deliveries = [producer.send("orders", b"v", partition=partition) for partition in range(8)]
        producer.purge()
        assert_purged(*deliveries)

    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@in_virtual_time
async def test_only_the_topic_that_was_named_is_purged() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1, "audit": 1}), linger_ms=1000) as (cluster, producer):
        await producer.partitions_for("orders")
        await producer.partitions_for("audit")
        stall = cluster.faults.stall(METADATA)
        purged = [producer.send("orders", b"1"), producer.send("orders", b"2")]
        kept = producer.send("audit", b"3")
        elsewhere = producer.send("unknown", b"4")

        assert producer.purge("orders") == 2
        assert_purged(*purged)
        assert producer.purge("unknown") == 1
        assert_purged(elsewhere)

        await kept
        cluster.faults.remove(stall)
        assert (values(cluster, "orders"), values(cluster, "audit")) == ([], [b"3"])
        with pytest.raises(ValueError, match="topic"):
            producer.purge("")
        with pytest.raises(TypeError, match="topic"):
            producer.purge(5)  # type: ignore[arg-type]


@in_virtual_time
async def test_callers_that_wait_for_metadata_get_the_error() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        cluster.faults.stall(METADATA)
        waiting = [asyncio.create_task(producer.enqueue("orders", b"v")) for _ in range(2)]
        sent = producer.send("orders", b"v")
        await asyncio.sleep(1)

        assert producer.purge() == 3

        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, PurgedError)
        assert_purged(sent)
        assert producer.statistics().records_waiting == 0


@in_virtual_time
async def test_callers_that_wait_for_a_serializer_get_the_error() -> None:
    """And so do those whose serializer ends in the same turn: they were counted."""
    ending = asyncio.Event()

    async def hanging(_value: bytes) -> bytes:
        await ending.wait()
        return b"serialized"

    async with producing(FakeCluster(1, topics={"orders": 1, "audit": 1})) as (cluster, producer):
        orders, audit = producer.topic("orders", value=hanging), producer.topic("audit", value=hanging)
        waiting = [asyncio.create_task(orders.enqueue(b"v")) for _ in range(2)]
        kept = asyncio.create_task(audit.enqueue(b"v"))
        await asyncio.sleep(1)

        assert producer.purge("orders") == 2
        assert producer.purge("orders") == 0
        assert [waiting.topic for waiting in producer.explain().waiting] == ["audit"]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, PurgedError)
            assert (error.topic, error.outcome) == ("orders", Outcome.NOT_WRITTEN)

        same_turn = asyncio.create_task(orders.enqueue(b"v"))
        await asyncio.sleep(1)
        ending.set()
        assert producer.purge("orders") == 1
        with pytest.raises(PurgedError):
            await same_turn
        await (await kept)
        await producer.topic("orders", value=hanging).send_and_wait(b"v")
        assert (values(cluster, "orders"), values(cluster, "audit")) == ([b"serialized"], [b"serialized"])


@in_virtual_time
async def test_callers_that_wait_for_memory_get_the_error() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), **SMALL) as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        loop = [asyncio.create_task(producer.enqueue("orders", bytes(5_000))) for _ in range(100)]
        await asyncio.sleep(1)
        statistics = producer.statistics()
        in_memory = statistics.records_waiting

        purged = producer.purge()
        results = await asyncio.gather(*loop, return_exceptions=True)

        raised = [result for result in results if isinstance(result, PurgedError)]
        assert 0 < in_memory == len(raised) < purged
        cluster.faults.remove(stall)
        with pytest.raises(UndeliveredError) as caught:
            await producer.flush()
        assert caught.value.count == purged - len(raised)
        assert len(values(cluster, "orders")) == 100 - purged
        await producer.send("orders", b"next")


@in_virtual_time
async def test_batch_that_may_be_written_is_not_purged() -> None:
    """Its response was lost: it is sent again, and found to be written."""
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        await producer.send("orders", b"first")
        cluster.faults.error_after_append(7, PRODUCE)
        ambiguous = producer.send("orders", b"ambiguous")
        await asyncio.sleep(0.05)
        behind = producer.send("orders", b"behind")

        assert producer.purge() == 1

        assert_purged(behind)
        await ambiguous
        assert values(cluster, "orders") == [b"first", b"ambiguous"]


@in_virtual_time
async def test_refused_batch_is_purged_and_its_sequence_given_up() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        await producer.send("orders", b"first")
        fault = cluster.faults.error(6, PRODUCE, times=None)
        refused = producer.send("orders", b"refused")
        await asyncio.sleep(0.05)  # in the pause before it is sent again

        assert producer.purge() == 1

        assert_purged(refused)
        cluster.faults.remove(fault)
        await producer.send("orders", b"next")
        assert values(cluster, "orders") == [b"first", b"next"]


@in_virtual_time
async def test_flush_and_close_end_right_after_and_raise() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.partitions_for("orders")
        await cluster.kill(1)
        await asyncio.sleep(0.1)
        producer.send("orders", b"1")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(1)
        assert not flushing.done()
        producer.purge()
        with pytest.raises(UndeliveredError, match="purge"):
            await flushing
        producer.send("orders", b"2")
        closing = asyncio.create_task(producer.close(60))
        await asyncio.sleep(1)
        assert not closing.done()
        began = asyncio.get_running_loop().time()

        assert producer.purge() == 1

        with pytest.raises(UndeliveredError, match="purge"):
            await closing
        assert asyncio.get_running_loop().time() - began < 1
        with pytest.raises(IllegalStateError):
            producer.purge()


@in_virtual_time
async def test_transaction_that_lost_records_must_be_aborted() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), transactional_id="t") as (cluster, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"kept")
        producer.send("orders", b"purged")
        assert producer.purge() == 1
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"next")

        assert [record.value for record in cluster.committed_records("orders", 0)] == [b"next"]


@in_virtual_time
async def test_transaction_of_a_caller_that_waited_must_be_aborted() -> None:
    """Its `enqueue` raises, and the commit does too."""
    async with producing(FakeCluster(1, topics={"orders": 1}), transactional_id="t") as (cluster, producer):
        cluster.faults.stall(METADATA)
        await producer.begin_transaction()
        waiting = asyncio.create_task(producer.enqueue("orders", b"v"))
        await asyncio.sleep(1)
        assert producer.purge() == 1
        with pytest.raises(PurgedError):
            await waiting

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()


async def test_producer_that_was_not_started_has_nothing_to_purge(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)

    with pytest.raises(IllegalStateError, match="not started"):
        producer.purge()
    assert produce_requests(one_broker) == 0


async def test_purge_is_refused_on_another_thread(producer: Producer) -> None:
    with pytest.raises(IllegalStateError, match="another thread"):
        await asyncio.to_thread(producer.purge)
