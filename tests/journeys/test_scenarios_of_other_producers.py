"""Scenarios from the tests of Kafka's and librdkafka's producers; each names the test it comes from."""

import asyncio
from typing import Final

import pytest

from aioproducer import (
    ClusterAuthorizationError,
    DeliveryTimeoutError,
    KafkaError,
    Outcome,
    Producer,
    ProducerClosedError,
    ProducerOptions,
    RecordMetadata,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.apis import metadata as metadata_of_model
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from tests.fakes.producing import producing
from tests.fakes.transactional_cluster import (
    PRODUCE,
    Release,
    begin,
    cluster_of,
    committed,
    in_virtual_time_on_every_release,
    producer_of,
)
from tests.fakes.virtual_loop import in_virtual_time, now, virtual_loop
from tests.produced import produce_requests, values

NOT_LEADER = 6
MESSAGE_TOO_LARGE = 10
FORBIDDEN = 29


@in_virtual_time
async def test_callback_of_an_expired_record_may_send() -> None:
    async with producing(linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=1_000) as (cluster, producer):
        told: list[tuple[float, type[KafkaError] | None]] = []

        def send_again(_metadata: object, error: KafkaError | None) -> None:
            told.append((now() - began, type(error) if error is not None else None))
            if error is not None:
                producer.send("orders", b"again", partition=0, on_delivery=send_again)

        await producer.send("orders", b"first", partition=0)
        stall = cluster.faults.stall(PRODUCE)
        began = now()
        producer.send("orders", b"again", partition=0, on_delivery=send_again)
        await asyncio.sleep(3.5)
        cluster.faults.remove(stall)
        await asyncio.sleep(3)

        *given_up, (_, last) = told
        assert last is None
        assert {kind for _, kind in given_up} == {DeliveryTimeoutError}
        assert [round(at) for at, _ in given_up[:3]] == [1, 2, 3]
        assert values(cluster, "orders")[-1] == b"again"


ONE_RETRY: Final[ProducerOptions] = {
    "linger_ms": 0,
    "retry_backoff_ms": 2_000,
    "retry_backoff_max_ms": 2_000,
    "request_timeout_ms": 3_000,
    "delivery_timeout_ms": 3_000,
}


async def given_up_on_the_wire(
    cluster: FakeCluster, producer: Producer, *, records: int, codes: tuple[int, ...]
) -> None:
    """Records whose second attempt, after about two seconds, is answered after their deadline, at three."""
    for code in codes:
        cluster.faults.error(code, PRODUCE)
    cluster.faults.delay(2.0, PRODUCE, skip=1)
    deliveries = [producer.send("orders", b"x" * 100, partition=0) for _ in range(records)]
    results = await asyncio.gather(*deliveries, return_exceptions=True)

    assert {type(result) for result in results} == {DeliveryTimeoutError}
    assert {result.outcome for result in results if isinstance(result, KafkaError)} == {Outcome.UNKNOWN}


@in_virtual_time
async def test_next_batch_waits_for_an_expired_one_in_flight() -> None:
    """SenderTest.testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder: the first may still be written."""
    async with producing(enable_idempotence=False, max_in_flight_requests_per_connection=1, **ONE_RETRY) as (
        cluster,
        producer,
    ):
        await producer.send("orders", b"first", partition=0)
        await given_up_on_the_wire(cluster, producer, records=1, codes=(NOT_LEADER,))
        last = producer.send("orders", b"last", partition=0)
        await asyncio.sleep(0.2)

        assert produce_requests(cluster) == 3
        await last
        assert values(cluster, "orders") == [b"first", b"x" * 100, b"last"]


@in_virtual_time
async def test_refusal_that_comes_after_the_deadline_splits_nothing() -> None:
    """SenderTest.testExpiredBatchDoesNotSplitOnMessageTooLargeError: its callers were notified, its memory is free."""
    async with producing(**ONE_RETRY) as (cluster, producer):
        await producer.send("orders", b"first", partition=0)
        await given_up_on_the_wire(cluster, producer, records=3, codes=(NOT_LEADER, MESSAGE_TOO_LARGE))
        await asyncio.sleep(5)

        statistics = producer.statistics()
        assert (statistics.batches_split, statistics.records_failed, statistics.requests_in_flight) == (0, 3, 0)
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes
        await producer.send("orders", b"last", partition=0)
        assert values(cluster, "orders") == [b"first", b"last"]


@in_virtual_time
async def test_permission_that_is_granted_counts_from_the_next_record() -> None:
    """MetadataTest.testTopicAuthorizationError: only the records that met the refusal fail."""
    async with producing(linger_ms=0) as (cluster, producer):
        refusing = cluster.faults.error(FORBIDDEN, Where(api=ApiKey.METADATA, topic="orders"), times=None)
        for _ in range(3):
            with pytest.raises(TopicAuthorizationError):
                await producer.send("orders", b"refused")
        cluster.faults.remove(refusing)

        await producer.send("orders", b"taken")

        assert values(cluster, "orders") == [b"taken"]


@in_virtual_time
async def test_one_request_in_flight_is_enough_to_get_a_producer_id() -> None:
    """SenderTest.testIdempotentInitProducerIdWithMaxInFlightOne: on the connection that records wait for."""
    async with producing(
        FakeCluster(1, topics={"orders": 3}, producer_ids_load_s=1.5),
        linger_ms=0,
        max_in_flight_requests_per_connection=1,
    ) as (cluster, producer):
        deliveries = [producer.send("orders", b"%d" % number, partition=number % 3) for number in range(30)]
        await asyncio.wait_for(asyncio.gather(*deliveries), 10)

        assert len(values(cluster, "orders")) == 30


@in_virtual_time
async def test_node_stuck_in_its_handshake_delays_no_other() -> None:
    """NetworkClientTest.testConnectionDoesNotRemainStuckInCheckingApiVersionsState; it works once it answers."""
    async with FakeCluster(3, topics={"orders": 3}) as cluster:
        stuck = next(number for number in range(3) if cluster.leader_of("orders", number) == 2)
        stall = cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=2))
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            began = now()
            deliveries = [producer.send("orders", b"v", partition=number) for number in range(3)]
            await asyncio.gather(*(delivery for number, delivery in enumerate(deliveries) if number != stuck))
            assert now() - began < 2
            cluster.faults.remove(stall)
            await deliveries[stuck]
            assert now() - began < 30


