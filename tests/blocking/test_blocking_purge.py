"""`purge` for threads: what they gave before has ended, also what the loop did not come to."""

import asyncio
import threading

import pytest

from aioproducer import BlockingProducer, IllegalStateError, ProducerClosedError, PurgedError, UndeliveredError
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere

METADATA = Where(api=ApiKey.METADATA)


def give_many(blocking: BlockingProducer, count: int) -> None:
    for _ in range(count):
        blocking.enqueue("orders", bytes(100))


def test_records_of_all_threads_are_purged(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    cluster.do(lambda each: each.faults.stall(METADATA))
    threads = [threading.Thread(target=give_many, args=(blocking, 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    sent = blocking.send_threadsafe("orders", b"v")
    for thread in threads:
        thread.join()

    assert blocking.purge() == 2001

    with pytest.raises(PurgedError):
        sent.result()
    with pytest.raises(UndeliveredError) as caught:
        blocking.flush()
    assert caught.value.count == 2000


def test_queue_flows_again_while_it_is_purged(cluster: ClusterElsewhere) -> None:
    """The producer waits for room, and the records behind it in the queue have not come to it."""
    blocking = BlockingProducer(cluster.bootstrap_servers, max_waiting_records=10, buffer_memory=100_000).start()
    cluster.do(lambda each: each.faults.stall(METADATA))
    give_many(blocking, 1000)

    assert blocking.purge() == 1000

    with pytest.raises(UndeliveredError) as caught:
        blocking.close()
    assert caught.value.count == 1000


def test_records_that_wait_for_their_serializer_are_purged(cluster: ClusterElsewhere) -> None:
    """The first is being serialized, those behind it are in the queue."""

    async def hanging(value: bytes) -> bytes:
        await asyncio.sleep(1e6)
        return value

    with BlockingProducer(cluster.bootstrap_servers, value_serializer=hanging) as blocking:
        deliveries = [blocking.send_threadsafe("orders", b"v") for _ in range(3)]

        assert blocking.purge() == 3

        for delivery in deliveries:
            with pytest.raises(PurgedError):
                delivery.result()


def test_purge_of_a_topic_leaves_the_others(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    refused = blocking.send_threadsafe("unknown", b"v")
    assert blocking.purge("unknown") == 1

    with pytest.raises(PurgedError):
        refused.result()
    blocking.send("orders", b"v")
    assert cluster.values() == [b"v"]
    with pytest.raises(ValueError, match="topic"):
        blocking.purge("")


def test_purge_is_refused_in_a_callback_and_after_the_close(blocking: BlockingProducer) -> None:
    raised: list[Exception] = []

    def purge(*_: object) -> None:
        try:
            blocking.purge()
        except IllegalStateError as error:
            raised.append(error)

    blocking.enqueue("orders", b"v", on_delivery=purge)
    blocking.flush()
    assert len(raised) == 1
    blocking.close()
    with pytest.raises(ProducerClosedError):
        blocking.purge()
