"""Readiness is what brokers answered last, in virtual time; `tests/real_broker` freezes real ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.readiness_probe import Probe
from tests.fakes.virtual_loop import in_virtual_time, now, virtual_loop

TIMEOUT_S = 5.0
EVERYTHING = Where()
ALL_BUT_HANDSHAKES = [Where(api=api) for api in ApiKey if api is not ApiKey.API_VERSIONS]


@asynccontextmanager
async def probed(cluster: FakeCluster) -> AsyncIterator[tuple[Producer, Probe]]:
    options = {"request_timeout_ms": int(TIMEOUT_S * 1000), "delivery_timeout_ms": 600_000}
    async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
        yield producer, Probe(producer)


def silence(cluster: FakeCluster, *, only_work: bool) -> None:
    for where in ALL_BUT_HANDSHAKES if only_work else [EVERYTHING]:
        cluster.faults.stall(where)


@pytest.mark.parametrize("silent", ["wholly", "after handshakes"])
@pytest.mark.parametrize("load", ["idle", "busy"])
@pytest.mark.parametrize("every_s", [0.25, 1.0])
@in_virtual_time
async def test_silent_brokers_are_not_ready_until_the_first_answer(every_s: float, load: str, silent: str) -> None:
    async with FakeCluster(topics={"orders": 3}) as cluster, probed(cluster) as (producer, probe):
        await producer.send("orders", b"v")
        await probe.ask_for(5, every_s)
        silence(cluster, only_work=silent != "wholly")
        silent_at = now()
        if load == "busy":
            for partition in range(3):
                await producer.enqueue("orders", b"v", partition=partition)
        await probe.ask_for(60, every_s)
        (_, first), (left_at, second) = probe.changes
        assert (first, second) == (200, 503)
        assert left_at - silent_at <= TIMEOUT_S + 1
        assert str(probe.last["reason"]).startswith(("no broker has answered for ", "no broker can be reached: "))

        cluster.faults.clear()
        async with asyncio.timeout(60):
            while await probe.ask() != 200:  # noqa: ASYNC110  # a probe asks again
                await asyncio.sleep(every_s)
        await probe.ask_for(30, every_s)

    assert [status for _, status in probe.changes] == [200, 503, 200]


@in_virtual_time
async def test_peers_that_accept_and_say_nothing_are_not_ready() -> None:
    """As behind a relay whose brokers are gone: each connection is taken, and says nothing."""
    loop = virtual_loop()
    async with FakeCluster() as cluster, probed(cluster) as (_, probe):
        await probe.ask_for(2)
        for node_id, address in zip((1, 2, 3), list(loop.servers), strict=True):
            await cluster.kill(node_id)
            loop.servers[address] = asyncio.Protocol
        silent_at = now()
        await probe.ask_for(60)

    (_, _), (left_at, status) = probe.changes
    assert status == 503
    assert left_at - silent_at <= TIMEOUT_S + 1


@pytest.mark.parametrize("every_s", [1.0, 700.0], ids=["often", "seldom"])
@in_virtual_time
async def test_idle_producer_stays_ready(every_s: float) -> None:
    """Also when its connections were closed for idleness between two probes."""
    async with FakeCluster() as cluster, probed(cluster) as (_, probe):
        await probe.ask_for(100 * every_s, every_s)

    assert [status for _, status in probe.changes] == [200]


@in_virtual_time
async def test_silent_broker_beside_others_leaves_ready() -> None:
    async with FakeCluster(topics={"orders": 3}) as cluster, probed(cluster) as (producer, probe):
        cluster.faults.stall(Where(node_id=1))
        sending = [asyncio.ensure_future(producer.send("orders", b"v", partition=each)) for each in range(3)]
        await probe.ask_for(60)
        cluster.faults.clear()
        await asyncio.gather(*sending)

    assert [status for _, status in probe.changes] == [200]


@in_virtual_time
async def test_brokers_that_answer_slowly_are_ready() -> None:
    async with FakeCluster() as cluster, probed(cluster) as (_, probe):
        cluster.faults.delay(TIMEOUT_S * 0.8, EVERYTHING, times=None)
        await probe.ask_for(100)

    assert [status for _, status in probe.changes] == [200]


@in_virtual_time
async def test_refusal_is_an_answer() -> None:
    async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster, probed(cluster) as (producer, probe):
        cluster.faults.error(ErrorCode.NOT_ENOUGH_REPLICAS, Where(api=ApiKey.PRODUCE), times=None)
        sending = asyncio.ensure_future(producer.send("orders", b"v"))
        await probe.ask_for(60)
        cluster.faults.clear()
        await sending

    assert [status for _, status in probe.changes] == [200]


@in_virtual_time
async def test_probes_ask_brokers_seldom_and_not_under_load() -> None:
    async with FakeCluster(topics={"orders": 1}) as cluster, probed(cluster) as (producer, probe):

        def requests() -> int:
            return producer.statistics().requests_sent

        await producer.send("orders", b"v")
        before = requests()
        await probe.ask_for(10, every_s=0.01)
        assert 10 <= requests() - before <= 10 * 4

        before, sent = requests(), 0
        end = now() + 10
        while now() < end:
            await producer.send("orders", b"v")
            sent += 1
            await probe.ask()
            await asyncio.sleep(0.1)
        assert requests() - before == sent


@in_virtual_time
async def test_health_says_what_readiness_says() -> None:
    """Outside a web framework, too."""
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, request_timeout_ms=2_000, delivery_timeout_ms=9_000)
        before = producer.health()
        async with producer:
            running = producer.health()
            cluster.faults.stall(EVERYTHING)
            await asyncio.sleep(1)  # virtual; the first look asks
            producer.health()
            await asyncio.sleep(3)
            silent = producer.health()
            await producer.close(0)
        after = producer.health()

    assert (before.is_ready, running.is_ready, silent.is_ready, after.is_ready) == (False, True, False, False)
    assert running.reason == ""
    assert silent.reason.startswith("no broker ")
    assert all(each.reason for each in (before, silent, after))
