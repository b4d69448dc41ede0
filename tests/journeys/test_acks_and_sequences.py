"""Acknowledgements and sequences: which outcome a record gets, and that it is written once."""

import asyncio
from collections.abc import Callable

import pytest

from aioproducer import ClusterAuthorizationError, KafkaError, Outcome, Producer
from aioproducer._accumulator.producer_identity import BatchIdentity, OwnPartitionIdentity
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time


@in_virtual_time
async def test_acks_0_records_complete_in_order_without_an_offset() -> None:
    async with producing(acks=0, linger_ms=0, batch_size=0) as (cluster, producer):
        results = await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(100)))
        await producer.flush()
        await asyncio.sleep(1)

        assert {metadata.offset for metadata in results} == {-1}
        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(100)]


@in_virtual_time
async def test_refusal_with_acks_0_costs_a_connection() -> None:
    async with producing(acks=0, linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.error(29, Where(api=ApiKey.PRODUCE))
        await asyncio.wait([producer.send("orders", b"1")])  # delivered or unknown, as the bytes had left or not
        await asyncio.sleep(1)
        await producer.send("orders", b"2")
        await asyncio.sleep(1)

        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"2"]


@in_virtual_time
async def test_leader_alone_acknowledges() -> None:
    async with producing(FakeCluster(3, topics={"orders": 1}), acks=1, linger_ms=0) as (cluster, producer):
        for node_id in (1, 2, 3):
            if node_id != cluster.leader_of("orders", 0):
                cluster.hold_replication(node_id)

        metadata = await asyncio.wait_for(producer.send("orders", b"x"), 5)

        assert metadata.offset == 0


@in_virtual_time
async def test_all_in_sync_replicas_acknowledge_by_default() -> None:
    async with producing(FakeCluster(3, topics={"orders": 1}), linger_ms=0) as (cluster, producer):
        follower = cluster.leader_of("orders", 0) % 3 + 1
        cluster.hold_replication(follower)
        delivery = producer.send("orders", b"x")
        await asyncio.sleep(5)
        assert not delivery.done()

        cluster.hold_replication(follower, held=False)

        assert (await delivery).offset == 0


@pytest.mark.parametrize("code", [19, 20])
@in_virtual_time
async def test_too_few_replicas_is_tried_until_there_are_enough(code: int) -> None:
    async with producing(linger_ms=0) as (cluster, producer):
        where = Where(api=ApiKey.PRODUCE)
        faults = cluster.faults
        (faults.error if code == 19 else faults.error_after_append)(code, where, times=5)

        assert (await producer.send("orders", b"x")).offset == 0
        assert len(cluster.records("orders", 0)) == 1


@in_virtual_time
async def test_used_up_retries_end_with_the_outcome_that_is_known() -> None:
    """NOT_WRITTEN after 19, UNKNOWN after 20; the error gives the attempts and the broker's last error."""
    async with producing(linger_ms=0, retries=2) as (cluster, producer):
        outcomes = []
        for code in (19, 20):
            cluster.faults.error(code, Where(api=ApiKey.PRODUCE), times=3)
            with pytest.raises(KafkaError) as raised:
                await producer.send("orders", b"x")
            outcomes.append((raised.value.outcome, raised.value.attempts))

        assert outcomes == [(Outcome.NOT_WRITTEN, 3), (Outcome.UNKNOWN, 3)]
        assert (await producer.send("orders", b"y")).offset == 0


# Producer ids, epochs and sequences: one partition's trouble is repaired, and costs the others nothing


PRODUCE = Where(api=ApiKey.PRODUCE)
FIRST = Where(api=ApiKey.PRODUCE, partition=0)


@pytest.mark.parametrize("code", [29, 43, 47])
@in_virtual_time
async def test_partition_goes_on_after_a_batch_that_failed_for_good(code: int) -> None:
    """The lost sequence leaves a gap: the partition takes another epoch."""
    async with producing(FakeCluster(1, topics={"orders": 2}), linger_ms=0, batch_size=0) as (cluster, producer):
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
    """Nothing was in doubt: the records are sent under another identity, in order."""
    async with producing(linger_ms=0, batch_size=0) as (cluster, producer):
        for round_ in range(5):
            cluster.faults.error(code, PRODUCE, skip=round_)
            for number in range(20):
                producer.send("orders", b"%d" % (round_ * 20 + number))
            await producer.flush()

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(100)]


@in_virtual_time
async def test_expired_producer_state_is_no_trouble_between_batches() -> None:
    """A broker takes any sequence of a producer that it does not know."""
    async with producing(linger_ms=0, batch_size=0) as (cluster, producer):
        for number in range(10):
            cluster.forget_producers("orders", 0)
            await asyncio.gather(*(producer.send("orders", b"%d" % (number * 5 + each)) for each in range(5)))

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(50)]


@in_virtual_time
async def test_first_batch_to_a_leader_travels_alone() -> None:
    """A broker without state would take its successor if it were refused."""
    async with producing(linger_ms=0, batch_size=0) as (cluster, producer):
        cluster.faults.error(19, PRODUCE, times=3)
        deliveries = [producer.send("orders", b"%d" % number) for number in range(20)]
        await asyncio.gather(*deliveries)

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(20)]


def first_sequence_again(
    stamp: Callable[[OwnPartitionIdentity, int], BatchIdentity],
) -> Callable[[OwnPartitionIdentity, int], BatchIdentity]:
    return lambda partition, count: stamp(partition, count)._replace(base_sequence=0)


@in_virtual_time
async def test_answer_with_an_old_offset_is_not_success() -> None:
    """The identity was used before: the broker dropped the record as a duplicate."""
    async with producing(linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OwnPartitionIdentity, "stamp", first_sequence_again(OwnPartitionIdentity.stamp))
            with pytest.raises(KafkaError, match="used twice") as raised:
                await producer.send("orders", b"1")

        assert raised.value.outcome is Outcome.UNKNOWN
        assert (await producer.send("orders", b"2")).offset == 1
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"2"]


@in_virtual_time
async def test_up_to_five_requests_of_a_partition_travel_at_once() -> None:
    async with producing(linger_ms=0, batch_size=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        for _ in range(20):
            producer.send("orders", b"x", on_delivery=lambda *_: None)
        await asyncio.sleep(1)

        statistics = producer.statistics()
        assert (statistics.requests_in_flight, statistics.requests_in_flight_by_node) == (5, {1: 5})  # by its id
        await producer.close(0)


@in_virtual_time
async def test_without_idempotence_one_batch_is_in_flight() -> None:
    made = FakeCluster(1, topics={"orders": 2})
    async with producing(made, linger_ms=0, batch_size=0, enable_idempotence=False) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.stall(PRODUCE)
        for number in range(20):
            producer.send("orders", b"x", partition=number % 2, on_delivery=lambda *_: None)
            await asyncio.sleep(0.01)

        assert producer.statistics().requests_in_flight == 2
        await producer.close(0)


@in_virtual_time
async def test_records_fail_while_the_write_permission_is_missing() -> None:
    """The same producer works once it is granted: brokers before 2.8 want IdempotentWrite on the cluster."""
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
async def test_in_flight_batches_stay_while_no_new_id_is_given() -> None:
    """A partition without epochs waits for another id; batches of others, which may be sent again, keep theirs."""
    made = FakeCluster(1, topics={"orders": 2})
    async with producing(made, linger_ms=0, batch_size=0, retry_backoff_ms=500) as (cluster, producer):
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
