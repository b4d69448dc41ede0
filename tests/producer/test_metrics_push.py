"""When metrics are pushed, what ends it, and that records and closes do not notice.

What is pushed: test_otlp.py; to real brokers: tests/contracts/test_pushed_metrics.py.
"""

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from aioproducer import (
    BlockingProducer,
    ConfigurationTypeError,
    IllegalStateError,
    Producer,
    ProducerClosedError,
    ProducerConfig,
)
from aioproducer._producer.metrics_push import DEFAULT_INTERVAL_S, SHORTEST_PAUSE_S, Subscription
from aioproducer._protocol.compression import CompressionType, decompress
from aioproducer._protocol.telemetry_messages import SubscriptionsResponse
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, MetricsSubscription, Where
from tests.fakes.logs import LogCapture
from tests.fakes.otlp import Push, decoded
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time

SUBSCRIBE, PUSH = Where(api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS), Where(api=ApiKey.PUSH_TELEMETRY)
NOTHING = MetricsSubscription(prefixes=(), interval_s=100)
ACKNOWLEDGED = "aioproducer.record.acknowledged.total"


def one_topic(subscription: MetricsSubscription | None, nodes: int = 1) -> FakeCluster:
    options = {} if subscription is None else {"metrics_subscription": subscription}
    return FakeCluster(nodes, topics={"t": 1}, **options)  # type: ignore[arg-type]  # of one option


def producing_on(cluster: FakeCluster) -> Producer:
    return Producer(cluster.bootstrap_servers, enable_metrics_push=True)


def often(*prefixes: str, interval_s: float = 0.1) -> MetricsSubscription:
    return MetricsSubscription(prefixes=prefixes or ("*",), interval_s=interval_s)


def asked_at(cluster: FakeCluster, api: ApiKey = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) -> list[float]:
    return [request.at for request in cluster.requests if request.api is api]


def pushes(cluster: FakeCluster) -> list[Push]:
    return [
        decoded(decompress(CompressionType(each.compression_type), each.data), is_last=each.is_last)
        for each in cluster.model.client_metrics.pushes
    ]


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110  # asks a cluster
        await asyncio.sleep(0.01)


# Subscriptions: nothing is pushed, so the time may be virtual


@in_virtual_time
async def test_nothing_is_asked_for_unless_switched_on() -> None:
    async with producing(one_topic(often())) as (cluster, producer):
        await producer.send("t", b"v")
        await asyncio.sleep(1000)

    assert asked_at(cluster) == []


@in_virtual_time
async def test_broker_that_takes_no_metrics_is_left_alone() -> None:
    with LogCapture() as log:
        async with producing(one_topic(None), enable_metrics_push=True) as (cluster, producer):
            with pytest.raises(TimeoutError, match="within 5 s: the broker does not speak GetTelemetrySubscriptions"):
                await producer.client_instance_id(5)
            await asyncio.sleep(1000)
            await producer.send("t", b"v")

    assert asked_at(cluster) == []
    assert log.naming("event='metrics") == log.naming("event='metrics_push_failed'")  # at level DEBUG


@in_virtual_time
async def test_broker_that_wants_nothing_is_asked_once_an_interval() -> None:
    async with producing(one_topic(NOTHING), enable_metrics_push=True) as (cluster, producer):
        instance_id = await producer.client_instance_id()
        await asyncio.sleep(1050)
        assert await producer.client_instance_id(0) == instance_id

    assert len(instance_id) == 22
    assert [round(later - earlier) for earlier, later in pairwise(asked_at(cluster))] == [100] * 10
    assert pushes(cluster) == []


@pytest.mark.parametrize(
    "code, pause_s",
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, SHORTEST_PAUSE_S),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, SHORTEST_PAUSE_S),
        (ErrorCode.TELEMETRY_TOO_LARGE, DEFAULT_INTERVAL_S),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, DEFAULT_INTERVAL_S),
    ],
)
@in_virtual_time
async def test_refused_question_is_asked_again(code: ErrorCode, pause_s: float) -> None:
    with LogCapture() as log:
        async with one_topic(NOTHING) as cluster:
            cluster.faults.error(code, SUBSCRIBE)
            async with producing_on(cluster):
                await asyncio.sleep(pause_s + 1)

    first, second = asked_at(cluster)
    assert second - first == pytest.approx(pause_s, abs=0.05)
    assert not log.naming("metrics_push_ended")


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, 35, -1, 9999])
@in_virtual_time
async def test_other_refusal_ends_the_questions(code: int) -> None:
    async with one_topic(NOTHING) as cluster:
        cluster.faults.error(code, SUBSCRIBE)
        with LogCapture() as log:
            async with producing_on(cluster) as producer:
                await asyncio.sleep(5000)
                error = await trouble_of(producer)
                await producer.send("t", b"v")

    assert "a broker refused: " in error
    assert len(asked_at(cluster)) == 1
    assert len(log.naming("metrics_push_ended")) == 1


