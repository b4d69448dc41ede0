"""Options of one topic of a `BlockingProducer`."""

import pytest

from aioproducer import BlockingProducer, ConfigurationError, DeliveryTimeoutError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere

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
