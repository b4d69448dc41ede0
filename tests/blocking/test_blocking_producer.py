"""The producer for threads and scripts, against a cluster that runs on another thread's loop."""

import asyncio
import copy
import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import NoReturn, TypeVar

import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    IllegalStateError,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    PurgedError,
    RecordMetadata,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.blocking import _background_threads
from aioproducer.records import ProducerRecord
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import ClusterElsewhere
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


def test_flush_of_nothing_takes_no_time(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.send("orders", b"delivered")
        for _ in range(20):
            producer.flush(0)


def test_flush_whose_turn_does_not_come_says_so(cluster: ClusterElsewhere) -> None:
    stall = cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    with BlockingProducer(cluster.bootstrap_servers, buffer_memory=200_000) as producer:
        for _ in range(40):
            producer.enqueue("orders", bytes(10_000))
        with pytest.raises(TimeoutError, match="still wait for their turn after 0 s"):
            producer.flush(0)
        cluster.do(lambda fake: fake.faults.remove(stall))  # type: ignore[arg-type]


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


# Arguments that a caller reuses after a call has returned: the record is what it was at the call.

TOTAL = 50
ResultT = TypeVar("ResultT")

WRITTEN = [b"%05d" % number for number in range(TOTAL)]


def written(cluster: ClusterElsewhere) -> object:
    return cluster.do(lambda fake: [(r.key, r.value, *dict(r.headers).values()) for r in fake.records("orders", 0)])


def reuse(send: Callable[[bytearray, memoryview, list[tuple[str, bytes | None]]], ResultT]) -> list[ResultT]:
    buffer, results = bytearray(5), []
    headers: list[tuple[str, bytes | None]] = [("n", None)]
    for number in range(TOTAL):
        buffer[:] = b"%05d" % number
        headers[0] = ("n", bytes(buffer))
        results.append(send(buffer, memoryview(buffer), headers))
    return results


CALLS: Mapping[str, Callable[[BlockingProducer], Callable[..., object]]] = MappingProxyType(
    {
        "send_threadsafe": lambda producer: partial(producer.send_threadsafe, "orders"),
        "enqueue": lambda producer: partial(producer.enqueue, "orders"),
        "topic.send_threadsafe": lambda producer: producer.topic("orders", value=bytes).send_threadsafe,
        "topic.enqueue": lambda producer: producer.topic("orders", value=bytes).enqueue,
    }
)


@pytest.mark.parametrize("verb", CALLS)
def test_arguments_are_copied(cluster: ClusterElsewhere, blocking: BlockingProducer, verb: str) -> None:
    """The caller may change its buffers as soon as the call has returned."""
    send = CALLS[verb](blocking)
    reuse(lambda value, key, headers: send(value, key=key, partition=0, headers=headers))
    blocking.flush()

    assert written(cluster) == [(number, number, number) for number in WRITTEN]


def test_enqueue_copies_what_a_serializer_takes(cluster: ClusterElsewhere) -> None:
    types: set[type] = set()

    def serialize(value: bytearray) -> bytes:
        types.add(type(value))
        return bytes(value)

    with BlockingProducer(cluster.bootstrap_servers, value_serializer=serialize) as producer:
        reuse(lambda value, key, headers: producer.enqueue("orders", value, key=key, partition=0, headers=headers))
        producer.flush()

    assert written(cluster) == [(number, number, number) for number in WRITTEN]
    assert types == {bytearray}


async def test_send_threadsafe_of_an_asynchronous_producer_copies() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        futures = await asyncio.to_thread(
            reuse, lambda value, key, headers: producer.send_threadsafe("orders", value, key=key, headers=headers)
        )
        await asyncio.gather(*map(asyncio.wrap_future, futures))
        found = [(r.key, r.value, *dict(r.headers).values()) for r in cluster.records("orders", 0)]

    assert found == [(number, number, number) for number in WRITTEN]


def test_wrong_headers_are_an_error_of_the_future(blocking: BlockingProducer) -> None:
    with pytest.raises(TypeError, match="headers"):
        blocking.send_threadsafe("orders", b"", headers=["n"]).result()  # type: ignore[list-item]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copy_is_refused(blocking: BlockingProducer, copied: Callable[[object], object]) -> None:
    """It would have the same thread: its end was the end of both."""
    with pytest.raises(TypeError, match="a BlockingProducer cannot be copied or pickled: make it in the process"):
        copied(blocking)

    blocking.send("orders", b"v")


class Exits(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if record.value == b"exit":
            raise SystemExit(1)
        return record


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_exit_in_code_of_the_user_ends_nothing(  # noqa: PLR0917  # three fixtures, and the loop
    cluster: ClusterElsewhere, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """`sys.exit` on that thread ended the producer without a word, and later errors named another cause."""
    if loop == "asyncio":
        monkeypatch.setattr(_background_threads, "installed_uvloop", lambda: None)

    delivered: list[object] = []

    def on_delivery(metadata: object, _: object) -> NoReturn:
        delivered.append(metadata)
        raise SystemExit(2)

    caplog.set_level(logging.ERROR)
    with BlockingProducer(cluster.bootstrap_servers, interceptors=[Exits()]) as producer:
        producer.enqueue("orders", b"a", partition=0, on_delivery=on_delivery)
        producer.enqueue("orders", b"b", partition=0, on_delivery=on_delivery)
        producer.flush()
        producer.enqueue("orders", b"exit", partition=0)
        producer.enqueue("orders", b"c", partition=0)
        with pytest.raises(UndeliveredError, match="SystemExit: 1"):
            producer.flush()
        with pytest.raises(SystemExit):  # on the thread of the call, which it ends
            producer.send("orders", b"exit")
        producer.send("orders", b"d", partition=0)

    assert (cluster.values(), len(delivered)) == ([b"a", b"b", b"c", b"d"], 2)
    found = [record for record in caplog.records if record.message.startswith("SystemExit on the thread")]
    assert {str(record.exc_info[1]) for record in found if record.exc_info} == {"1", "2"}
