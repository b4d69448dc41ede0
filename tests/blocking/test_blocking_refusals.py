"""Records that cannot be taken once their call has returned: nothing goes on as if they had been."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

from aioproducer import (
    BlockingProducer,
    IllegalStateError,
    InvalidPartitionError,
    NoTransactionError,
    Outcome,
    TransactionAbortableError,
    TransactionTimeoutError,
    UndeliveredError,
)
from tests.fakes.cluster_elsewhere import ClusterElsewhere
from tests.fakes.log_capture import LogCapture

NO_SUCH_PARTITION = 99


@pytest.fixture
def transactional(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="refusals") as producer:
        yield producer


def committed(cluster: ClusterElsewhere) -> object:
    return cluster.do(lambda fake: [record.value for record in fake.committed_records("orders", 0)])


def test_reported_failure_still_fails_the_commit(transactional: BlockingProducer, cluster: ClusterElsewhere) -> None:
    told: list[object] = []
    transactional.begin_transaction()
    transactional.enqueue("orders", b"taken", partition=0)
    transactional.enqueue(
        "orders", b"not", partition=NO_SUCH_PARTITION, on_delivery=lambda _metadata, error: told.append(type(error))
    )
    with pytest.raises(TransactionAbortableError, match="99"):
        transactional.commit_transaction()
    transactional.abort_transaction()
    with transactional.transaction():
        transactional.enqueue("orders", b"next", partition=0)

    assert told == [InvalidPartitionError]
    assert committed(cluster) == [b"next"]


def test_failure_raised_by_flush_still_fails_the_commit(
    transactional: BlockingProducer, cluster: ClusterElsewhere
) -> None:
    transactional.begin_transaction()
    transactional.enqueue("orders", b"not", partition=NO_SUCH_PARTITION)
    with pytest.raises(UndeliveredError):
        transactional.flush()
    with pytest.raises(TransactionAbortableError):
        transactional.commit_transaction()
    transactional.abort_transaction()

    assert committed(cluster) == []


def test_record_outside_of_any_transaction_spoils_no_other(
    transactional: BlockingProducer, cluster: ClusterElsewhere
) -> None:
    transactional.enqueue("orders", b"outside", partition=0)
    with transactional.transaction():
        transactional.send("orders", b"inside", partition=0)
    with pytest.raises(UndeliveredError, match="1 record was not delivered: no transaction is open") as caught:
        transactional.flush()

    (error,) = caught.value.exceptions
    assert isinstance(error, NoTransactionError)
    assert error.outcome is Outcome.NOT_WRITTEN
    assert committed(cluster) == [b"inside"]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, AssertionError])
def test_serializer_that_raises_anything_fails_its_record_alone(
    cluster: ClusterElsewhere, kind: type[BaseException]
) -> None:
    def serialize(value: object) -> bytes:
        if value == "bad":
            raise kind
        return str(value).encode()

    with BlockingProducer(cluster.bootstrap_servers, value_serializer=serialize) as producer:
        for value in ("a", "bad", "b"):
            producer.enqueue("orders", value, partition=0)
        with pytest.raises(UndeliveredError, match="1 record was not delivered"):
            producer.flush()

    assert cluster.values() == [b"a", b"b"]


@pytest.mark.parametrize("teller", [BlockingProducer.flush, BlockingProducer.close])
def test_failure_whose_callback_raised_stays_unretrieved(
    cluster: ClusterElsewhere, teller: Callable[[BlockingProducer], None]
) -> None:
    def note(*_: object) -> None:
        raise RuntimeError("a defect of the application")

    with LogCapture() as log, BlockingProducer(cluster.bootstrap_servers, value_serializer=bytes.fromhex) as producer:
        producer.enqueue("orders", "no hex", on_delivery=note)
        with pytest.raises(UndeliveredError, match="1 record was not delivered"):
            teller(producer)

    assert len(log.naming("on_delivery_failed")) == 1


def test_ended_handover_is_not_waited_for(cluster: ClusterElsewhere) -> None:
    def cancel_all(_metadata: object, _error: object) -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "aioproducer-handover":
                task.cancel()

    producer = BlockingProducer(cluster.bootstrap_servers, transactional_id="ended").start()
    producer.begin_transaction()
    with contextlib.suppress(IllegalStateError):
        producer.send("orders", b"v", partition=0, on_delivery=cancel_all)
        while True:  # until it is seen
            producer.enqueue("orders", b"v", partition=0)
    for call in (producer.flush, producer.commit_transaction, lambda: producer.send("orders", b"v")):
        with pytest.raises(IllegalStateError, match="has ended"):
            call()
    with contextlib.suppress(UndeliveredError):
        producer.close()

    assert committed(cluster) == []


def test_record_of_an_unknown_topic_delays_no_other(cluster: ClusterElsewhere) -> None:
    """Records behind it are not delayed, in any way of sending; it waits for its own topic alone."""
    order: list[str] = []
    with BlockingProducer(cluster.bootstrap_servers, max_block_ms=3_600_000) as producer:
        typed = producer.topic("nowhere", value=str)
        producer.enqueue("nowhere", b"0", partition=0, on_delivery=lambda *_: order.append("0"))
        typed.enqueue("1", partition=0, on_delivery=lambda *_: order.append("1"))
        for verb in (producer.send, producer.enqueue):
            verb("orders", verb.__name__.encode(), partition=0)
        producer.send("orders", b"last", partition=0)
        told_before = list(order)
        cluster.do(lambda fake: fake.create_topic("nowhere", 1))
        producer.flush()

    assert told_before == []
    assert order == ["0", "1"]
    assert cluster.values() == [b"send", b"enqueue", b"last"]


def test_unknown_topic_fails_the_commit(cluster: ClusterElsewhere) -> None:
    """It stood in line when the commit began, and its call had returned."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="unknown", max_block_ms=1_000) as producer:
        producer.begin_transaction()
        producer.enqueue("orders", b"taken", partition=0)
        producer.enqueue("nowhere", b"not")
        with pytest.raises((TransactionAbortableError, TransactionTimeoutError)):  # both have one second
            producer.commit_transaction()
        producer.abort_transaction()

    assert committed(cluster) == []


@pytest.mark.parametrize("most", [0, 3])
def test_callers_block_when_too_many_records_wait(cluster: ClusterElsewhere, most: int) -> None:
    told: list[int] = []
    with BlockingProducer(cluster.bootstrap_servers, max_block_ms=500, max_waiting_records=most) as producer:
        for number in range(10):
            producer.enqueue("nowhere", b"v", on_delivery=lambda _m, _e, number=number: told.append(number))
        producer.enqueue("orders", b"v", partition=0)
        producer.flush()

    assert told == list(range(10))
    assert cluster.values() == [b"v"]
