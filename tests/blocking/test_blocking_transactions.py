"""Transactions of a `BlockingProducer`, from scripts and threads."""

import threading
from collections.abc import Iterator

import pytest

from aioproducer import (
    BlockingProducer,
    IllegalStateError,
    NoTransactionError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere, cluster_elsewhere

END_TXN = Where(api=ApiKey.END_TXN)


@pytest.fixture
def elsewhere() -> Iterator[ClusterElsewhere]:
    with cluster_elsewhere() as cluster:
        yield cluster


def committed(elsewhere: ClusterElsewhere) -> list[bytes | None]:
    """Return the read_committed records of the first partition."""
    found = elsewhere.do(lambda cluster: [record.value for record in cluster.committed_records("orders", 0)])
    assert isinstance(found, list)
    return found


def test_block_commits_at_its_end_and_aborts_on_an_exception(elsewhere: ClusterElsewhere) -> None:
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:
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

    assert committed(elsewhere) == [b"a", b"b", b"c", b"d"]


def test_verbs_of_java_do_the_same(elsewhere: ClusterElsewhere) -> None:
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:
        producer.init_transactions()
        for value in (b"a", b"b", b"c"):
            producer.begin_transaction()
            producer.enqueue("orders", value, partition=0)
            (producer.abort_transaction if value == b"b" else producer.commit_transaction)()

    assert committed(elsewhere) == [b"a", b"c"]


def test_record_that_could_not_be_taken_fails_the_commit(elsewhere: ClusterElsewhere) -> None:
    """Its call had returned when it was found; nothing of the transaction is seen."""
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b", value_serializer=_serialize) as producer:
        producer.begin_transaction()
        producer.enqueue("orders", "good", partition=0)
        producer.enqueue("orders", "bad", partition=0)
        for _ in range(2):
            with pytest.raises(TransactionAbortableError, match="bad"):
                producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.enqueue("orders", "good", partition=0)

    assert committed(elsewhere) == [b"good"]


def test_record_that_failed_unseen_fails_the_commit(elsewhere: ClusterElsewhere) -> None:
    """As with `Producer`."""
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:
        elsewhere.do(lambda cluster: cluster.faults.error(29, Where(api=ApiKey.PRODUCE)))
        with pytest.raises(TransactionAbortableError), producer.transaction():
            producer.enqueue("orders", b"refused", partition=0)
        with producer.transaction():
            producer.enqueue("orders", b"next", partition=0)

    assert committed(elsewhere) == [b"next"]


def test_threads_take_turns(elsewhere: ClusterElsewhere) -> None:
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:

        def work(number: int) -> None:
            with producer.transaction():
                for _ in range(3):
                    producer.send("orders", b"%d" % number, partition=0)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    values = committed(elsewhere)
    assert len(values) == 12
    assert all(len(set(values[first : first + 3])) == 1 for first in range(0, 12, 3))


def test_calls_outside_a_transaction_are_refused(elsewhere: ClusterElsewhere) -> None:
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:
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

    assert committed(elsewhere) == [b"inside"]


@pytest.mark.slow  # most of `max_block_ms` is there for busy machines
def test_block_within_the_threads_own_transaction_is_refused(elsewhere: ClusterElsewhere) -> None:
    """Only this thread could end it: waiting for that would be for all of `max_block_ms`."""
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b", max_block_ms=2_000) as producer:
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

    assert committed(elsewhere) == [b"a", b"b", b"c"]


def test_commit_that_times_out_ends_in_the_background(elsewhere: ClusterElsewhere) -> None:
    """Well or not: the next block waits for that, and has its turn then; it never had one again."""
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b", max_block_ms=5000) as producer:
        for code in (0, 120):
            stalled = elsewhere.do(lambda cluster: cluster.faults.stall(END_TXN))
            with pytest.raises(TransactionTimeoutError), producer.transaction():
                producer.send("orders", b"%d" % code, partition=0)
            if code:
                elsewhere.do(lambda cluster: cluster.faults.error(120, END_TXN))
            elsewhere.do(lambda cluster, fault=stalled: cluster.faults.remove(fault))  # type: ignore[misc]
            with producer.transaction():
                producer.send("orders", b"next", partition=0)

    assert committed(elsewhere) == [b"0", b"next", b"next"]


def _serialize(value: object) -> bytes:
    if value == "bad":
        raise ValueError("bad")
    assert isinstance(value, str)
    return value.encode()


def test_prepared_transaction_outlives_the_producer(elsewhere: ClusterElsewhere) -> None:
    with BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b") as producer:
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
    assert committed(elsewhere) == [b"a"]
    ends = elsewhere.do(lambda cluster: [seen.api for seen in cluster.requests].count(ApiKey.END_TXN))
    assert ends == 1
