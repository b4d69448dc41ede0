"""What producers learn of topics and nodes: new ones, replaced ones, those not there at first, and forgotten ones."""

import asyncio
from collections.abc import Callable

import pytest

from aioproducer import (
    InvalidPartitionError,
    KafkaError,
    MetadataNotReadyError,
    Partitioner,
    Producer,
    partition_for_key,
)
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.cluster import Cluster
from aioproducer.errors import BrokerError, MetadataTimeoutError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import ClusterLoop, in_virtual_time, now
from tests.produced import values


@in_virtual_time
async def test_topic_that_is_made_on_first_use_just_works() -> None:
    async with producing(FakeCluster(3, auto_create_delay_s=0.3), linger_ms=0) as (_, producer):
        results = await asyncio.gather(*(producer.send(f"topic{number}", b"x") for number in range(50)))

        assert {metadata.topic for metadata in results} == {f"topic{number}" for number in range(50)}


@pytest.mark.parametrize("code", [-1, 38], ids=["UNKNOWN_SERVER_ERROR", "INVALID_REPLICATION_FACTOR"])
@in_virtual_time
async def test_topic_that_cannot_be_made_yet_is_waited_for(code: int) -> None:
    """Too few brokers are up, or one fails: the call waits for `max_block_ms`, as in Java."""
    async with producing(linger_ms=0, max_block_ms=10_000) as (cluster, producer):
        refusing = cluster.faults.error(code, Where(api=ApiKey.METADATA, topic="orders"), times=5)
        began = now()

        await producer.send("orders", b"x")

        assert refusing.hits == 5
        assert 1 < now() - began < 5
        cluster.faults.error(code, Where(api=ApiKey.METADATA, topic="others"), times=None)
        with pytest.raises(MetadataTimeoutError, match=ErrorCode(code).name):
            await producer.send("others", b"x")


@in_virtual_time
async def test_topic_that_does_not_exist_is_asked_about() -> None:
    """Where brokers do not create topics, a mistyped name is the likely cause."""
    made = FakeCluster(1, topics={"orders": 1}, auto_create_topics=False)
    async with producing(made, max_block_ms=3_000) as (_, producer):
        wanted = r"'order' is still unknown after max_block_ms=3000: .*does the topic exist\? Automatic creation"

        with pytest.raises(MetadataTimeoutError, match=wanted):
            await producer.send("order", b"x")
        with pytest.raises(MetadataTimeoutError, match=wanted):
            await producer.partitions_for("order")


@in_virtual_time
async def test_unknown_code_is_shown_as_a_number() -> None:
    async with producing(max_block_ms=3_000) as (cluster, producer):
        cluster.faults.error(999, Where(api=ApiKey.METADATA, topic="orders"), times=None)

        with pytest.raises(MetadataTimeoutError, match=r"a code newer than this client \(999\)") as caught:
            await producer.partitions_for("orders")

    error = caught.value.last_broker_error
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic) == (999, "orders")


@in_virtual_time
async def test_fresh_cluster_that_has_no_producer_ids_yet_only_delays() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}, producer_ids_load_s=1.5)) as (_, producer):
        began = now()
        await producer.send("orders", b"x")

        assert 1.5 <= now() - began < 4


@in_virtual_time
async def test_added_partition_is_found_soon_after_its_refusal() -> None:
    """It must not take until metadata is refreshed for its age, minutes later."""
    async with producing(metadata_max_age_ms=2**40) as (cluster, producer):
        await producer.send("orders", b"0")
        topic = cluster.model.topics.named("orders")
        assert topic is not None
        cluster.model.topics.add_partitions(topic, 2)
        with pytest.raises(InvalidPartitionError, match="a later call finds it"):
            producer.send("orders", b"1", partition=1)
        await asyncio.sleep(1)
        metadata = await producer.send("orders", b"1", partition=1)

        assert metadata.partition == 1
        assert [record.value for record in cluster.records("orders", 1)] == [b"1"]


@in_virtual_time
async def test_loop_of_refused_partitions_asks_at_a_measured_pace() -> None:
    """A program with a wrong partition number must not burden the brokers."""
    async with producing() as (cluster, producer):
        await producer.send("orders", b"0")
        before = sum(seen.api is ApiKey.METADATA for seen in cluster.requests)
        for _ in range(1000):
            with pytest.raises(InvalidPartitionError):
                producer.send("orders", b"1", partition=1)
            await asyncio.sleep(0.001)

        assert 1 <= sum(seen.api is ApiKey.METADATA for seen in cluster.requests) - before <= 20


