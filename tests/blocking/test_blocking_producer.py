"""The producer for threads and scripts, against a cluster that runs on another thread's loop."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    IllegalStateError,
    ProducerClosedError,
    RecordMetadata,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere
from tests.produced import until_refused

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


def loops() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aioproducer"]


def test_one_screen_works(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        metadata = producer.send("orders", b"first", key=b"customer-7")
        for number in range(1_000):
            producer.enqueue("orders", b"%d" % number, key=b"customer-7")
        producer.flush()

        assert isinstance(metadata, RecordMetadata)
        assert cluster.values() == [b"first", *(b"%d" % number for number in range(1_000))]
        assert producer.statistics().records_acknowledged == 1_001
        assert len(loops()) == 1
    assert "closed" in repr(producer)
    assert loops() == []


def test_verbs_keep_the_order_of_the_calls(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    expected = []
    futures = []
    for number in range(50):
        for verb in ("enqueue", "send_threadsafe"):
            value = f"{verb}-{number}".encode()
            futures.append(getattr(blocking, verb)("orders", value, partition=0))
            expected.append(value)
    blocking.send("orders", b"last", partition=0)
    offsets = [future.result(5).offset for future in futures if future is not None]

    assert cluster.values() == [*expected, b"last"]
    assert offsets == list(range(1, 100, 2))


def test_many_threads_share_it(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    def work(name: int) -> None:
        for number in range(200):
            blocking.enqueue("orders", b"%d-%d" % (name, number), partition=0)
        blocking.send("orders", b"%d-200" % name, partition=0)

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(work, range(5)))

    written = [value or b"" for value in cluster.values()]
    assert len(written) == 5 * 201
    for name in range(5):
        own = [value for value in written if value.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(201)]


def test_send_many_waits_for_all(blocking: BlockingProducer) -> None:
    result = blocking.send_many("orders", [b"v"] * 500 + [bytes(2_000_000)], partition=1)

    assert (result.delivered, [type(error) for error in result.errors.values()]) == (500, [RecordTooLargeError])


def test_iterators_are_read_on_the_thread_of_the_call(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    """Rows of a database belong to the thread that asked for them, and a slow thread delays no other."""
    readers = set()

    def column() -> Iterator[bytes]:
        for number in range(3):
            readers.add(threading.get_ident())
            yield b"%d" % number

    result = blocking.send_many("orders", column(), keys=column(), partition=0)
    blocking.topic("orders", value=bytes).send_many(column(), keys=column(), partition=0)

    assert (result.delivered, readers) == (3, {threading.get_ident()})
    assert cluster.values() == [b"0", b"1", b"2"] * 2


def test_keys_without_end_are_refused(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    with pytest.raises(ValueError, match="keys must be as many as values: there are 2 values, and more keys"):
        blocking.send_many("orders", iter([b"1", b"2"]), keys=repeat(b"k"))
    blocking.flush()

    assert sorted(cluster.values()) == [b"1", b"2"]


def test_closed_producer_takes_nothing_out_of_an_iterator(blocking: BlockingProducer) -> None:
    blocking.close()
    rows = iter([b"1", b"2"])
    with pytest.raises(ProducerClosedError):
        blocking.send_many("orders", rows)

    assert list(rows) == [b"1", b"2"]


@pytest.mark.parametrize("verb", ["send", "enqueue"])
@pytest.mark.parametrize(
    "arguments, kind, word",
    [
        ({"topic": ""}, ValueError, "topic"),
        ({"value": "text"}, TypeError, "value"),
        ({"key": 5}, TypeError, "key"),
        ({"partition": 0.0}, TypeError, "partition"),
        ({"timestamp": -1}, ValueError, "timestamp"),
        ({"headers": {"a": b"1"}}, TypeError, "headers"),
        ({"on_delivery": 5}, TypeError, "on_delivery"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else None,
)
def test_bad_arguments_are_refused_at_the_call(  # noqa: PLR0917  # the parts of a row
    shared: ClusterElsewhere, verb: str, arguments: dict[str, object], kind: type[Exception], word: str
) -> None:
    given = {"topic": "orders", "value": b"v", **arguments}
    with BlockingProducer(shared.bootstrap_servers) as producer:
        with pytest.raises(kind, match=word):
            getattr(producer, verb)(given.pop("topic"), **given)

        producer.send("orders", b"valid")


def test_failures_of_enqueue_are_raised_by_flush(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    """Those of the broker, and those that only the loop could find; each once."""
    cluster.do(lambda fake: fake.faults.error(FORBIDDEN, PRODUCE))
    blocking.enqueue("orders", bytes(2_000_000))
    blocking.enqueue("orders", b"refused")

    with pytest.raises(UndeliveredError, match="2 records were not delivered") as caught:
        blocking.flush()

    assert {type(error) for error in caught.value.exceptions} == {RecordTooLargeError, TopicAuthorizationError}
    blocking.flush()


def test_failure_of_a_waiting_record_is_reported_once() -> None:
    """The producer has the record by then, and reports it; the caller sees the error only once."""
    told: list[str] = []
    producer = BlockingProducer("127.0.0.1:9", max_block_ms=50).start(wait=False)
    producer.enqueue("orders", b"v", on_delivery=lambda _metadata, error: told.append(type(error).__name__))
    producer.flush()
    producer.close()

    assert told == ["MetadataTimeoutError"]


def test_failures_are_passed_to_on_delivery(blocking: BlockingProducer) -> None:
    told: list[object] = []
    blocking.enqueue(
        "orders", bytes(2_000_000), on_delivery=lambda metadata, error: told.append((metadata, type(error)))
    )
    blocking.enqueue("orders", b"v", partition=0, on_delivery=lambda metadata, error: told.append((metadata[3], error)))
    blocking.flush()

    assert told == [(None, RecordTooLargeError), (0, None)]


def test_mutable_value_is_copied(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    own = bytearray(b"original")
    blocking.enqueue("orders", own)
    own[:] = b"tampered"
    blocking.flush()

    assert cluster.values() == [b"original"]


def test_stalled_cluster_holds_callers_back(cluster: ClusterElsewhere) -> None:
    stall = cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    producer = BlockingProducer(cluster.bootstrap_servers, buffer_memory=1_000_000, max_block_ms=1_000)
    with producer:
        accepted, error = until_refused(lambda: producer.enqueue("orders", bytes(10_000)), BufferTimeoutError)
        cluster.do(lambda fake: fake.faults.remove(stall))  # type: ignore[arg-type]
        try:
            producer.flush()
        except UndeliveredError as late:  # those whose second was over before the stall was
            accepted -= late.count

        assert "max_block_ms=1000" in str(error)
        assert 0 < accepted < 1_000
        assert len(cluster.values()) == accepted


def test_flush_has_its_time(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    stall = cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    blocking.enqueue("orders", b"v")
    with pytest.raises(TimeoutError):
        blocking.flush(0.05)
    cluster.do(lambda fake: fake.faults.remove(stall))  # type: ignore[arg-type]
    blocking.flush()

    assert cluster.values() == [b"v"]


def test_callback_that_would_wait_for_itself_raises(blocking: BlockingProducer) -> None:
    told: list[BaseException] = []

    def callback(_metadata: object, _error: object) -> None:
        try:
            blocking.send("orders", b"again")
        except IllegalStateError as error:
            told.append(error)

    blocking.send("orders", b"v", on_delivery=callback)

    assert "own thread" in str(told[0])


@pytest.mark.parametrize("verb", ["send", "send_many"])
def test_failures_read_by_many_threads_are_not_raised(
    blocking: BlockingProducer, cluster: ClusterElsewhere, verb: str
) -> None:
    threads = 150
    cluster.do(lambda fake: fake.create_topic("wide", threads))
    cluster.do(lambda fake: fake.faults.error(FORBIDDEN, PRODUCE, times=None))

    def call(partition: int) -> bool:
        if verb == "send_many":
            return blocking.send_many("wide", [b"x"], partition=partition).failed == 1
        with pytest.raises(TopicAuthorizationError):
            blocking.send("wide", b"x", partition=partition)
        return True

    with ThreadPoolExecutor(threads) as pool:
        seen = list(pool.map(call, range(threads)))

    blocking.flush()
    assert all(seen)