@in_virtual_time
async def test_close_does_not_wait_out_a_pause_that_is_longer() -> None:
    """KIP-219 and KafkaProducer.close: a broker may ask for an hour, and the caller has five seconds."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)
        await producer.start()
        cluster.faults.throttle(3_600_000, PRODUCE)
        await producer.send("orders", b"1")
        last = producer.send("orders", b"2")
        began = now()

        with pytest.raises(UndeliveredError):
            await producer.close(5)

        assert now() - began == pytest.approx(5, abs=0.1)
        error = last.exception()
        assert isinstance(error, KafkaError)
        assert error.outcome is Outcome.NOT_WRITTEN


# Identities that change while records are on their way, and metadata that is not whole; each names the test it is of


FIRST: Final = Where(api=ApiKey.PRODUCE, partition=0)
SECOND: Final = Where(api=ApiKey.PRODUCE, partition=1)
INIT: Final = Where(api=ApiKey.INIT_PRODUCER_ID)
NOT_READY: Final = 15
CLUSTER_FORBIDDEN: Final = 31
FORGOTTEN: Final = 59

# Identities


@in_virtual_time
async def test_close_waits_for_the_next_producer_id() -> None:
    """`testCloseWithProducerIdReset`: queued records are sent under the new id, and written once."""
    async with producing(FakeCluster(1, topics={"orders": 2}), linger_ms=0) as (cluster, producer):
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
    async with producing(FakeCluster(1, topics={"orders": 2}), linger_ms=0) as (cluster, producer):
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
async def test_lost_record_keeps_its_identity_when_the_id_changes(*, after: bool) -> None:
    """`testRetryWhenProducerIdChanges`: under another identity its duplicate would be written, too."""
    async with producing(FakeCluster(2, topics={"orders": 2}), linger_ms=0) as (cluster, producer):
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
async def test_fatal_answer_ends_requests_to_other_brokers() -> None:
    """`testCancelInFlightRequestAfterFatalError`: the response that arrives afterwards changes nothing."""
    async with FakeCluster(2, topics={"orders": 2}) as cluster:
        cluster.move_leader("orders", 0, 1)
        cluster.move_leader("orders", 1, 2)
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        await asyncio.gather(*(producer.send("orders", b"first", partition=number) for number in (0, 1)))
        cluster.faults.error(CLUSTER_FORBIDDEN, FIRST)
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
    async with producing(linger_ms=0, enable_idempotence=False) as (cluster, producer):
        cluster.faults.error(CLUSTER_FORBIDDEN, PRODUCE)
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
        async with producing(FakeCluster(3, topics={"orders": 3}), linger_ms=0, batch_size=0) as (cluster, producer):
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
    async with producing(linger_ms=0) as (cluster, producer):
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
    async with producing(
        FakeCluster(2, topics={"orders": 2}),
        linger_ms=0,
        metadata_max_age_ms=500,
        request_timeout_ms=8_000,
        batch_size=0,
    ) as (cluster, producer):
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


# What librdkafka's own tests hold its producer to, where nothing else here does; each names the test it comes from


@in_virtual_time
async def test_first_record_of_a_topic_costs_one_metadata_request() -> None:
    """0055_producer_latency_mock: librdkafka asked on a timer, up to a second later."""
    async with producing(FakeCluster(1, auto_create_topics=False), linger_ms=0) as (cluster, producer):
        for number in range(50):
            cluster.create_topic(f"topic{number}", 1)
            began = now()
            await producer.send(f"topic{number}", b"x")
            assert now() - began < 0.02
            await asyncio.sleep(0.001)

        assert sum(seen.api is ApiKey.METADATA for seen in cluster.requests) == 51


@pytest.mark.parametrize("unanswered", [1, 2, 3, 4, 5])
@in_virtual_time
async def test_possibly_written_records_lose_none_behind_them(unanswered: int) -> None:
    """0144_idempotence_mock, issue 3584: the first is refused when sent again, and sequences seem to be missing."""
    async with producing(FakeCluster(1, topics={"t": 1}), batch_size=1, linger_ms=0) as (cluster, producer):
        await asyncio.gather(*(producer.send("t", b"before") for _ in range(5)))
        stalled = cluster.faults.stall(PRODUCE)
        deliveries = [producer.send("t", b"%d" % number) for number in range(unanswered)]
        await asyncio.sleep(0.25)
        await cluster.kill(1)
        cluster.faults.remove(stalled)
        cluster.faults.error(19, PRODUCE)
        cluster.faults.error(45, PRODUCE, times=4)
        deliveries += [producer.send("t", b"%d" % number) for number in range(unanswered, 5)]
        await cluster.restart(1)

        ends = await asyncio.gather(*deliveries, return_exceptions=True)
        cluster.faults.clear()
        await producer.send("t", b"after")

        written = [number for number, end in enumerate(ends) if isinstance(end, RecordMetadata)]
        doubtful = [end for end in ends if isinstance(end, KafkaError)]
        assert {end.outcome for end in doubtful} <= {Outcome.UNKNOWN}
        assert len(doubtful) <= unanswered
        assert values(cluster, "t")[5:] == [*(b"%d" % number for number in written), b"after"]


@in_virtual_time_on_every_release
async def test_briefly_missing_topic_loses_no_later_transaction(release: Release) -> None:
    """0105, do_test_topic_disappears_for_awhile: sequences started again, and records were taken for duplicates."""
    async with (
        cluster_of(release, topics={"t": 10}, auto_create_topics=False) as cluster,
        producer_of(cluster, linger_ms=100, metadata_max_age_ms=2_000) as producer,
    ):
        for _ in range(2):
            async with producer.transaction() as txn:
                await asyncio.gather(*(txn.send("t", b"x", partition=number % 10) for number in range(60)))
            denied = cluster.faults.error(3, Where(api=ApiKey.METADATA, topic="t"), times=None)
            await asyncio.sleep(6)
            cluster.faults.remove(denied)

        assert committed(cluster) == [b"x"] * 120


@pytest.mark.parametrize("moves", [False, True], ids=["comes back", "is another one then"])
@in_virtual_time_on_every_release
async def test_unreachable_group_coordinator_is_tried_again(release: Release, *, moves: bool) -> None:
    """0105, do_test_disconnected_group_coord: librdkafka tried to connect once."""
    async with cluster_of(release, 3, topics={"t": 1, "source": 1}) as cluster, producer_of(cluster) as producer:
        cluster.move_coordinator("billing-1", 1)
        cluster.move_coordinator("readers", 2, kind=CoordinatorKind.GROUP)
        cluster.move_leader("t", 0, 3)
        await begin(producer, b"x")
        address = "127.0.0.1", cluster.model.brokers[2].port
        stopped = virtual_loop().servers.pop(address)
        cluster.faults.drop_connection(Where(node_id=2), times=None)
        sending = asyncio.create_task(producer.send_offsets({("source", 0): 1}, "readers"))
        await asyncio.sleep(3)
        assert not sending.done()

        if moves:
            cluster.move_coordinator("readers", 3, kind=CoordinatorKind.GROUP)
        else:
            cluster.faults.clear()
            virtual_loop().servers[address] = stopped
        await asyncio.wait_for(sending, 3)
        await producer.commit_transaction()

        assert committed(cluster) == [b"x"]


@pytest.mark.parametrize("nodes", [1, 3])
@in_virtual_time
async def test_brokers_at_new_addresses_get_the_waiting_records(nodes: int) -> None:
    """0149 and 0151: a node is its id at any address, and one that left may return while it is being closed."""

    def first_broker() -> asyncio.Protocol | asyncio.BufferedProtocol:
        listening = loop.servers.get(("127.0.0.1", cluster.model.brokers[1].port))
        if listening is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return listening()

    loop = virtual_loop()
    async with FakeCluster(nodes, topics={"t": 3}, replication_factor=1) as cluster:
        loop.servers["seed", 9092] = first_broker
        async with Producer("seed:9092", linger_ms=0) as producer:
            for node_id in range(1, nodes + 1):
                stalled = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=node_id))
                deliveries = [producer.send("t", b"on the wire", partition=number) for number in range(3)]
                await asyncio.sleep(0.1)
                await cluster.kill(node_id)
                cluster.faults.remove(stalled)
                cluster.model.brokers[node_id].port += 1000
                deliveries += [producer.send("t", b"waiting", partition=number) for number in range(3)]
                await asyncio.sleep(3)
                await cluster.restart(node_id)
                await asyncio.wait_for(asyncio.gather(*deliveries), 3)

            assert values(cluster, "t") == [b"on the wire", b"waiting"] * nodes * 3