@in_virtual_time
async def test_all_brokers_are_replaced_one_after_another() -> None:
    """Every one that the producer knew at first was away for a time."""
    made = FakeCluster(3, topics={"orders": 3})
    async with producing(made, linger_ms=0, request_timeout_ms=2_000) as (cluster, producer):
        deliveries = []
        for node_id in (1, 2, 3):
            await cluster.kill(node_id)
            for number in range(30):
                deliveries.append(producer.send("orders", b"%d" % number, partition=number % 3))
                await asyncio.sleep(0.05)
            await cluster.restart(node_id)
            await asyncio.sleep(1)
        await asyncio.gather(*deliveries)

        assert sum(len(cluster.records("orders", number)) for number in range(3)) == 90


@in_virtual_time
async def test_whole_cluster_goes_away_and_comes_back() -> None:
    async with producing(FakeCluster(3, topics={"orders": 3}), linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"first", partition=0)
        for node_id in (1, 2, 3):
            await cluster.kill(node_id)
        deliveries = [producer.send("orders", b"%d" % number, partition=0) for number in range(100)]
        await asyncio.sleep(60)
        for node_id in (1, 2, 3):
            await cluster.restart(node_id)
        began = now()
        await asyncio.gather(*deliveries)

        assert now() - began < 5
        assert [record.value for record in cluster.records("orders", 0)][1:] == [b"%d" % n for n in range(100)]


@in_virtual_time
async def test_producer_started_before_its_brokers_sends_later() -> None:
    async with FakeCluster(2) as cluster:
        for node_id in (1, 2):
            await cluster.kill(node_id)
        producer = await Producer(cluster.bootstrap_servers).start(wait=False)
        delivery = producer.send("orders", b"x")
        await asyncio.sleep(20)
        assert not delivery.done()
        for node_id in (1, 2):
            await cluster.restart(node_id)

        assert (await delivery).offset == 0
        await producer.close()


