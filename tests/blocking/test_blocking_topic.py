"""A topic whose keys and values have types, for threads: the cluster runs on the test's loop, the calls beside it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from aioproducer import BlockingProducer, BlockingTopic, ConfigurationError, DeliveryTimeoutError, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import ClusterElsewhere
from tests.produced import values

ResultT = TypeVar("ResultT")


@dataclass
class Order:
    id: int


async def on_thread(broker: FakeCluster, work: Callable[[BlockingProducer], ResultT]) -> ResultT:
    def run() -> ResultT:
        with BlockingProducer(broker.bootstrap_servers) as producer:
            return work(producer)

    return await asyncio.to_thread(run)


async def test_every_verb_sends_in_the_order_of_the_calls(one_broker: FakeCluster) -> None:
    def work(producer: BlockingProducer) -> tuple[int, int, int, list[int]]:
        orders = producer.topic("orders", key=str, value=Order)
        orders.enqueue(Order(0), partition=0)
        first = orders.send_threadsafe(Order(1), partition=0)
        last = orders.send(Order(2), partition=0, key="k", headers=[("h", b"1")], timestamp=5)
        result = orders.send_many([Order(3), Order(4)], partition=0, keys=["a", "b"])
        return first.result(5).offset, last.offset, result.delivered, orders.partitions_for()

    offsets = await on_thread(one_broker, work)

    assert offsets == (1, 2, 2, [0, 1, 2])
    assert values(one_broker, "orders") == [b'{"id":%d}' % number for number in range(5)]


async def test_wrong_type_is_an_error_of_the_call(one_broker: FakeCluster) -> None:
    def work(producer: BlockingProducer) -> None:
        orders: BlockingTopic[bytes, Order] = producer.topic("orders", value=Order)
        with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
            orders.send({"id": 7})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
            orders.enqueue({"id": 7})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^key for topic 'orders' must be bytes or None, not str$"):
            orders.enqueue(Order(1), key="k")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition must be an int"):
            orders.enqueue(Order(1), partition=0.0)  # type: ignore[arg-type]
        orders.send(Order(8))

    await on_thread(one_broker, work)

    assert values(one_broker, "orders") == [b'{"id":8}']


async def test_partitions_do_not_wait_behind_records(one_broker: FakeCluster) -> None:
    told: list[object] = []

    def work() -> list[object]:
        producer = BlockingProducer(one_broker.bootstrap_servers, max_block_ms=1_000, max_waiting_records=0).start()
        producer.enqueue("nowhere", b"holds back what is behind it", on_delivery=lambda *_: told.append("told"))
        partitions = producer.topic("orders", value=str).partitions_for()
        told_before = list(told)
        producer.close(0)
        return [partitions, told_before]

    assert await asyncio.to_thread(work) == [[0, 1, 2], []]
    assert told == ["told"]


async def test_flush_raises_the_error_of_a_serializer(one_broker: FakeCluster) -> None:
    def work(producer: BlockingProducer) -> None:
        orders = producer.topic("orders", value=dict)
        orders.enqueue({"z": 1j})
        with pytest.raises(UndeliveredError, match="complex has no JSON"):
            producer.flush()

    await on_thread(one_broker, work)


def test_handle_may_be_made_before_the_start(cluster: ClusterElsewhere) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers)
    orders = producer.topic("orders", key=str, value=Order)

    assert orders.send(Order(1)).offset == 0
    producer.close()


GZIP, ZSTD = 1, 4


def codecs(cluster: FakeCluster) -> list[int]:
    view = cluster.model.topics.named("orders")
    assert view is not None
    return [batch.attributes & 7 for partition in view.partitions for batch in partition.log.batches()]


def test_every_verb_uses_the_options_of_the_topic(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, compression_type="gzip") as blocking:
        orders = blocking.topic("orders", value=bytes, compression_type="zstd")
        orders.send(b"v" * 500, partition=0)
        orders.enqueue(b"v" * 500, partition=0)
        blocking.flush()
        blocking.send("orders", b"v" * 500, partition=0)
        blocking.enqueue("orders", b"v" * 500, partition=0)
        blocking.flush()
        blocking.send_many("orders", [b"v" * 500], partition=0)

    assert set(cluster.do(codecs)) == {ZSTD}  # type: ignore[call-overload]  # a list


def test_topic_delivery_timeout_limits_records_and_deadlines(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, request_timeout_ms=100) as blocking:
        orders = blocking.topic("orders", value=bytes, delivery_timeout_ms=300)
        orders.send(b"v", partition=0)
        cluster.do(lambda broker: broker.faults.stall(Where(api=ApiKey.PRODUCE)))
        for send in (orders.send, lambda value, **options: blocking.send("orders", value, **options)):
            with pytest.raises(ValueError, match=r"at most 0\.3 s"):
                send(b"v", deadline=1)
            with pytest.raises(DeliveryTimeoutError, match="delivery_timeout_ms=300"):
                send(b"v", partition=0)
        cluster.do(lambda broker: broker.faults.clear())


def test_limits_of_calls_follow_the_longest_delivery_timeout(blocking: BlockingProducer) -> None:
    before = blocking._longest_delivery_s  # noqa: SLF001  # the time itself would be long to wait for
    blocking.topic("orders", value=bytes, delivery_timeout_ms=500_000)

    assert (before, blocking._longest_delivery_s) == (120, 500)  # noqa: SLF001  # as above


def test_bad_options_are_refused_at_the_call(blocking: BlockingProducer) -> None:
    with pytest.raises(TypeError, match="topic 'orders': linger_ms must be"):
        blocking.topic("orders", value=bytes, linger_ms="5")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="topic 'orders': compression_type must be"):
        blocking.topic("orders", value=bytes, compression_type="brotli")  # type: ignore[call-overload]
    blocking.topic("orders", value=bytes, linger_ms=5)
    with pytest.raises(ConfigurationError, match="a topic gets its options once"):
        blocking.topic("orders", value=bytes, linger_ms=6)
