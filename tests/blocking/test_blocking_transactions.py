"""Transactions of a `BlockingProducer`, and records that cannot be taken once their call has returned."""

import asyncio
import contextlib
import threading
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
from aioproducer.testing import ApiKey, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import ClusterElsewhere

END_TXN = Where(api=ApiKey.END_TXN)


def committed(cluster: ClusterElsewhere) -> list[bytes | None]:
    """Return the read_committed records of the first partition."""
    found = cluster.do(lambda fake: [record.value for record in fake.committed_records("orders", 0)])
    assert isinstance(found, list)
    return found


def test_block_commits_at_its_end_and_aborts_on_an_exception(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:
        with producer.transaction() as txn:
            assert txn is producer
            producer.enqueue("orders", b"a", partition=0)
            producer.send("orders", b"b", partition=0)
            producer.send_offsets({("orders", 0): 1}, "readers")
        with pytest.raises(LookupError), producer.transaction():  # noqa: PT012  # as above
            producer.enqueue("orders", b"never", partition=0)
            raise LookupError
        with producer.transaction():
            producer.send_many("orders", [b"c", b"d"], partition=0)

    assert committed(cluster) == [b"a", b"b", b"c", b"d"]


def test_verbs_of_java_do_the_same(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:
        producer.init_transactions()
        for value in (b"a", b"b", b"c"):
            producer.begin_transaction()
            producer.enqueue("orders", value, partition=0)
            (producer.abort_transaction if value == b"b" else producer.commit_transaction)()

    assert committed(cluster) == [b"a", b"c"]


def test_record_that_could_not_be_taken_fails_the_commit(cluster: ClusterElsewhere) -> None:
    """Its call had returned when it was found; nothing of the transaction is seen."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b", value_serializer=_serialize) as producer:
        producer.begin_transaction()
        producer.enqueue("orders", "good", partition=0)
        producer.enqueue("orders", "bad", partition=0)
        for _ in range(2):
            with pytest.raises(TransactionAbortableError, match="bad"):
                producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.enqueue("orders", "good", partition=0)

    assert committed(cluster) == [b"good"]


def test_record_that_failed_unseen_fails_the_commit(cluster: ClusterElsewhere) -> None:
    """As with `Producer`."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:
        cluster.do(lambda fake: fake.faults.error(29, Where(api=ApiKey.PRODUCE)))
        with pytest.raises(TransactionAbortableError), producer.transaction():
            producer.enqueue("orders", b"refused", partition=0)
        with producer.transaction():
            producer.enqueue("orders", b"next", partition=0)

    assert committed(cluster) == [b"next"]


def test_threads_take_turns(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:

        def work(number: int) -> None:
            with producer.transaction():
                for _ in range(3):
                    producer.send("orders", b"%d" % number, partition=0)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    values = committed(cluster)
    assert len(values) == 12
    assert all(len(set(values[first : first + 3])) == 1 for first in range(0, 12, 3))


def test_calls_outside_a_transaction_are_refused(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:
        with pytest.raises(NoTransactionError):
            producer.send("orders", b"outside", partition=0)
        for verb in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(IllegalStateError):
                verb()
        with (
            producer.transaction(),
            pytest.raises(IllegalStateError, match="this thread has a transaction open"),
            producer.transaction(),
        ):
            pytest.fail("nested")
        with producer.transaction():
            producer.send("orders", b"inside", partition=0)

    assert committed(cluster) == [b"inside"]


@pytest.mark.slow  # most of `max_block_ms` is there for busy machines
def test_block_within_the_threads_own_transaction_is_refused(cluster: ClusterElsewhere) -> None:
    """Only this thread could end it: waiting for that would be for all of `max_block_ms`."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b", max_block_ms=2_000) as producer:
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="this thread has a transaction open already"):
            producer.transaction().__enter__()
        producer.enqueue("orders", b"a", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.enqueue("orders", b"b", partition=0)
            producer.commit_transaction()
            producer.begin_transaction()
            producer.enqueue("orders", b"c", partition=0)

    assert committed(cluster) == [b"a", b"b", b"c"]


def test_commit_that_times_out_ends_in_the_background(cluster: ClusterElsewhere) -> None:
    """Well or not: the next block waits for that, and has its turn then; it never had one again."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b", max_block_ms=5000) as producer:
        for code in (0, 120):
            stalled = cluster.do(lambda fake: fake.faults.stall(END_TXN))
            with pytest.raises(TransactionTimeoutError), producer.transaction():
                producer.send("orders", b"%d" % code, partition=0)
            if code:
                cluster.do(lambda fake: fake.faults.error(120, END_TXN))
            cluster.do(lambda fake, fault=stalled: fake.faults.remove(fault))  # type: ignore[misc]
            with producer.transaction():
                producer.send("orders", b"next", partition=0)

    assert committed(cluster) == [b"0", b"next", b"next"]


def _serialize(value: object) -> bytes:
    if value == "bad":
        raise ValueError("bad")
    assert isinstance(value, str)
    return value.encode()


def test_prepared_transaction_outlives_the_producer(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="b") as producer:
        with producer.transaction():
            producer.enqueue("orders", b"a", partition=0)
            with pytest.raises(IllegalStateError, match="end of the transaction"):
                producer.prepare_transaction()
        producer.begin_transaction()
        producer.enqueue("orders", b"b", partition=0)
        prepared = producer.prepare_transaction()
        assert prepared == producer.prepare_transaction()
        with pytest.raises(NoTransactionError, match="is prepared"):
            producer.send("orders", b"late", partition=0).result()

    assert prepared.transactional_id == "b"
    assert committed(cluster) == [b"a"]
    ends = cluster.do(lambda fake: [seen.api for seen in fake.requests].count(ApiKey.END_TXN))
    assert ends == 1


NO_SUCH_PARTITION = 99


@pytest.fixture
def transactional(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="refusals") as producer:
        yield producer


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