@in_virtual_time
async def test_throttled_producer_waits_for_the_whole_pause() -> None:
    """KIP-219: not a single request comes sooner."""
    async with producing(linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.throttle(2_000, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")
        began = now()

        await producer.send("orders", b"2")

        assert 1.9 <= now() - began < 2.5


@in_virtual_time
async def test_question_waits_for_a_throttle_no_longer_than_it_lasts() -> None:
    """Regression: the request was tried again only after a second, which delayed a transaction."""
    async with producing(linger_ms=0) as (cluster, producer):
        cluster.faults.throttle(50, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")
        began = now()

        await producer.partitions_for("others")

        assert now() - began < 0.5


@in_virtual_time
async def test_request_behind_a_throttled_one_is_not_lost_to_its_pause() -> None:
    """The throttling broker reads nothing meanwhile; hanging up would leave it a duplicate to write."""
    async with producing(
        FakeCluster(1, topics={"orders": 2}), linger_ms=0, request_timeout_ms=1_000, enable_idempotence=False, retries=0
    ) as (cluster, producer):
        await producer.send("orders", b"0", partition=0)
        cluster.faults.throttle(5_000, Where(api=ApiKey.PRODUCE))
        first = asyncio.ensure_future(producer.send("orders", b"1", partition=0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        await producer.send("orders", b"2", partition=1)  # in flight before the pause is known
        await first

        assert producer.statistics().connections_closed == 0
        assert values(cluster, "orders") == [b"0", b"1", b"2"]


# Nothing was sent for a while: what is found out before the next record, and done meanwhile


def turns() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    return loop.turns


def forgetful(cluster: FakeCluster, *, partitioner: Partitioner | None = None) -> Producer:
    """A producer that has forgotten a topic when nothing was sent to it for a minute."""
    return Producer(
        cluster.bootstrap_servers,
        linger_ms=0,
        metadata_max_idle_ms=5_000,
        metadata_max_age_ms=10_000,
        partitioner=partitioner,
    )


class ToTheFirst:
    """Sends everything to one partition, so that order can be seen."""

    on_call: Callable[[], object] = staticmethod(lambda: None)

    def partition(self, *_: object) -> int:
        self.on_call()
        return 0


@in_virtual_time
async def test_leader_that_died_while_idle_is_replaced_at_once() -> None:
    async with producing(FakeCluster(3), linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"1", partition=0)
        await cluster.kill(cluster.leader_of("orders", 0))
        await asyncio.sleep(10)

        metadata = await asyncio.wait_for(producer.send("orders", b"2", partition=0), 5)

        assert metadata.offset == 1


@in_virtual_time
async def test_forgotten_topic_is_asked_for_when_used_again() -> None:
    async with FakeCluster(3) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", partition=0)
        await asyncio.sleep(60)
        await cluster.kill(cluster.leader_of("idle", 0))
        await asyncio.sleep(60)
        named = [request.size for request in cluster.requests if request.api is ApiKey.METADATA]
        assert named[-1] < named[1]

        metadata = await asyncio.wait_for(producer.send("idle", b"2", partition=0), 5)

        assert metadata.offset == 1


@pytest.mark.parametrize("profile", ["4.4.0", "2.4"])
@in_virtual_time
async def test_topic_recreated_smaller_while_forgotten_takes_all_keys(profile: str) -> None:
    """Keys of removed partitions go to others, or nothing with such a key would ever be delivered."""
    async with (
        FakeCluster(1, topics={"idle": 8}, auto_create_topics=False, profile=profile) as cluster,
        forgetful(cluster) as producer,
    ):
        keys = [b"%d" % number for number in range(20)]
        await asyncio.gather(*(producer.send("idle", b"1", key=key) for key in keys))
        await asyncio.sleep(60)
        cluster.delete_topic("idle")
        cluster.create_topic("idle", 2)
        await asyncio.sleep(60)
        await producer.send("idle", b"2", partition=0)

        sent = [producer.send("idle", b"2", key=key) for key in keys]
        found = await asyncio.wait_for(asyncio.gather(*sent), 5)

        assert {metadata.partition for metadata in found} == {0, 1}


@in_virtual_time
async def test_key_of_a_forgotten_topic_goes_to_its_current_partition() -> None:
    """The topic has more partitions by now; among the old ones a reader by key would not find the record."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", key=b"a")
        await asyncio.sleep(60)
        cluster.model.topics.add_partitions(cluster.model.topics.named("idle"), 16)

        found = await asyncio.gather(*(producer.send("idle", b"2", key=key) for key in (b"a", b"b", b"c")))

        assert [metadata.partition for metadata in found] == [partition_for_key(key, 16) for key in (b"a", b"b", b"c")]


@in_virtual_time
async def test_topic_forgotten_twice_in_an_outage_is_found_again() -> None:
    """It was asked for in a long outage; what blocks the topic must be lifted as often as it was laid on."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", partition=0)
        await cluster.kill(1)
        await asyncio.sleep(60)
        with pytest.raises(MetadataTimeoutError):
            await producer.partitions_for("idle")
        await asyncio.sleep(60)
        await cluster.restart(1)
        await asyncio.sleep(60)

        assert (await producer.send("idle", b"3", partition=0)).offset == 1
        assert (await producer.send("idle", b"4", partition=0)).offset == 2


@in_virtual_time
async def test_record_refused_after_a_long_pause_delays_no_later_one() -> None:
    """The record was to be placed by old metadata, and its partition does not exist any more."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", partition=0)
        await asyncio.sleep(60)
        with pytest.raises(InvalidPartitionError):
            producer.send_nowait("idle", b"2", partition=99)

        metadata = await asyncio.wait_for(producer.send("idle", b"3", partition=0), 5)

        assert metadata.offset == 1
        await asyncio.sleep(1)
        assert (await asyncio.wait_for(producer.send("idle", b"4", partition=0), 5)).offset == 2


@in_virtual_time
async def test_send_nowait_after_a_long_pause_is_accepted() -> None:
    """The record goes by old metadata, or the first one after every pause would be refused."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1")
        await asyncio.sleep(60)
        assert (await producer.send_nowait("idle", b"2", partition=1)).offset >= 0
        await asyncio.sleep(60)
        waiting = producer.send("idle", b"3", partition=0)

        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"4", partition=0)

        assert (await waiting).partition == 0


@in_virtual_time
async def test_leaderless_partition_without_records_is_not_asked_for() -> None:
    """Its records have failed: else the producer would ask forever, and never forget the topic."""
    async with producing(
        FakeCluster(2, topics={"orders": 2}, replication_factor=1),
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=2_000,
        metadata_max_idle_ms=5_000,
    ) as (cluster, producer):
        await producer.send("orders", b"1", partition=0)
        await cluster.kill(cluster.leader_of("orders", 0))
        with pytest.raises(KafkaError):
            await producer.send("orders", b"2", partition=0)
        await asyncio.sleep(20)
        asked = len(cluster.requests)

        await asyncio.sleep(60)

        assert len(cluster.requests) == asked


@in_virtual_time
async def test_partitioner_is_asked_when_a_forgotten_topic_returns() -> None:
    shown: list[int | None] = []

    class Last:
        def partition(self, topic: str, *given: object) -> int:
            cluster = given[-1]
            assert isinstance(cluster, Cluster)
            shown.append(cluster.partition_count(topic))
            return (shown[-1] or 0) - 1

    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=Last()) as producer:
        for _ in range(2):
            assert (await producer.send("idle", b"v")).partition == 2
            await asyncio.sleep(60)

    assert shown == [3, 3]


@in_virtual_time
async def test_partitioned_record_queues_behind_unpartitioned_ones() -> None:
    """Regression: it went into a batch of the old partitions while the others waited for metadata."""
    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=ToTheFirst()) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)
        producer.send("idle", b"1")
        producer.send("idle", b"2", partition=0)
        given_up = asyncio.ensure_future(producer.enqueue("idle", b"3"))
        await asyncio.sleep(0)
        given_up.cancel()
        await producer.enqueue("idle", b"4", partition=0)
        await (await producer.send_many("idle", [b"5", b"6"], partition=0))

        assert [record.value for record in cluster.records("idle", 0)] == [b"before", b"1", b"2", b"4", b"5", b"6"]
        assert producer.send_nowait("idle", b"7", partition=0) is not None


