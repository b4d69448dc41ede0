"""Brokers that die, go silent, lose partitions, speak other versions or accept nothing, and errors that say so."""

import asyncio
import re
from dataclasses import replace

import pytest

from aioproducer import BrokerError, DeliveryTimeoutError, MetadataTimeoutError, Outcome, Producer
from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.fakes.logs import LogCapture
from tests.fakes.producing import producing
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_loop import ClusterLoop, in_virtual_time, now


@in_virtual_time
async def test_unanswered_records_are_written_once_elsewhere_in_order() -> None:
    async with producing(FakeCluster(3, topics={"orders": 1}), linger_ms=0, batch_size=0) as (cluster, producer):
        await producer.send("orders", b"0")
        leader = cluster.leader_of("orders", 0)
        cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=leader))
        deliveries = [producer.send("orders", b"%d" % number) for number in range(1, 30)]
        await asyncio.sleep(1)
        await cluster.kill(leader)
        await asyncio.gather(*deliveries)

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(30)]


@in_virtual_time
async def test_copy_is_not_written_when_only_the_answer_was_lost() -> None:
    async with producing(linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.drop_connection(Where(api=ApiKey.PRODUCE), after_append=True)

        metadata = await producer.send("orders", b"1", timestamp=77)

        assert (metadata.offset, metadata.timestamp, metadata.timestamp_type) == (1, 77, 0)
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1"]
        assert producer.statistics().records_retried == 1


@in_virtual_time
async def test_silent_broker_is_given_up_after_the_request_timeout() -> None:
    async with producing(linger_ms=0, request_timeout_ms=2_000) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.stall(Where(api=ApiKey.PRODUCE), times=1)
        began = now()

        await producer.send("orders", b"1")

        assert 2.0 <= now() - began < 4.0
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1"]


@in_virtual_time
async def test_record_in_flight_at_its_deadline_ends_unknown() -> None:
    async with producing(linger_ms=0, request_timeout_ms=2_000, delivery_timeout_ms=2_000) as (cluster, producer):
        await producer.send("orders", b"0")
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        first = producer.send("orders", b"1")
        await asyncio.sleep(1)
        second = producer.send("orders", b"2")
        with pytest.raises(DeliveryTimeoutError) as raised:
            await first
        assert raised.value.outcome is Outcome.UNKNOWN
        cluster.faults.remove(stall)
        await asyncio.wait([second])
        third = await producer.send("orders", b"3")

        assert third.offset >= 1
        assert [record.value for record in cluster.records("orders", 0)][-1] == b"3"
        statistics = producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


@in_virtual_time
async def test_later_records_deadline_is_kept_after_a_delivery() -> None:
    """The timer of the first record stands for the whole partition."""
    async with producing(linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=10_000) as (cluster, producer):
        await producer.send("orders", b"0")
        await asyncio.sleep(9)
        await cluster.kill(1)
        began = now()
        with pytest.raises(DeliveryTimeoutError) as raised:
            await producer.send("orders", b"1")

        assert 10.0 <= now() - began < 10.1
        assert raised.value.outcome is Outcome.NOT_WRITTEN


# A broker that keeps its connection and answers nothing does not hold up what others can do


@in_virtual_time
async def test_topic_is_asked_of_another_broker() -> None:
    """The stopped broker is the only connected one; Kafka's producer waits `request.timeout.ms` for it."""
    async with FakeCluster(3, topics={"orders": 1}) as cluster:
        first = cluster.bootstrap_servers.split(",")[0]
        async with Producer(first, linger_ms=0) as producer:
            stall = cluster.faults.stall(Where(node_id=1))
            began = now()
            await producer.partitions_for("orders")

            assert now() - began < 5
            cluster.faults.remove(stall)


@in_virtual_time
async def test_bootstrap_address_is_asked_without_other_nodes() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, FakeCluster(1, topics={"orders": 1}) as elsewhere:
        servers = f"{cluster.bootstrap_servers},{elsewhere.bootstrap_servers}"
        async with Producer(servers, linger_ms=0) as producer:
            await producer.partitions_for("orders")
            first, second = (cluster, elsewhere) if cluster.connections else (elsewhere, cluster)
            stall = first.faults.stall(Where())
            second.create_topic("new", 2)
            began = now()

            assert await producer.partitions_for("new") == [0, 1]
            assert now() - began < 5
            first.faults.remove(stall)


# A partition gets another leader while records are on their way


def other_node(cluster: FakeCluster, partition: int) -> int:
    return cluster.leader_of("orders", partition) % 3 + 1


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1"])
@in_virtual_time
async def test_records_follow_the_leader_in_order(profile: str) -> None:
    made = FakeCluster(3, topics={"orders": 1}, profile=profile)
    async with producing(made, batch_size=100, linger_ms=0) as (cluster, producer):
        deliveries = []
        for number in range(300):
            deliveries.append(await producer.enqueue("orders", b"%d" % number))
            if number % 50 == 25:
                await asyncio.sleep(0.001)
                cluster.move_leader("orders", 0, other_node(cluster, 0))
        offsets = [metadata.offset for metadata in await asyncio.gather(*deliveries)]

        assert offsets == list(range(300))
        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(300)]


