"""What Kafka's own tests hold its producer to, where nothing else here does; each names the test it comes from."""

import asyncio

import pytest

from aioproducer import (
    DeliveryTimeoutError,
    KafkaError,
    Outcome,
    Producer,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
NOT_LEADER = 6
MESSAGE_TOO_LARGE = 10
FORBIDDEN = 29


@in_virtual_time
async def test_callback_of_an_expired_record_may_send() -> None:
    """SenderTest.testAppendInExpiryCallback: the new record has a deadline of its own, and each is reported once."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=1_000) as producer,
    ):
        told: list[tuple[float, type[KafkaError] | None]] = []
        loop = asyncio.get_running_loop()

        def send_again(_metadata: object, error: KafkaError | None) -> None:
            told.append((loop.time() - began, type(error) if error is not None else None))
            if error is not None:
                producer.send("orders", b"again", partition=0, on_delivery=send_again)

        await producer.send("orders", b"first", partition=0)
        stall = cluster.faults.stall(PRODUCE)
        began = loop.time()
        producer.send("orders", b"again", partition=0, on_delivery=send_again)
        await asyncio.sleep(3.5)
        cluster.faults.remove(stall)
        await asyncio.sleep(3)

        *given_up, (_, last) = told
        assert last is None
        assert {kind for _, kind in given_up} == {DeliveryTimeoutError}
        assert [round(at) for at, _ in given_up[:3]] == [1, 2, 3]
        assert values(cluster, "orders")[-1] == b"again"


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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            linger_ms=0,
            retry_backoff_ms=2_000,
            retry_backoff_max_ms=2_000,
            request_timeout_ms=3_000,
            delivery_timeout_ms=3_000,
        ) as producer,
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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers,
            linger_ms=0,
            retry_backoff_ms=2_000,
            retry_backoff_max_ms=2_000,
            request_timeout_ms=3_000,
            delivery_timeout_ms=3_000,
        ) as producer,
    ):
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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
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
    async with (
        FakeCluster(1, topics={"orders": 3}, producer_ids_load_s=1.5) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, max_in_flight_requests_per_connection=1) as producer,
    ):
        deliveries = [producer.send("orders", b"%d" % number, partition=number % 3) for number in range(30)]
        await asyncio.wait_for(asyncio.gather(*deliveries), 10)

        assert len(values(cluster, "orders")) == 30


@in_virtual_time
async def test_node_stuck_in_its_handshake_delays_no_other() -> None:
    """NetworkClientTest.testConnectionDoesNotRemainStuckInCheckingApiVersionsState; it works once it answers."""
    async with FakeCluster(3, topics={"orders": 3}) as cluster:
        stuck = next(number for number in range(3) if cluster.leader_of("orders", number) == 2)
        stall = cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=2))
        loop = asyncio.get_running_loop()
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            began = loop.time()
            deliveries = [producer.send("orders", b"v", partition=number) for number in range(3)]
            await asyncio.gather(*(delivery for number, delivery in enumerate(deliveries) if number != stuck))
            assert loop.time() - began < 2
            cluster.faults.remove(stall)
            await deliveries[stuck]
            assert loop.time() - began < 30


@in_virtual_time
async def test_close_does_not_wait_out_a_pause_that_is_longer() -> None:
    """KIP-219 and KafkaProducer.close: a broker may ask for an hour, and the caller has five seconds."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)
        await producer.start()
        cluster.faults.throttle(3_600_000, PRODUCE)
        await producer.send("orders", b"1")
        last = producer.send("orders", b"2")
        loop = asyncio.get_running_loop()
        began = loop.time()

        with pytest.raises(UndeliveredError):
            await producer.close(5)

        assert loop.time() - began == pytest.approx(5, abs=0.1)
        error = last.exception()
        assert isinstance(error, KafkaError)
        assert error.outcome is Outcome.NOT_WRITTEN
