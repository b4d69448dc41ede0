"""Topics made on first use, brokers that are all replaced, and brokers that are not there at first."""

import asyncio

import pytest

from aioproducer import InvalidPartitionError, KafkaError, Outcome, Producer, UndeliveredError
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import BrokerError, MetadataTimeoutError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time
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
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0, max_block_ms=10_000) as (cluster, producer):
        refusing = cluster.faults.error(code, Where(api=ApiKey.METADATA, topic="orders"), times=5)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await producer.send("orders", b"x")

        assert refusing.hits == 5
        assert 1 < loop.time() - began < 5
        cluster.faults.error(code, Where(api=ApiKey.METADATA, topic="others"), times=None)
        with pytest.raises(MetadataTimeoutError, match=ErrorCode(code).name):
            await producer.send("others", b"x")


@in_virtual_time
async def test_topic_that_does_not_exist_is_asked_about() -> None:
    """Where brokers do not create topics, a mistyped name is the likely cause."""
    async with (
        FakeCluster(1, topics={"orders": 1}, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, max_block_ms=3_000) as producer,
    ):
        wanted = r"'order' is still unknown after max_block_ms=3000: .*does the topic exist\? Automatic creation"

        with pytest.raises(MetadataTimeoutError, match=wanted):
            await producer.send("order", b"x")
        with pytest.raises(MetadataTimeoutError, match=wanted):
            await producer.partitions_for("order")


@in_virtual_time
async def test_unknown_code_is_shown_as_a_number() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), max_block_ms=3_000) as (cluster, producer):
        cluster.faults.error(999, Where(api=ApiKey.METADATA, topic="orders"), times=None)

        with pytest.raises(MetadataTimeoutError, match=r"a code newer than this client \(999\)") as caught:
            await producer.partitions_for("orders")

    error = caught.value.last_broker_error
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic) == (999, "orders")


@in_virtual_time
async def test_fresh_cluster_that_has_no_producer_ids_yet_only_delays() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}, producer_ids_load_s=1.5)) as (_, producer):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await producer.send("orders", b"x")

        assert 1.5 <= loop.time() - began < 4


@in_virtual_time
async def test_added_partition_is_found_soon_after_its_refusal() -> None:
    """It must not take until metadata is refreshed for its age, minutes later."""
    async with producing(FakeCluster(1, topics={"orders": 1}), metadata_max_age_ms=2**40) as (cluster, producer):
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
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
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
    async with (
        FakeCluster(3, topics={"orders": 3}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=2_000) as producer,
    ):
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
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*deliveries)

        assert loop.time() - began < 5
        assert [record.value for record in cluster.records("orders", 0)][1:] == [b"%d" % n for n in range(100)]


@in_virtual_time
async def test_start_without_brokers_fails_in_time() -> None:
    async with FakeCluster(2) as cluster:
        for node_id in (1, 2):
            await cluster.kill(node_id)
        producer = Producer(cluster.bootstrap_servers, max_block_ms=3_000)
        loop = asyncio.get_running_loop()
        began = loop.time()

        with pytest.raises(MetadataTimeoutError, match="refused"):
            await producer.start()

        assert 3.0 <= loop.time() - began < 3.5
        assert asyncio.all_tasks() == {asyncio.current_task()}


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
async def test_sends_flush_and_close_are_bounded_without_brokers() -> None:
    """Regression in aiokafka: all of them hung."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(
            cluster.bootstrap_servers, request_timeout_ms=1_500, delivery_timeout_ms=2_000, max_block_ms=2_000
        ).start()
        await producer.send("orders", b"x")
        await cluster.kill(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        known, unknown = producer.send("orders", b"x"), producer.send("elsewhere", b"x")
        with pytest.raises(UndeliveredError) as raised:
            await producer.flush()
        await producer.close()

        assert loop.time() - began < 3
        assert raised.value.count == 2
        for delivery in (known, unknown):
            error = delivery.exception()
            assert isinstance(error, KafkaError)
            assert error.outcome is Outcome.NOT_WRITTEN


@in_virtual_time
async def test_throttled_producer_waits_for_the_whole_pause() -> None:
    """KIP-219: not a single request comes sooner."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.throttle(2_000, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")
        loop = asyncio.get_running_loop()
        began = loop.time()

        await producer.send("orders", b"2")

        assert 1.9 <= loop.time() - began < 2.5


@in_virtual_time
async def test_question_waits_for_a_throttle_no_longer_than_it_lasts() -> None:
    """Regression: the request was tried again only after a second, which delayed a transaction."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0) as (cluster, producer):
        cluster.faults.throttle(50, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")
        loop = asyncio.get_running_loop()
        began = loop.time()

        await producer.partitions_for("others")

        assert loop.time() - began < 0.5


@in_virtual_time
async def test_request_behind_a_throttled_one_is_not_lost_to_its_pause() -> None:
    """The throttling broker reads nothing meanwhile; hanging up would leave it a duplicate to write."""
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=1_000, enable_idempotence=False, retries=0
        ) as producer,
    ):
        await producer.send("orders", b"0", partition=0)
        cluster.faults.throttle(5_000, Where(api=ApiKey.PRODUCE))
        first = asyncio.ensure_future(producer.send("orders", b"1", partition=0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        await producer.send("orders", b"2", partition=1)  # in flight before the pause is known
        await first

        assert producer.statistics().connections_closed == 0
        assert values(cluster, "orders") == [b"0", b"1", b"2"]
