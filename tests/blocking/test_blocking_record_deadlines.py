"""A deadline for one record, from the call of a thread on."""

import threading
from collections.abc import Iterator

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
from tests.fakes.producing import ClusterElsewhere
from tests.produced import until_refused

METADATA = Where(api=ApiKey.METADATA)


@pytest.fixture
def held_up(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    """The producer has one record, waits with the second for room, and two others are in the queue."""
    blocking = BlockingProducer(cluster.bootstrap_servers, max_waiting_records=1).start()
    cluster.do(lambda each: each.faults.stall(METADATA))
    for value in (b"1", b"2", b"3", b"4"):
        blocking.enqueue("orders", value, partition=0)
    yield blocking
    blocking.close(0)


def go_on(cluster: ClusterElsewhere) -> None:
    cluster.do(lambda each: each.faults.clear())


@pytest.mark.parametrize("deadline", ["1", True, 0, -1, 1000])
def test_bad_deadline_is_refused_by_the_call_or_its_future(blocking: BlockingProducer, deadline: float) -> None:
    orders = blocking.topic("orders", value=str)
    kind = ValueError if type(deadline) is int else TypeError
    for call in (
        lambda: blocking.send("orders", b"v", deadline=deadline),
        lambda: blocking.send_threadsafe("orders", b"v", deadline=deadline).result(),
        lambda: blocking.enqueue("orders", b"v", deadline=deadline),
        lambda: orders.send("v", deadline=deadline),
        lambda: orders.send_threadsafe("v", deadline=deadline).result(),
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

    with pytest.raises(MetadataTimeoutError, match=r"after deadline=0\.2: ") as caught:
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


def test_record_ends_at_its_deadline_while_the_queue_is_held_up(
    held_up: BlockingProducer, cluster: ClusterElsewhere
) -> None:
    """The others are written in their order afterwards, also those that were sent after it."""
    told: list[KafkaError | None] = []
    has_ended = threading.Event()

    def tell(_: object, error: KafkaError | None) -> None:
        told.append(error)
        has_ended.set()

    held_up.enqueue("orders", b"not in time", partition=0, deadline=60)
    held_up.enqueue("orders", b"overdue", partition=0, deadline=0.1, on_delivery=tell)
    held_up.topic("orders", value=str).enqueue("overdue", partition=0, deadline=0.1)
    held_up.enqueue("orders", b"5", partition=0)
    with pytest.raises(DeliveryTimeoutError, match=r"deadline=0\.1 was over before .* earlier records wait") as caught:
        held_up.send("orders", b"overdue", partition=0, deadline=0.1)
    assert has_ended.wait(60)
    assert held_up._queue.records == 4  # noqa: SLF001  # the two above and those without a near deadline

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert isinstance(told[0], DeliveryTimeoutError)
    assert "deadline=0.1 was over before" in str(told[0])
    assert told[0].outcome is Outcome.NOT_WRITTEN
    go_on(cluster)
    with pytest.raises(UndeliveredError, match="1 record"):  # the one without on_delivery
        held_up.flush()
    assert cluster.values() == [b"1", b"2", b"3", b"4", b"not in time", b"5"]
    assert len(told) == 1


def test_each_record_of_a_held_up_queue_ends_at_its_own_deadline(
    held_up: BlockingProducer, cluster: ClusterElsewhere
) -> None:
    """Also one behind a record that was overdue before it, and one whose deadline is nearer than the one in front."""
    ended: list[str] = []
    all_ended = threading.Event()

    def enqueue(name: str, deadline: float) -> None:
        def tell(_: object, error: KafkaError | None) -> None:
            assert isinstance(error, DeliveryTimeoutError)
            ended.append(name)
            if len(ended) == 4:
                all_ended.set()

        held_up.enqueue("orders", name.encode(), partition=0, deadline=deadline, on_delivery=tell)

    for name, deadline in (("second", 0.6), ("first", 0.1), ("third", 1.2), ("fourth", 1.8)):
        enqueue(name, deadline)
    assert all_ended.wait(60)

    assert ended == ["first", "second", "third", "fourth"]
    go_on(cluster)
    held_up.flush()
    assert cluster.values() == [b"1", b"2", b"3", b"4"]


def test_overdue_record_of_a_delayed_queue_fails_the_commit(
    cluster: ClusterElsewhere,
) -> None:
    has_ended = threading.Event()
    with BlockingProducer(cluster.bootstrap_servers, max_waiting_records=1, transactional_id="t") as blocking:
        blocking.begin_transaction()
        cluster.do(lambda each: each.faults.stall(METADATA))
        for value in (b"1", b"2", b"3"):
            blocking.enqueue("orders", value)
        blocking.enqueue("orders", b"overdue", deadline=0.1, on_delivery=lambda *_: has_ended.set())
        assert has_ended.wait(60)
        go_on(cluster)

        with pytest.raises(KafkaError, match=r"deadline=0\.1 was over"):
            blocking.commit_transaction()
        blocking.abort_transaction()
