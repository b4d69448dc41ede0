"""A deadline for one record, from the call of a thread on."""

import threading

import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
    UndeliveredError,
)
from aioproducer.blocking._handoff_queue import QUEUE_RECORDS
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere
from tests.produced import until_refused

METADATA = Where(api=ApiKey.METADATA)


@pytest.mark.parametrize("deadline", ["1", True, 0, -1, 1000])
def test_bad_deadline_is_refused_at_the_call(blocking: BlockingProducer, deadline: float) -> None:
    orders = blocking.topic("orders", value=str)
    kind = ValueError if type(deadline) is int else TypeError
    for call in (
        lambda: blocking.send("orders", b"v", deadline=deadline),
        lambda: blocking.send_threadsafe("orders", b"v", deadline=deadline),
        lambda: blocking.enqueue("orders", b"v", deadline=deadline),
        lambda: orders.send("v", deadline=deadline),
        lambda: orders.send_threadsafe("v", deadline=deadline),
        lambda: orders.enqueue("v", deadline=deadline),
    ):
        with pytest.raises(kind, match="deadline"):
            call()


def test_record_in_time_is_written(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    orders = blocking.topic("orders", value=str)
    blocking.send("orders", b"1", partition=0, deadline=60)
    blocking.send_threadsafe("orders", b"2", partition=0, deadline=60).result()
    orders.send("3", partition=0, deadline=60)
    orders.enqueue("4", partition=0, deadline=60)
    blocking.enqueue("orders", b"5", partition=0, deadline=60)
    blocking.flush()

    assert cluster.values() == [b"1", b"2", b"3", b"4", b"5"]


def test_record_ends_at_its_deadline(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    cluster.do(lambda faults: faults.faults.stall(METADATA))
    told: list[KafkaError | None] = []

    with pytest.raises(MetadataTimeoutError, match=r"after deadline=0\.\d+: ") as caught:
        blocking.send("orders", b"v", deadline=0.2)
    blocking.enqueue("orders", b"v", deadline=0.2, on_delivery=lambda _, error: told.append(error))
    blocking.enqueue("orders", b"v", deadline=0.2)
    with pytest.raises(UndeliveredError, match="1 record"):
        blocking.flush()

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert isinstance(told[0], MetadataTimeoutError)


def test_record_that_the_loop_did_not_come_to_ends_too(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    """A callback blocks the loop until the deadlines are over."""
    go_on, is_inside = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        is_inside.set()
        go_on.wait(60)

    blocking.send_threadsafe("orders", b"first", on_delivery=block)
    assert is_inside.wait(60)
    future = blocking.send_threadsafe("orders", b"v", deadline=0.1)
    for _ in range(QUEUE_RECORDS - 1):
        blocking.enqueue("orders", b"v", deadline=0.1)
    _, error = until_refused(lambda: blocking.enqueue("orders", b"v", deadline=0.3), BufferTimeoutError)
    assert "no room for the record within deadline=0.3" in str(error)
    go_on.set()

    with pytest.raises(DeliveryTimeoutError, match=r"deadline=0\.1 was over before the event loop came") as caught:
        future.result()
    assert caught.value.outcome is Outcome.NOT_WRITTEN
    with pytest.raises(UndeliveredError):
        blocking.flush()
    assert cluster.values() == [b"first"]
