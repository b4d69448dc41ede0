"""Identities that change while records are on their way, and metadata that is not whole; each names the test it is of.

Source: SenderTest, MetadataTest, KafkaProducerTest of Apache Kafka.
"""

import asyncio
from typing import Final

import pytest

from aioproducer import ClusterAuthorizationError, KafkaError, Outcome, Producer, ProducerClosedError, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.apis import metadata as metadata_of_model
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import produce_requests, values

PRODUCE: Final = Where(api=ApiKey.PRODUCE)
FIRST: Final = Where(api=ApiKey.PRODUCE, partition=0)
SECOND: Final = Where(api=ApiKey.PRODUCE, partition=1)
INIT: Final = Where(api=ApiKey.INIT_PRODUCER_ID)
NOT_LEADER: Final = 6
NOT_READY: Final = 15
FORBIDDEN: Final = 31
FORGOTTEN: Final = 59

# Identities


@in_virtual_time
async def test_close_waits_for_the_next_producer_id() -> None:
    """`testCloseWithProducerIdReset`: queued records are sent under the new id, and written once."""
    async with FakeCluster(1, topics={"orders": 2}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        await asyncio.sleep(1)
        cluster.faults.error(FORGOTTEN, FIRST)
        cluster.faults.error(NOT_LEADER, SECOND)
        cluster.faults.delay(1.0, INIT)
        deliveries = [producer.send("orders", b"%d" % number, partition=number) for number in (0, 1)]
        await asyncio.sleep(0.05)

        await producer.close(5)

        assert [delivery.exception() for delivery in deliveries] == [None, None]
        assert values(cluster, "orders") == [b"0", b"1"]


@in_virtual_time
async def test_untroubled_partition_does_not_wait_for_a_new_id() -> None:
    """`testForceCloseWithProducerIdReset`, `testResetOfProducerStateShouldAllowQueuedBatchesToDrain`."""
    async with FakeCluster(1, topics={"orders": 2}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        await asyncio.sleep(1)
        first, second = (producer.send("orders", b"%d" % number, partition=number) for number in (0, 1))
        cluster.faults.error(FORGOTTEN, FIRST)
        cluster.faults.error(NOT_LEADER, SECOND)
        cluster.faults.error(NOT_READY, INIT, times=None)
        await asyncio.sleep(1)
        assert (first.done(), second.exception()) == (False, None)

        with pytest.raises(UndeliveredError):
            await asyncio.wait_for(producer.close(0), 1)

        error = first.exception()
        assert isinstance(error, ProducerClosedError)
        assert error.outcome is Outcome.NOT_WRITTEN
        assert values(cluster, "orders") == [b"1"]


@pytest.mark.parametrize("after", [False, True], ids=["before the append", "after the append"])
@in_virtual_time
async def test_lost_record_keeps_its_identity_when_the_id_changes(
    after: bool,  # noqa: FBT001
) -> None:
    """`testRetryWhenProducerIdChanges`: under another identity its duplicate would be written, too."""
    async with (
        FakeCluster(2, topics={"orders": 2}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        cluster.move_leader("orders", 0, 1)
        cluster.move_leader("orders", 1, 2)
        await producer.partitions_for("orders")
        cluster.faults.error(FORGOTTEN, FIRST)
        cluster.faults.drop_connection(Where(api=ApiKey.PRODUCE, node_id=2), after_append=after)
        deliveries = [producer.send("orders", b"%d" % number, partition=number) for number in (0, 1)]
        await asyncio.gather(*deliveries)
        await asyncio.gather(*(producer.send("orders", b"next", partition=number) for number in (0, 1)))

        assert values(cluster, "orders") == [b"0", b"next", b"1", b"next"]


@in_virtual_time
async def test_fatal_answer_ends_what_is_on_the_wire_elsewhere() -> None:
    """`testCancelInFlightRequestAfterFatalError`: the response that arrives afterwards changes nothing."""
    async with FakeCluster(2, topics={"orders": 2}) as cluster:
        cluster.move_leader("orders", 0, 1)
        cluster.move_leader("orders", 1, 2)
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        await asyncio.gather(*(producer.send("orders", b"first", partition=number) for number in (0, 1)))
        cluster.faults.error(FORBIDDEN, FIRST)
        cluster.faults.delay(1.0, Where(api=ApiKey.PRODUCE, node_id=2))
        deliveries = [producer.send("orders", b"%d" % number, partition=number) for number in (0, 1)]
        await asyncio.sleep(0.5)

        errors = [delivery.exception() for delivery in deliveries]
        assert [type(error) for error in errors] == [ClusterAuthorizationError] * 2
        outcomes = [error.outcome for error in errors if isinstance(error, KafkaError)]
        assert outcomes == [Outcome.NOT_WRITTEN, Outcome.UNKNOWN]
        with pytest.raises(ClusterAuthorizationError):
            await producer.send("orders", b"next")
        await asyncio.sleep(1)
        await producer.close()
        assert producer.statistics().records_failed == 2


@in_virtual_time
async def test_cluster_authorization_is_not_fatal_without_idempotence() -> None:
    """`Sender.failBatch` without a transaction manager: a record is refused, and no identity can be lost."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, enable_idempotence=False) as producer,
    ):
        cluster.faults.error(FORBIDDEN, PRODUCE)
        with pytest.raises(ClusterAuthorizationError):
            await producer.send("orders", b"refused")

        await producer.send("orders", b"taken")

        assert values(cluster, "orders") == [b"taken"]


# Metadata


@pytest.mark.parametrize("omitted", ["topic", "partition", "last partition", "partitions"])
@in_virtual_time
async def test_records_wait_while_metadata_leaves_something_out(omitted: str) -> None:
    """`testMetadataMerge`, `testIgnoreLeaderEpochInOlderMetadataResponse`: a later response has it."""
    whole = metadata_of_model._topics  # noqa: SLF001  # brokers that answer half
    leaving_out = False

    def part(exchange: object, request: object) -> object:
        topics = whole(exchange, request)  # type: ignore[arg-type]  # passed on
        if not leaving_out:
            return topics
        if omitted == "topic":
            return []
        left = {"partition": slice(1, None), "last partition": slice(0, -1), "partitions": slice(0, 0)}
        kept = left.get(omitted, slice(None))
        return [{**topic, "partitions": topic["partitions"][kept]} for topic in topics]  # type: ignore[index]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_of_model, "_topics", part)
        async with (
            FakeCluster(3, topics={"orders": 3}) as cluster,
            Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
        ):
            await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in range(3)))
            leaving_out = True
            for number in range(3):
                cluster.move_leader("orders", number, cluster.leader_of("orders", number) % 3 + 1)
            cluster.faults.error(NOT_LEADER, PRODUCE, times=6)
            deliveries = [
                producer.send("orders", b"%d" % number, partition=partition)
                for number in range(1, 20)
                for partition in range(3)
            ]
            await asyncio.sleep(3)
            leaving_out = False
            await asyncio.wait_for(asyncio.gather(*deliveries), 10)

            for partition in range(3):
                found = [record.value for record in cluster.records("orders", partition)]
                assert found == [b"%d" % number for number in range(20)]


@in_virtual_time
async def test_topic_that_no_answer_names_is_asked_for_until_one_does() -> None:
    """The response has neither an error nor a partition of it: the topic is as unknown as before."""
    whole = metadata_of_model._topics  # noqa: SLF001  # as above
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_of_model, "_topics", lambda *_: [])
            delivery = producer.send("orders", b"v")
            await asyncio.sleep(3)
            assert not delivery.done()
            patch.setattr(metadata_of_model, "_topics", whole)
            await asyncio.wait_for(delivery, 5)

        asked = sum(seen.api is ApiKey.METADATA for seen in cluster.requests)
        assert 3 <= asked < 40


@in_virtual_time
async def test_throttled_node_that_left_metadata_still_answers() -> None:
    """KIP-219: the node reads again after its pause; nothing is lost, and nothing is written twice."""
    async with (
        FakeCluster(2, topics={"orders": 2}) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, metadata_max_age_ms=500, request_timeout_ms=8_000, batch_size=0
        ) as producer,
    ):
        for partition in (0, 1):
            cluster.move_leader("orders", partition, 2)
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.throttle(3_000, Where(api=ApiKey.PRODUCE, node_id=2))
        deliveries = [
            producer.send("orders", b"%d" % number, partition=partition) for number in (1, 2) for partition in (0, 1)
        ]
        await asyncio.sleep(0.1)
        for partition in (0, 1):
            cluster.move_leader("orders", partition, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster.model, "live_nodes", lambda: [1])
            deliveries += [producer.send("orders", b"3", partition=partition) for partition in (0, 1)]
            await asyncio.wait_for(asyncio.gather(*deliveries), 20)
        for partition in (0, 1):
            cluster.move_leader("orders", partition, 2)
        await asyncio.gather(*(producer.send("orders", b"4", partition=number) for number in (0, 1)))

        assert values(cluster, "orders") == [b"%d" % number for number in range(5)] * 2
        assert produce_requests(cluster) < 40