async def trouble_of(producer: Producer, timeout_s: float = 1) -> str:
    with pytest.raises(TimeoutError) as caught:
        await producer.client_instance_id(timeout_s)
    return str(caught.value)


@in_virtual_time
async def test_broker_that_gives_no_id_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_topic(NOTHING) as cluster:
        monkeypatch.setattr(cluster.model.client_metrics, "new_id", lambda: None)
        async with producing_on(cluster) as producer:
            with pytest.raises(TimeoutError, match="gave this client no instance id"):
                await producer.client_instance_id(1000)

    assert len(asked_at(cluster)) == 1


@in_virtual_time
async def test_id_that_never_comes_is_not_waited_for() -> None:
    async with one_topic(NOTHING) as cluster:
        cluster.faults.error(ErrorCode.INVALID_REQUEST, SUBSCRIBE)
        async with producing_on(cluster) as producer:
            early = await asyncio.wait_for(trouble_of(producer, 1000), DEFAULT_INTERVAL_S)  # while the broker is asked
            late = await asyncio.wait_for(trouble_of(producer, 1000), DEFAULT_INTERVAL_S)

    assert early == late
    assert "metrics push has ended: a broker refused: INVALID_REQUEST" in late


@in_virtual_time
async def test_lost_connection_is_no_reason_to_end() -> None:
    """Kafka's client would push no more."""
    async with one_topic(NOTHING) as cluster:
        cluster.faults.drop_connection(SUBSCRIBE)
        async with producing_on(cluster) as producer:
            assert await producer.client_instance_id(DEFAULT_INTERVAL_S + 1)

    assert len(asked_at(cluster)) == 2


def answer(**changed: object) -> SubscriptionsResponse:
    return SubscriptionsResponse(1, 0, 0, bytes(16), 7, (4,), 1000, 10, True, ("*",))._replace(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "offered, chosen",
    [
        ((4, 3), CompressionType.ZSTD),
        ((1, 4), CompressionType.GZIP),
        ((99, 3), CompressionType.LZ4),
        ((99,), CompressionType.NONE),
        ((), CompressionType.NONE),
    ],
)
def test_first_known_codec_is_taken(offered: tuple[int, ...], chosen: CompressionType) -> None:
    assert Subscription.of(answer(compression_types=offered)).compression is chosen


@pytest.mark.parametrize(
    "interval_ms, interval_s",
    [(1000, 1), (0, DEFAULT_INTERVAL_S), (-5, DEFAULT_INTERVAL_S), (1, SHORTEST_PAUSE_S), (2**31 - 1, 2147483.647)],
)
def test_invalid_interval_is_replaced(interval_ms: int, interval_s: float) -> None:
    """No broker makes this client ask without end."""
    assert Subscription.of(answer(push_interval_ms=interval_ms)).interval_s == interval_s


# Pushes: a thread encodes them, which virtual time would not wait for


@pytest.mark.slow
async def test_first_push_comes_after_half_an_interval_or_more() -> None:
    async with producing(one_topic(often(interval_s=0.4)), enable_metrics_push=True) as (cluster, _):
        await until(lambda: pushes(cluster))

    assert cluster.model.client_metrics.pushes[0].at - asked_at(cluster)[0] >= 0.2


@pytest.mark.slow
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
async def test_refused_push_loses_no_count(code: ErrorCode) -> None:
    async with producing(one_topic(often()), enable_metrics_push=True) as (cluster, producer):
        cluster.faults.error(code, PUSH, times=2)
        for _ in range(5):
            await producer.send("t", b"v")
        await until(lambda: len(pushes(cluster)) >= 2)

    assert sum(push.value(ACKNOWLEDGED) for push in pushes(cluster)) == 5
    assert len(asked_at(cluster)) >= 3


@pytest.mark.slow
async def test_push_that_is_too_large_is_reported_and_tried_again() -> None:
    subscription = MetricsSubscription(interval_s=0.1, max_bytes=10)
    with LogCapture() as log:
        async with producing(one_topic(subscription), enable_metrics_push=True) as (cluster, _):
            await until(lambda: len(asked_at(cluster, ApiKey.PUSH_TELEMETRY)) >= 2)

    (warned,) = log.naming("metrics_too_large")
    assert "allowed=10" in warned
    assert pushes(cluster) == []


@pytest.mark.slow
async def test_other_refusal_of_a_push_ends_them() -> None:
    with LogCapture() as log:
        async with producing(one_topic(often()), enable_metrics_push=True) as (cluster, producer):
            cluster.faults.error(ErrorCode.INVALID_RECORD, PUSH)
            await until(lambda: log.naming("metrics_push_ended"))
            await producer.send("t", b"v")
            await asyncio.sleep(0.3)

    assert len(asked_at(cluster, ApiKey.PUSH_TELEMETRY)) == 1