@in_virtual_time
async def test_send_nowait_asks_for_a_forgotten_topic() -> None:
    """Regression: the error said that memory was short, and the topic was never asked for."""
    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=ToTheFirst()) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"1")
        await asyncio.sleep(1)
        await producer.send_nowait("idle", b"1")

        await asyncio.sleep(60)
        producer.send("idle", b"2")
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"3", partition=0)


@in_virtual_time
async def test_partitioner_may_send_while_a_forgotten_topic_returns() -> None:
    """Regression: its record queued behind those still to be partitioned, until the next metadata."""
    partitioner = ToTheFirst()
    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=partitioner) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)

        def send_another() -> None:
            partitioner.on_call = lambda: None
            producer.send("idle", b"nested", partition=0)

        partitioner.on_call = send_another
        first, second = producer.send("idle", b"1"), producer.send("idle", b"2")
        await asyncio.wait_for(asyncio.gather(first, second, producer.send("idle", b"3", partition=0)), 1)
        await asyncio.wait_for(producer.send("idle", b"4", partition=0), 1)

        assert [record.value for record in cluster.records("idle", 0)] == [b"before", b"1", b"2", b"3", b"nested", b"4"]


@in_virtual_time
async def test_partition_identity_survives_its_topic_being_forgotten() -> None:
    """Else the broker would take the next records for duplicates of the first and drop them."""
    async with FakeCluster(3) as cluster, forgetful(cluster) as producer:
        for number in range(10):
            await producer.send("idle", b"%d" % number, partition=0)
            await asyncio.sleep(60)

        assert [record.value for record in cluster.records("idle", 0)] == [b"%d" % number for number in range(10)]


@in_virtual_time
async def test_hour_without_records_is_a_few_metadata_requests() -> None:
    async with producing(FakeCluster(3)) as (_, producer):
        await producer.send("orders", b"1")
        await producer.flush()
        before = turns()
        await asyncio.sleep(3600)

        assert turns() - before < 800  # a few per request, and per reading of the totals for metrics


@in_virtual_time
async def test_minutes_without_brokers_cost_few_attempts() -> None:
    async with producing(FakeCluster(3), close_timeout_ms=0) as (cluster, producer):
        await producer.send("orders", b"1")
        for node_id in (1, 2, 3):
            await cluster.kill(node_id)
        before = turns()
        for _ in range(10):
            producer.send("orders", b"2", on_delivery=lambda *_: None)
            await asyncio.sleep(60)

        assert turns() - before < 600 * 40


@in_virtual_time
async def test_unreachable_leader_of_a_waiting_record_is_no_storm() -> None:
    """One node is down and stays leader: metadata is asked for slowly."""
    made = FakeCluster(2, topics={"orders": 2}, replication_factor=1)
    async with producing(made, linger_ms=0) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"1", partition=number) for number in (0, 1)))
        await cluster.kill(cluster.leader_of("orders", 0))
        before = turns(), len(cluster.requests)
        lost = producer.send("orders", b"2", partition=0, on_delivery=lambda *_: None)
        await asyncio.sleep(60)

        assert turns() - before[0] < 60 * 60
        assert len(cluster.requests) - before[1] < 60 * 12
        assert not lost.done()
