"""Metrics pushed to brokers: the embedded cluster and real Kafka with a plug-in take the same."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster, MetricsSubscription
from tests.contracts.clients import RawClient
from tests.contracts.metrics_receiver import FakeReceiver, MetricsReceiver, new_client_id, real_receiver
from tests.fakes.otlp import Push
from tests.kafka_releases import FAKE

SENT = "org.apache.kafka.producer.record.send.total"
RETRIED = "org.apache.kafka.producer.record.retry.total"
ACKNOWLEDGED = "aioproducer.record.acknowledged.total"
OF_TOPIC = "org.apache.kafka.producer.topic.record.send.total"
SUBSCRIBE = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
REQUIRED = {
    "org.apache.kafka.producer.connection.creation.rate",
    "org.apache.kafka.producer.connection.creation.total",
    "org.apache.kafka.producer.node.request.latency.avg",
    "org.apache.kafka.producer.node.request.latency.max",
    "org.apache.kafka.producer.produce.throttle.time.avg",
    "org.apache.kafka.producer.produce.throttle.time.max",
    "org.apache.kafka.producer.record.queue.time.avg",
    "org.apache.kafka.producer.record.queue.time.max",
}
"""Of a producer, by KIP-714."""


@asynccontextmanager
async def receiver_of_kind(kind: str, folder: Path) -> AsyncIterator[MetricsReceiver]:
    if kind == FAKE:
        async with FakeCluster(1, metrics_subscription=MetricsSubscription()) as cluster:
            yield FakeReceiver(cluster)
        return
    receiver = await real_receiver(kind, folder)
    async with receiver.kafka:
        yield receiver


@pytest.mark.slow
@pytest.mark.parametrize(
    "broker_kind",
    [
        FAKE,
        pytest.param("3.9.1", marks=[pytest.mark.kafka, pytest.mark.nightly]),
        pytest.param("4.4.0", marks=pytest.mark.kafka),
    ],
)
async def test_brokers_take_the_metrics_that_they_want(broker_kind: str, tmp_path: Path) -> None:
    """One test, so that each real broker starts once."""
    async with receiver_of_kind(broker_kind, tmp_path) as receiver:
        await raw_requests_are_answered_alike(receiver)
        await counters_add_up(receiver)
        await only_metrics_with_a_wanted_prefix_are_pushed(receiver)
        await changed_subscription_is_taken_over(receiver)


async def pushes_of(receiver: MetricsReceiver, client_id: str, count: int) -> list[Push]:
    """Return the pushes of a client, once there are some."""
    while len(found := receiver.pushes(client_id)) < count:  # noqa: ASYNC110  # asks a broker
        await asyncio.sleep(0.02)
    return found


async def counters_add_up(receiver: MetricsReceiver) -> None:
    await receiver.subscribe(["*"], 200)
    client_id = new_client_id()

    async with Producer(receiver.bootstrap_servers, client_id=client_id, enable_metrics_push=True) as producer:
        instance_id = await producer.client_instance_id(20)
        for _ in range(3):
            await producer.send("t", b"v", partition=0)
        await pushes_of(receiver, client_id, 2)
        await producer.send("t", b"v", partition=0)
    pushes = receiver.pushes(client_id)

    assert len(instance_id) == 22
    assert sum(push.value(ACKNOWLEDGED) for push in pushes) == 4
    assert sum(push.value(SENT) - push.value(RETRIED) for push in pushes) == 4  # a new topic has no leader at first
    assert sum(push.value(OF_TOPIC, topic="t") for push in pushes if OF_TOPIC in push.points) >= 4
    assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert pushes[-1].names >= REQUIRED
    assert pushes[-1].value("org.apache.kafka.producer.node.request.latency.max", node_id="node-1") > 0
    assert sum(push.histograms["aioproducer.record.size.bytes"].count for push in pushes) == 4
    (before, after) = pushes[-2].points[SENT] + pushes[-1].points[SENT]
    assert (before.is_delta, after.is_delta) == (True, True)
    assert before.at_ns == after.started_ns


async def only_metrics_with_a_wanted_prefix_are_pushed(receiver: MetricsReceiver) -> None:
    await receiver.subscribe(["org.apache.kafka.producer.record.queue.", "aioproducer.txn"], 200)
    client_id = new_client_id()

    async with Producer(receiver.bootstrap_servers, client_id=client_id, enable_metrics_push=True) as producer:
        await producer.send("t", b"v")
        (push, *_) = await pushes_of(receiver, client_id, 1)

    assert "org.apache.kafka.producer.record.queue.time.avg" in push.names
    assert "aioproducer.txn.commit.time.seconds" in push.names
    prefixes = ("org.apache.kafka.producer.record.queue.", "aioproducer.txn")
    assert all(name.startswith(prefixes) for name in push.names)


async def changed_subscription_is_taken_over(receiver: MetricsReceiver) -> None:
    """The next push is refused with an unknown id, and the new subscription asked for."""
    await receiver.subscribe(["org.apache.kafka.producer.record."], 200)
    client_id = new_client_id()

    async with Producer(receiver.bootstrap_servers, client_id=client_id, enable_metrics_push=True) as producer:
        instance_id = await producer.client_instance_id(20)
        await producer.send("t", b"v")
        before = await pushes_of(receiver, client_id, 1)
        await receiver.subscribe([SENT], 100)
        while receiver.pushes(client_id)[-1].names != {SENT}:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.02)
        assert await producer.client_instance_id(0) == instance_id

    assert len(before[0].names) > 1
    assert sum(push.value(SENT) for push in receiver.pushes(client_id)) >= 1


async def raw_requests_are_answered_alike(receiver: MetricsReceiver) -> None:
    """Every refusal that a client can cause; the interval is too long to pass."""
    await receiver.subscribe(["b.", "a."], 200_000)
    client = await RawClient.connect(receiver.bootstrap_servers)
    try:
        first = await client.ask(SUBSCRIBE, 0, client_instance_id=None)
        refusals = await refusals_of(client, first.client_instance_id, first.subscription_id)
    finally:
        await client.close()

    assert int(first.error_code) == 0
    assert sorted(first.requested_metrics) == ["a.", "b."]
    assert first.accepted_compression_types == (4, 3, 1, 2)
    assert (first.push_interval.total_seconds(), first.telemetry_max_bytes) == (200, 1024 * 1024)
    assert first.delta_temporality
    assert refusals == {
        "asked again": 89,
        "no instance id": 42,
        "an unknown subscription": 117,
        "pushed again": 89,  # the refused push counts
        "an unknown codec": 76,
        "after the last push": 42,
        "too large": 118,
        "the last push at any time": 0,
        "asked after the last push": 89,
        "not asked before": 117,
    }


async def refusals_of(client: RawClient, instance_id: uuid.UUID, subscription: int) -> dict[str, int]:
    async def ask(asking: uuid.UUID) -> int:
        return int((await client.ask(SUBSCRIBE, 0, client_instance_id=asking)).error_code)

    async def push(pushing: uuid.UUID | None, subscription: int, **fields: object) -> int:
        sent = {"terminating": False, "compression_type": 0, "metrics": b"", **fields}
        answer = await client.ask(
            ApiKey.PUSH_TELEMETRY, 0, client_instance_id=pushing, subscription_id=subscription, **sent
        )
        return int(answer.error_code)

    other = await client.ask(SUBSCRIBE, 0, client_instance_id=uuid.uuid4())
    other_id, other_subscription = other.client_instance_id, other.subscription_id
    return {
        "asked again": await ask(instance_id),
        "no instance id": await push(None, subscription),
        "an unknown subscription": await push(instance_id, subscription + 1),
        "pushed again": await push(instance_id, subscription),
        "an unknown codec": await push(instance_id, subscription, terminating=True, compression_type=77),
        "after the last push": await push(instance_id, subscription, terminating=True),
        "too large": await push(other_id, other_subscription, metrics=bytes(1024 * 1024 + 1)),
        "the last push at any time": await push(other_id, other_subscription, terminating=True),
        "asked after the last push": await ask(other_id),
        "not asked before": await push(uuid.uuid4(), 5),
    }


async def test_broker_without_a_plug_in_takes_no_metrics(broker: str) -> None:
    async with Producer(broker, enable_metrics_push=True) as producer:
        with pytest.raises(TimeoutError, match="the broker does not speak GetTelemetrySubscriptions at all"):
            await producer.client_instance_id(2)
        await producer.send("t", b"v")
