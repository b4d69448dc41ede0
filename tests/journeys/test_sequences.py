"""Producer ids, epochs and sequences: one partition's trouble is repaired, and costs the others nothing."""

import asyncio
from collections.abc import Callable

import pytest

from aioproducer import ClusterAuthorizationError, KafkaError, Outcome, Producer
from aioproducer._accumulator.producer_identity import IdempotentPartitionIdentity
from aioproducer._accumulator.record_batch_header import BatchIdentity
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)
FIRST = Where(api=ApiKey.PRODUCE, partition=0)


@pytest.mark.parametrize("code", [29, 43, 47])
@in_virtual_time
async def test_partition_goes_on_after_a_batch_that_failed_for_good(code: int) -> None:
    """Its sequence is missing for ever: the partition takes another epoch (B2)."""
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.error(code, FIRST, skip=3)
        deliveries = [producer.send("orders", b"%d" % number, partition=number % 2) for number in range(40)]
        results = await asyncio.gather(*deliveries, return_exceptions=True)

        failed = [index for index, each in enumerate(results) if isinstance(each, KafkaError)]
        assert failed == [6]
        for partition in (0, 1):
            expected = [b"0", *(b"%d" % number for number in range(partition, 40, 2) if number != 6)]
            assert [record.value for record in cluster.records("orders", partition)] == expected


@pytest.mark.parametrize("code", [45, 59])
@in_virtual_time
async def test_records_survive_a_broker_that_forgot_the_producer(code: int) -> None:
    """Nothing was in doubt: they are sent under another identity, in order."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        for round_ in range(5):
            cluster.faults.error(code, PRODUCE, skip=round_)
            for number in range(20):
                producer.send("orders", b"%d" % (round_ * 20 + number))
            await producer.flush()

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(100)]


@in_virtual_time
async def test_expired_producer_state_is_no_trouble_between_batches() -> None:
    """The broker takes any sequence of a producer it does not know."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        for number in range(10):
            cluster.forget_producers("orders", 0)
            await asyncio.gather(*(producer.send("orders", b"%d" % (number * 5 + each)) for each in range(5)))

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(50)]


@in_virtual_time
async def test_first_batch_to_a_leader_travels_alone() -> None:
    """A broker without state would take its successor if it were refused."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        cluster.faults.error(19, PRODUCE, times=3)
        deliveries = [producer.send("orders", b"%d" % number) for number in range(20)]
        await asyncio.gather(*deliveries)

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(20)]


def first_sequence_again(
    stamp: Callable[[IdempotentPartitionIdentity, int], BatchIdentity],
) -> Callable[[IdempotentPartitionIdentity, int], BatchIdentity]:
    """As `stamp`, with a defect: every batch has the sequence of the first."""
    return lambda partition, count: stamp(partition, count)._replace(base_sequence=0)


@in_virtual_time
async def test_answer_with_an_old_offset_to_a_first_attempt_is_not_success() -> None:
    """The identity was used before: the broker dropped the record as a copy."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        await producer.send("orders", b"0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IdempotentPartitionIdentity, "stamp", first_sequence_again(IdempotentPartitionIdentity.stamp))
            with pytest.raises(KafkaError, match="used twice") as raised:
                await producer.send("orders", b"1")

        assert raised.value.outcome is Outcome.UNKNOWN
        assert (await producer.send("orders", b"2")).offset == 1
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"2"]


@in_virtual_time
async def test_up_to_five_requests_of_a_partition_travel_at_once() -> None:
    """Once the leader has acknowledged one."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        for _ in range(20):
            producer.send("orders", b"x", on_delivery=lambda *_: None)
        await asyncio.sleep(1)

        statistics = producer.statistics()
        assert (statistics.requests_in_flight, statistics.requests_in_flight_by_node) == (5, {1: 5})  # by its id
        await producer.close(0)


@in_virtual_time
async def test_without_idempotence_one_batch_of_a_partition_travels_at_a_time() -> None:
    """Or a retry would change the order."""
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0, enable_idempotence=False) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.stall(PRODUCE)
        for number in range(20):
            producer.send("orders", b"x", partition=number % 2, on_delivery=lambda *_: None)
            await asyncio.sleep(0.01)

        assert producer.statistics().requests_in_flight == 2
        await producer.close(0)


@in_virtual_time
async def test_records_fail_for_as_long_as_the_right_to_write_is_missing() -> None:
    """And the same producer goes on once it is granted: brokers before 2.8 want IdempotentWrite on the cluster."""
    async with FakeCluster(1, topics={"orders": 2}) as cluster:
        grant = cluster.faults.error(31, Where(api=ApiKey.INIT_PRODUCER_ID), times=1_000)
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            with pytest.raises(ClusterAuthorizationError, match="enable_idempotence=False") as refused:
                await producer.send("orders", b"refused")
            assert refused.value.outcome is Outcome.NOT_WRITTEN
            with pytest.raises(ClusterAuthorizationError):
                await producer.send("orders", b"refused, too")

            cluster.faults.remove(grant)
            sent = await asyncio.gather(*(producer.send("orders", b"%d" % number, partition=0) for number in range(3)))
            assert [metadata.offset for metadata in sent] == [0, 1, 2]


@in_virtual_time
async def test_what_is_under_way_stays_so_where_no_further_id_is_given() -> None:
    """A partition whose epochs are used up waits for another id; what others have sent, and may repeat, is theirs."""
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0, retry_backoff_ms=500) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.error(31, Where(api=ApiKey.INIT_PRODUCER_ID))
        cluster.faults.error(7, FIRST)  # this one is sent again, under the sequence it has
        cluster.faults.error(59, Where(api=ApiKey.PRODUCE, partition=1))  # this one needs another id
        results = await asyncio.gather(
            *(producer.send("orders", b"1", partition=number) for number in (0, 1)), return_exceptions=True
        )
        assert isinstance(results[1], ClusterAuthorizationError), results
        assert not isinstance(results[0], BaseException), results
        assert (await producer.send("orders", b"2", partition=1)).offset == 1
