"""The producer for threads and scripts, against a cluster that runs on another thread's loop."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordMetadata,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere, cluster_elsewhere
from tests.produced import until_refused

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


@pytest.fixture(scope="module")
def shared() -> Iterator[ClusterElsewhere]:
    """One for all tests that count only what they sent themselves."""
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


@pytest.fixture
def cluster() -> Iterator[ClusterElsewhere]:
    """One of the test's own."""
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


@pytest.fixture
def blocking(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    """A started producer with the defaults."""
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    yield producer
    with contextlib.suppress(UndeliveredError):
        producer.close(0)


def test_one_screen_works(cluster: ClusterElsewhere) -> None:
    """As the docstring shows it."""
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        metadata = producer.send("orders", b"first", key=b"customer-7")
        for number in range(1_000):
            producer.enqueue("orders", b"%d" % number, key=b"customer-7")
        producer.flush()

        assert isinstance(metadata, RecordMetadata)
        assert cluster.values() == [b"first", *(b"%d" % number for number in range(1_000))]
        assert producer.statistics().records_acknowledged == 1_001
    assert "closed" in repr(producer)
    assert not [thread for thread in threading.enumerate() if thread.name == "aioproducer"]


def test_verbs_keep_the_order_of_the_calls(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    """Whichever they are."""
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
    """Each keeps its own order."""

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
    """And returns what became of them."""
    result = blocking.send_many("orders", [b"v"] * 500 + [bytes(2_000_000)], partition=1)

    assert (result.delivered, [type(error) for error in result.errors.values()]) == (500, [RecordTooLargeError])


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
    """As by Producer."""
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


def test_failures_are_told_to_on_delivery(blocking: BlockingProducer) -> None:
    """Then flush has nothing to add."""
    told: list[object] = []
    blocking.enqueue(
        "orders", bytes(2_000_000), on_delivery=lambda metadata, error: told.append((metadata, type(error)))
    )
    blocking.enqueue("orders", b"v", partition=0, on_delivery=lambda metadata, error: told.append((metadata[3], error)))
    blocking.flush()

    assert told == [(None, RecordTooLargeError), (0, None)]


def test_mutable_value_is_copied(blocking: BlockingProducer, cluster: ClusterElsewhere) -> None:
    """Before the call returns."""
    own = bytearray(b"original")
    blocking.enqueue("orders", own)
    own[:] = b"tampered"
    blocking.flush()

    assert cluster.values() == [b"original"]


def test_stalled_cluster_holds_callers_back(cluster: ClusterElsewhere) -> None:
    """In bounded memory; they get an error after max_block_ms, and everything accepted goes through."""
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
    """The records go on."""
    stall = cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    blocking.enqueue("orders", b"v")
    with pytest.raises(TimeoutError):
        blocking.flush(0.05)
    cluster.do(lambda fake: fake.faults.remove(stall))  # type: ignore[arg-type]
    blocking.flush()

    assert cluster.values() == [b"v"]


def test_close_is_bounded(cluster: ClusterElsewhere) -> None:
    """What is left fails; so do callers that wait for room."""
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    producer = BlockingProducer(cluster.bootstrap_servers, buffer_memory=200_000).start()
    stopped: list[type[Exception]] = []

    def work() -> None:
        try:
            while True:
                producer.enqueue("orders", bytes(10_000))
        except KafkaError as error:
            stopped.append(type(error))

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.05)
    begun = time.monotonic()

    with pytest.raises(UndeliveredError, match="not delivered"):
        producer.close(0.1)

    worker.join(2)
    assert time.monotonic() - begun < 2
    assert stopped == [ProducerClosedError]
    producer.close()


@pytest.mark.parametrize("is_stuck", [False, True], ids=["delivering", "behind a full buffer"])
def test_later_close_shortens_the_time_of_the_first(cluster: ClusterElsewhere, *, is_stuck: bool) -> None:
    """As the producer's own does; both raise what was not delivered."""
    producer = BlockingProducer(cluster.bootstrap_servers, buffer_memory=100_000, linger_ms=0).start()
    producer.send("orders", b"v")
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    for _ in range(20 if is_stuck else 1):
        producer.enqueue("orders", bytes(10_000))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(producer.close, 600)
        while "closing" not in repr(producer) and not is_stuck:
            time.sleep(0.001)
        with pytest.raises(UndeliveredError) as caught:
            producer.close(0)
        raised = first.exception(60)

    assert isinstance(raised, UndeliveredError)
    assert raised.count == caught.value.count > 0
    assert "closed" in repr(producer)


@pytest.mark.parametrize("timeout", [0, 0.5, 5])
def test_every_record_taken_while_others_close_is_told_of(cluster: ClusterElsewhere, timeout: float) -> None:
    """Delivered or failed, but none forgotten between the threads."""
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    taken: list[int] = []
    told: list[object] = []

    def work() -> None:
        with contextlib.suppress(ProducerClosedError):
            while True:
                producer.enqueue("orders", b"v", on_delivery=lambda _metadata, error: told.append(error))
                taken.append(1)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    time.sleep(0.02)
    producer.close(timeout)
    for worker in workers:
        worker.join(5)

    assert len(taken) == len(told) > 0


def test_closed_is_closed(cluster: ClusterElsewhere) -> None:
    """Every call says so at once, but for one more close."""
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    producer.close()
    producer.close(0)
    for verb in (producer.send, producer.enqueue, producer.send_threadsafe):
        with pytest.raises(ProducerClosedError):
            verb("orders", b"v")
    for other in (producer.start, producer.flush):
        with pytest.raises(ProducerClosedError):
            other()


def test_start_that_fails_leaves_no_thread() -> None:
    """And says why."""
    with pytest.raises(MetadataTimeoutError, match="refused"):
        BlockingProducer("127.0.0.1:9", max_block_ms=100).start()

    assert not [thread for thread in threading.enumerate() if thread.name == "aioproducer"]


def test_use_before_start_says_so() -> None:
    """And closing what was never started is nothing."""
    producer = BlockingProducer("h:9092")

    with pytest.raises(IllegalStateError, match="with BlockingProducer"):
        producer.send("orders", b"v")
    producer.close()


def test_callback_that_would_wait_for_itself_is_told(blocking: BlockingProducer) -> None:
    """Instead of hanging."""
    told: list[BaseException] = []

    def callback(_metadata: object, _error: object) -> None:
        try:
            blocking.send("orders", b"again")
        except IllegalStateError as error:
            told.append(error)

    blocking.send("orders", b"v", on_delivery=callback)

    assert "own thread" in str(told[0])


def test_body_that_raises_wins(cluster: ClusterElsewhere) -> None:
    """What was not delivered becomes its note."""
    cluster.do(lambda fake: fake.faults.error(FORBIDDEN, PRODUCE, times=None))

    def body() -> None:
        with BlockingProducer(cluster.bootstrap_servers) as producer:
            producer.enqueue("orders", b"v")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        body()

    assert "1 record was not delivered" in caught.value.__notes__[0]


def test_dropped_unclosed_warns(shared: ClusterElsewhere) -> None:
    """With the place that made it; the thread ends."""
    producer = BlockingProducer(shared.bootstrap_servers).start()

    with pytest.warns(ResourceWarning, match=r"test_blocking\.py:\d+ was dropped without close"):
        del producer

    assert not [thread for thread in threading.enumerate() if thread.name == "aioproducer"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_child_of_a_fork_is_told(blocking: BlockingProducer) -> None:
    """At once; the parent's goes on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: threads and fork, which is the point here
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        code = 1
        try:
            blocking.send("orders", b"child")
        except IllegalStateError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    blocking.send("orders", b"parent")


CTRL_C = """
import sys
from aioproducer import BlockingProducer
try:
    with BlockingProducer(sys.argv[1], delivery_timeout_ms=60_000) as producer:
        producer.enqueue("orders", b"accepted")
        producer.flush()
        print("ready", flush=True)
        producer.send("nowhere", b"waits for its topic")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_wait(cluster: ClusterElsewhere) -> None:
    """Within the time of closing, with KeyboardInterrupt, and without a thread that keeps the process."""
    program = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"

    program.send_signal(signal.SIGINT)
    try:
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()

    assert (out, err, program.returncode) == ("interrupted\n", "", 0)
    assert cluster.values() == [b"accepted"]


FORKED = """
import os, sys
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1]).start()
producer.send("orders", b"v")
child = os.fork()
if child == 0:
    del producer
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
producer.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_child_of_a_fork_ends_by_itself(cluster: ClusterElsewhere) -> None:
    """By the interpreter's own end, which waits for no thread that is not there."""
    program = subprocess.run(
        [sys.executable, "-c", FORKED, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )

    assert (program.stdout, program.returncode) == ("3\n", 0)


NEVER_CLOSED = """
import sys
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1]).start()
print(producer.send("orders", b"v").offset, flush=True)
"""


def test_program_that_never_closes_it_ends(cluster: ClusterElsewhere) -> None:
    """Its thread does not keep the process."""
    program = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )

    assert (program.stdout, program.returncode) == ("0\n", 0)