@pytest.mark.slow
async def test_pushes_stay_with_a_broker_until_it_is_gone() -> None:
    async with producing(one_topic(often(), nodes=2), enable_metrics_push=True) as (cluster, producer):
        instance_id = await producer.client_instance_id(20)
        await until(lambda: len(pushes(cluster)) >= 3)
        (before,) = {each.node_id for each in cluster.model.client_metrics.pushes}
        await cluster.kill(before)
        await until(lambda: cluster.model.client_metrics.pushes[-1].node_id != before)
        assert await producer.client_instance_id(0) == instance_id

    assert len({each.instance_id for each in cluster.model.client_metrics.pushes}) == 1


@pytest.mark.slow
async def test_lost_push_is_counted_once_at_most() -> None:
    async with producing(one_topic(often()), enable_metrics_push=True) as (cluster, producer):
        cluster.faults.drop_connection(PUSH, times=1, after_append=True)
        for _ in range(5):
            await producer.send("t", b"v")
        await until(lambda: len(pushes(cluster)) >= 3)

    assert sum(push.value(ACKNOWLEDGED) for push in pushes(cluster)) == 5


@pytest.mark.slow
async def test_close_pushes_what_is_new() -> None:
    async with producing(one_topic(often(interval_s=100)), enable_metrics_push=True) as (cluster, producer):
        await producer.client_instance_id(20)
        await producer.send("t", b"v")

    (last,) = pushes(cluster)
    assert (last.is_last, last.value(ACKNOWLEDGED)) == (True, 1)


@pytest.mark.slow
async def test_pause_that_ends_while_the_producer_closes_ends_no_task() -> None:
    with LogCapture() as log:
        async with producing(one_topic(often()), enable_metrics_push=True) as (cluster, producer):
            await until(lambda: pushes(cluster))
            cluster.faults.stall(PUSH)  # the close waits for longer than an interval
            await producer.send("t", b"v")

    assert not log.naming("producer_failed")


@pytest.mark.slow
async def test_close_without_time_pushes_nothing() -> None:
    async with producing(one_topic(often(interval_s=100)), enable_metrics_push=True) as (cluster, producer):
        await producer.client_instance_id(20)
        await producer.close(0)

    assert pushes(cluster) == []


@pytest.mark.slow
async def test_close_does_not_wait_for_a_broker_that_is_silent() -> None:
    async with producing(one_topic(often(interval_s=100)), enable_metrics_push=True) as (cluster, producer):
        await producer.client_instance_id(20)
        cluster.faults.stall(PUSH)
        await producer.send("t", b"v")

    assert len(cluster.records("t", 0)) == 1


@pytest.mark.slow
async def test_records_pass_while_a_push_is_refused_in_every_way() -> None:
    codes = [code for code in ErrorCode if code]
    async with producing(one_topic(often(), nodes=2), enable_metrics_push=True) as (cluster, producer):
        for code in random.Random(1).sample(codes, 20):
            cluster.faults.error(code, PUSH, times=1)
        for _ in range(100):
            await producer.send("t", b"v")
        await until(lambda: asked_at(cluster, ApiKey.PUSH_TELEMETRY))

    assert len(cluster.records("t", 0)) == 100


# Arguments


@pytest.mark.parametrize("name", ["enable_metrics_push", "enable.metrics.push"])
@pytest.mark.parametrize("value", ["yes", 1, None, [True], b"true"], ids=repr)
def test_option_is_a_bool(name: str, value: object) -> None:
    with pytest.raises(ConfigurationTypeError, match="enable_metrics_push must be True or False"):
        ProducerConfig(bootstrap_servers="h:1", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("text, value", [("true", True), ("false", False), (" TRUE ", True)])
def test_property_is_read_as_kafka_reads_it(text: str, value: object) -> None:
    properties = {"bootstrap.servers": "h:1", "enable.metrics.push": text}

    assert ProducerConfig.from_kafka_properties(properties).enable_metrics_push is value


async def test_id_needs_the_option(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(IllegalStateError, match="enable_metrics_push"):
            await producer.client_instance_id()


@pytest.mark.parametrize("seconds, error", [("1", TypeError), (True, TypeError), (-1, ValueError)], ids=repr)
async def test_timeout_of_the_id_is_checked(seconds: object, error: type[Exception]) -> None:
    async with producing(one_topic(NOTHING), enable_metrics_push=True) as (_, producer):
        with pytest.raises(error, match="timeout"):
            await producer.client_instance_id(seconds)  # type: ignore[arg-type]


async def test_id_of_a_producer_that_closes_meanwhile() -> None:
    async with producing(one_topic(None), enable_metrics_push=True) as (_, producer):
        asking = asyncio.create_task(producer.client_instance_id(60))
        await asyncio.sleep(0)
        await producer.close()

    with pytest.raises(ProducerClosedError):
        await asking
    with pytest.raises(ProducerClosedError):
        await producer.client_instance_id()


def test_blocking_producer_has_an_id_too() -> None:
    with (
        FakeCluster.in_thread(1, metrics_subscription=often(interval_s=100)) as cluster,
        BlockingProducer(cluster.bootstrap_servers, enable_metrics_push=True) as producer,
    ):
        assert len(producer.client_instance_id(20)) == 22
        with pytest.raises(TypeError, match="timeout"):
            producer.client_instance_id("1")  # type: ignore[arg-type]