@in_virtual_time
async def test_leader_named_by_the_answer_is_used_at_once() -> None:
    """KIP-951: neither metadata nor the retry backoff is waited for."""
    made = FakeCluster(3, topics={"orders": 1})
    async with producing(made, linger_ms=0, retry_backoff_ms=900) as (cluster, producer):
        for _ in range(2):
            await producer.send("orders", b"x")
            cluster.move_leader("orders", 0, other_node(cluster, 0))
        began = now()
        await producer.send("orders", b"x")

        assert now() - began < 0.1


@in_virtual_time
async def test_new_leader_waits_for_the_old_ones_answer() -> None:
    made = FakeCluster(3, topics={"orders": 1})
    async with producing(made, linger_ms=0, request_timeout_ms=5_000) as (cluster, producer):
        await producer.send("orders", b"0")
        old = cluster.leader_of("orders", 0)
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=old))
        first = producer.send("orders", b"1")
        await asyncio.sleep(0.1)
        cluster.move_leader("orders", 0, other_node(cluster, 0))
        await producer.partitions_for("elsewhere")  # metadata with the new leader
        second = producer.send("orders", b"2")
        await asyncio.sleep(1)
        assert not second.done()

        cluster.faults.remove(stall)
        await asyncio.gather(first, second)

        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1", b"2"]


@pytest.mark.slow
@in_virtual_time
async def test_many_leader_changes_cost_few_metadata_requests() -> None:
    async with producing(FakeCluster(3, topics={"wide": 3000}), linger_ms=0) as (cluster, producer):
        await asyncio.gather(*(producer.send("wide", b"1", partition=number) for number in range(3000)))
        asked = sum(request.api is ApiKey.METADATA for request in cluster.requests)
        await cluster.kill(2)
        await asyncio.gather(*(producer.send("wide", b"2", partition=number) for number in range(3000)))

        assert sum(request.api is ApiKey.METADATA for request in cluster.requests) - asked < 10


# Brokers that do not speak what a producer needs: a clear error, at once


PRODUCE_KEY, METADATA_KEY, API_VERSIONS_KEY = 0, 3, 18
TOPIC_ID = bytes(range(16))


def answer_metadata(broker: ScriptedBroker, heard: Heard) -> None:
    if heard.api_key == METADATA_KEY:
        broker.answer(heard, metadata_body([(1, "old", 9092)], [(0, "orders", TOPIC_ID, [(1, 0)])]))


def old_brokers(hosts: str, produce: tuple[int, int]) -> str:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    spoken = ((PRODUCE_KEY, *produce), (METADATA_KEY, 0, 13), (API_VERSIONS_KEY, 0, 4))
    for host in hosts.split():
        loop.servers[host, 9092] = lambda: ScriptedBroker(answer_metadata, spoken=spoken)
    return ",".join(f"{host}:9092" for host in hosts.split())


