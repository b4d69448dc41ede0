"""A relay as load balancers, the inspector and Prometheus see it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer import Producer, ProducerRecord
from aioproducer.integrations.asgi import inspector, lifespan, readiness
from aioproducer.integrations.opentelemetry import observe_relays
from aioproducer.integrations.prometheus import ProducerCollector
from aioproducer.outbox import Outbox, OutboxError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.asgi_server import client_of
from tests.outbox.test_relay import relaying, until, write

pytestmark = pytest.mark.timing

NAME = "outbox kafka_outbox"


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}) as running:
        yield running


async def test_relay_is_ready_until_its_table_is_gone(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with relaying(outbox, engine, kafka) as relay, client_of(readiness(relay)) as client:
        await until(lambda: relay.statistics().is_working and relay.health().is_ready)
        good = await client.get("/")
        async with engine.begin() as connection:
            await connection.execute(text("DROP TABLE kafka_outbox"))
        await until(lambda: not relay.health().is_ready)
        bad = await client.get("/")
    async with client_of(readiness(relay)) as client:
        closed = await client.get("/")

    (row,) = good.json()["producers"]
    assert (good.status_code, row["client_id"], row["state"], row["reason"]) == (200, NAME, "works", "")
    (row,) = bad.json()["producers"]
    assert (bad.status_code, row["state"]) == (503, "sends nothing")
    assert "kafka_outbox" in row["reason"]
    assert closed.json()["producers"][0]["reason"] == "the relay is closed"


async def test_application_starts_and_closes_a_relay(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"v"))
    producer, relay = Producer(kafka.bootstrap_servers), outbox.relay(engine, kafka.bootstrap_servers)

    async with lifespan(relay, producer, wait=False)(None):
        await until(lambda: relay.statistics().rows_sent == 1)

    assert relay.health().reason == "the relay is closed"
    assert producer.explain().state == "closed"
    with pytest.raises(OutboxError, match="is closed: make another one"):
        await relay.start()


async def test_inspector_shows_relays_beside_each_other(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"v"))
    async with relaying(outbox, engine, kafka) as first:
        await until(lambda: first.statistics().rows_sent == 1)
        async with relaying(outbox, engine, kafka) as second, client_of(inspector(first, second)) as client:
            await until(lambda: second.health().is_ready)
            answer = await client.get("/?state")

    works, stands_by = answer.json()["producers"]
    assert (works["client_id"], works["state"], works["note"]) == (NAME, "works", "")
    assert works["summary"].startswith("works: 1 row sent")
    assert (stands_by["state"], stands_by["summary"]) == ("stands by", "another relay works; this one stands by")


async def test_prometheus_reads_a_relay(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    registry = CollectorRegistry()
    await write(engine, outbox, ProducerRecord("orders", b"v"), ProducerRecord("orders", b"w"))
    async with relaying(outbox, engine, kafka, lease_s=0.3) as relay:
        ProducerCollector(relay, registry=registry)
        await until(lambda: relay.statistics().rows_sent == 2 and relay.statistics().rows_waiting == 0)
        names = ("rows_sent_total", "batches_sent_total", "rows_waiting", "rows_parked_total", "is_working")
        found = {
            name: registry.get_sample_value(f"kafka_producer_outbox_{name}", {"client_id": NAME}) for name in names
        }

    assert list(found.values()) == [2, 1, 0, 0, 1]


def observed(reader: InMemoryMetricReader) -> dict[str, object]:
    """By the part of the name that differs."""
    found = reader.get_metrics_data()
    assert found is not None
    return {
        metric.name.removeprefix("aioproducer.outbox."): point.value
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if point.attributes == {"aioproducer.outbox.name": NAME}
    }


async def test_opentelemetry_reads_a_relay(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    await write(engine, outbox, ProducerRecord("orders", b"v"), ProducerRecord("orders", b"w"))
    async with relaying(outbox, engine, kafka, lease_s=0.3) as relay:
        observe_relays(relay, meter_provider=provider)
        await until(lambda: relay.statistics().rows_sent == 2 and relay.statistics().rows_waiting == 0)
        found = observed(reader)
    provider.shutdown()

    assert found == {
        "rows.sent": 2,
        "batches.sent": 1,
        "rows.parked": 0,
        "retries": 0,
        "rows.waiting": 0,
        "relay.working": 1,
    }


async def test_opentelemetry_tells_relays_of_one_name_apart(engine: AsyncEngine, outbox: Outbox) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    relays = [outbox.relay(engine, "127.0.0.1:1") for _ in range(3)]
    observe_relays(*relays, meter_provider=provider)
    data = reader.get_metrics_data()
    provider.shutdown()

    assert data is not None
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [dict(point.attributes or {}) for point in points] == [
        {"aioproducer.outbox.name": name} for name in (NAME, f"{NAME}-2", f"{NAME}-3")
    ]


def test_only_relays_are_observed() -> None:
    with pytest.raises(TypeError, match=r"relays\[0\] must be a Relay, not Producer"):
        observe_relays(Producer("localhost:9092"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one Relay is needed"):
        observe_relays()


async def test_relay_whose_task_was_cancelled_says_so(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: relay.health().is_ready)
        (task,) = (each for each in asyncio.all_tasks() if each.get_name().startswith("aioproducer-outbox"))
        task.cancel()
        await asyncio.wait([task])
        health, explained, statistics = relay.health(), relay.explain(), relay.statistics()

    assert health == (False, "the task of the relay was cancelled; make another one with `outbox.relay`")
    assert explained == f"nothing is sent: {health.reason}"
    assert (statistics.is_working, statistics.trouble) == (False, health.reason)


async def test_relay_of_a_closed_event_loop_says_so(outbox: Outbox) -> None:
    engine = create_async_engine("postgresql+asyncpg://127.0.0.1:1/none")  # where no connection is left behind
    relay = outbox.relay(engine, "127.0.0.1:1")
    await asyncio.to_thread(lambda: asyncio.run(relay.start()))

    assert relay.health().reason.startswith("the event loop on which the relay was started is closed")
    await relay.close()
    assert relay.health().reason == "the relay is closed"


async def test_relay_of_another_event_loop_is_closed_there(engine: AsyncEngine, outbox: Outbox) -> None:
    async with outbox.relay(engine, "127.0.0.1:1") as relay:
        with pytest.raises(OutboxError, match="was started on another event loop: close it there"):
            await asyncio.to_thread(lambda: asyncio.run(relay.close()))
        assert "is closed" not in relay.health().reason


async def test_relay_that_has_just_started_says_so(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with relaying(outbox, engine, kafka) as relay, client_of(inspector(relay)) as client:
        explained, health = relay.explain(), relay.health()
        (shown,) = (await client.get("/?state")).json()["producers"]
        await until(lambda: relay.statistics().is_working)

    assert explained == "starts: waits for the database to say whether another relay works"
    assert health == (False, explained)
    assert (shown["state"], shown["summary"]) == ("sends nothing", explained)


async def test_health_says_why_a_batch_could_not_be_handed_over(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """And not that its other rows were aborted with it."""
    await write(engine, outbox, *(ProducerRecord("orders", bytes(10_000), b"k") for _ in range(200)))
    slow = kafka.faults.delay(5.0, Where(api=ApiKey.PRODUCE))
    async with relaying(outbox, engine, kafka, buffer_memory=1_048_576, max_block_ms=500) as relay:
        await until(lambda: not relay.health().is_ready and relay.health().reason != "")
        await until(lambda: "raise buffer_memory or max_block_ms" in relay.health().reason)
        kafka.faults.remove(slow)