@pytest.mark.parametrize(
    "hosts, produce, acks",
    [("old", (0, 2), 1), ("old", (3, 13), -1), ("one two", (0, 2), -1)],
    ids=["Produce", "producer ids", "several"],
)
@in_virtual_time
async def test_broker_that_is_too_old_is_refused_at_once(hosts: str, produce: tuple[int, int], acks: int) -> None:
    """Waiting does not help: the start does not go on until `max_block_ms`, but asks each broker once."""
    producer = Producer(old_brokers(hosts, produce), acks=acks)
    began = now()

    with pytest.raises(UnsupportedVersionError, match=r"too old|does not"):
        await start_and_send(producer)
    await producer.close(0)

    assert now() - began < 5


async def start_and_send(producer: Producer) -> None:
    await producer.start()
    await producer.send("orders", b"x")


# A broker is up- or downgraded, or another one stands behind its address, while a producer is connected to it


PRODUCE = Where(api=ApiKey.PRODUCE)


def versions(cluster: FakeCluster, api: ApiKey = ApiKey.PRODUCE) -> list[int]:
    return [request.version for request in cluster.requests if request.api is api]


@in_virtual_time
async def test_record_goes_in_the_version_that_is_left() -> None:
    async with producing(linger_ms=0) as (cluster, producer):
        cluster.faults.error(35, PRODUCE)
        cluster.faults.delay(1.0, PRODUCE)
        delivery = producer.send("orders", b"v")
        await asyncio.sleep(0.5)
        cluster.model.settings = replace(cluster.model.settings, profile=profile_named("2.8"))

        assert (await delivery).offset == 0
        assert versions(cluster) == [13, 9]


@in_virtual_time
async def test_other_requests_are_answered_before_closing() -> None:
    made = FakeCluster(1, topics={"orders": 2})
    async with producing(made, linger_ms=0, enable_idempotence=False) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.error(35, PRODUCE)
        cluster.faults.delay(1.0, PRODUCE, skip=1)
        first = producer.send("orders", b"1", partition=0)
        await asyncio.sleep(0)
        second = producer.send("orders", b"1", partition=1)
        await asyncio.gather(first, second)

        assert [cluster.end_offset("orders", number) for number in (0, 1)] == [2, 2]
        assert producer.statistics().records_retried == 1


@in_virtual_time
async def test_broker_that_lists_what_it_refuses_is_asked_a_few_times() -> None:
    async with producing(linger_ms=0) as (cluster, producer):
        fault = cluster.faults.error(35, PRODUCE, times=None)
        with pytest.raises(BrokerError) as raised:
            await producer.send("orders", b"v")
        cluster.faults.remove(fault)

        assert (raised.value.code, raised.value.outcome) == (35, Outcome.NOT_WRITTEN)
        assert len(versions(cluster)) == 1 + 3
        assert (await producer.send("orders", b"w")).offset == 0


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
@in_virtual_time
async def test_any_broker_requests_use_the_remaining_version(api: ApiKey) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        cluster.faults.error(35, Where(api=api))
        cluster.faults.delay(1.0, Where(api=api))
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0.5)
        cluster.model.settings = replace(cluster.model.settings, profile=profile_named("2.1"))
        await starting

        assert (await producer.send("orders", b"v")).offset == 0
        newest, *others = versions(cluster, api)
        assert others
        assert max(others) < newest
        await producer.close()


# Brokers answer, but accept nothing: errors name the reason


def codes_warned_of(caplog: pytest.LogCaptureFixture) -> list[int]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    found = [re.search(r"event='producer_id_refused'.* code=(\d+)", line) for line in lines]
    return [int(match[1]) for match in found if match is not None]


@pytest.mark.parametrize("deadline", [None, 4])
@pytest.mark.parametrize("code", [14, 15, 41, 51, 999])
@in_virtual_time
async def test_error_names_the_code_that_withholds_a_producer_id(
    code: int, deadline: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        cluster.faults.error(code, Where(api=ApiKey.INIT_PRODUCER_ID), times=None)
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=5000, request_timeout_ms=2000) as producer:
            with pytest.raises(DeliveryTimeoutError, match=r"producer an id yet .*InitProducerId") as raised:
                await producer.send("orders", b"1", deadline=deadline)

    error = raised.value.last_broker_error
    assert isinstance(error, BrokerError)
    assert error.code == code
    assert codes_warned_of(caplog) == [code]


@in_virtual_time
async def test_warning_of_a_refused_id_repeats_when_the_code_changes(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal that passes with the second attempt causes no warning."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        init = Where(api=ApiKey.INIT_PRODUCER_ID)
        for code, times in ((15, 1), (41, 3), (51, 3), (14, 1)):
            cluster.faults.error(code, init, times=times)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"1")

    assert codes_warned_of(caplog) == [41, 51]


@in_virtual_time
async def test_error_says_that_brokers_throttle_and_for_how_long() -> None:
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        cluster.faults.throttle(2**31 - 1, Where(api=ApiKey.METADATA), times=None)
        async with Producer(cluster.bootstrap_servers, max_block_ms=5000) as producer:
            with pytest.raises(MetadataTimeoutError, match=r"throttle this client, .* for another 5\d\.\d s"):
                await producer.send("orders", b"1")
            with pytest.raises(MetadataTimeoutError, match=r"throttle this client"):
                await producer.partitions_for("orders")


@in_virtual_time
async def test_error_says_that_the_leader_throttles() -> None:
    times = {"delivery_timeout_ms": 5000, "request_timeout_ms": 2000}
    async with producing(**times) as (cluster, producer):
        cluster.faults.throttle(2**31 - 1, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")

        with pytest.raises(DeliveryTimeoutError, match=r"node 1 could not be sent to .* another 5\d\.\d s"):
            await producer.send("orders", b"2")
        await asyncio.sleep(60)
        await producer.send("orders", b"3")


@in_virtual_time
async def test_reason_of_a_broker_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """In the error and in the log the text cannot control a terminal, or forge a line."""
    async with producing() as (cluster, producer):
        reasons = {0: "\x1b]0;owned\x07\nevent='forged'" + "x" * 30_000}
        cluster.faults.record_errors(reasons, Where(api=ApiKey.PRODUCE))

        with pytest.raises(BrokerError) as raised:
            await producer.send("orders", b"1")

    said = [str(raised.value), *(record.getMessage() for record in caplog.records)]
    assert all(line.isprintable() and len(line) < 2_000 for line in said)
    assert r"\x1b]0;owned\x07\nevent" in said[0]


@in_virtual_time
async def test_size_that_closes_the_connection_is_named() -> None:
    """Azure Event Hubs closes the connection on a larger request, without a word."""
    cluster = FakeCluster(1, topics={"orders": 1}, max_request_bytes=50_000)
    options = {"linger_ms": 0, "request_timeout_ms": 1_000, "delivery_timeout_ms": 5_000, "enable_idempotence": False}
    with LogCapture() as log:
        async with producing(cluster, **options) as (_, producer):
            await producer.send("orders", bytes(10_000))
            with pytest.raises(DeliveryTimeoutError) as caught:
                await producer.send("orders", bytes(60_000))
            await producer.send("orders", bytes(10_000))

    named = re.search(r"a request of (\d+) bytes closed the connection (\d+) times in a row", str(caught.value))
    assert named is not None, str(caught.value)
    assert 60_000 < int(named[1]) < 60_200
    assert int(named[2]) >= 3
    assert f"set max_request_size below {named[1]}" in str(caught.value)
    assert str(caught.value.last_broker_error).startswith("broker 1 at ")
    assert "SASL" not in str(caught.value)
    assert len(log.naming("request_closes_connection")) == 1


@in_virtual_time
async def test_answered_size_is_never_named() -> None:
    """A broker that drops connections, and answers the same requests in between, has no limit."""
    with LogCapture() as log:
        async with producing(linger_ms=0) as (cluster, producer):
            for _ in range(6):
                cluster.faults.drop_connection(Where(api=ApiKey.PRODUCE), times=2)
                await producer.send("orders", bytes(1_000))

    assert len(log.naming("broker_connection_failed")) >= 6
    assert log.naming("request_closes_connection") == []
    assert log.naming("max_request_size") == []
