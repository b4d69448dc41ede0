"""A `BlockingProducer` that no one has started: the first call that sends does, in its own process."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import BlockingProducer, IllegalStateError, MetadataTimeoutError, ProducerClosedError, RecordMetadata
from aioproducer.testing import FakeCluster
from tests.fakes.cluster_elsewhere import ClusterElsewhere

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture
def unused(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    """Nothing but made."""
    producer = BlockingProducer(cluster.bootstrap_servers)
    yield producer
    producer.close()


FIRST_CALLS: dict[str, Callable[[BlockingProducer], object]] = {
    "send": lambda producer: producer.send("orders", b"v"),
    "send_threadsafe": lambda producer: producer.send_threadsafe("orders", b"v").result(),
    "enqueue": lambda producer: producer.enqueue("orders", b"v"),
    "send_many": lambda producer: producer.send_many("orders", [b"v"]),
    "topic.send": lambda producer: producer.topic("orders", value=bytes).send(b"v"),
    "topic.enqueue": lambda producer: producer.topic("orders", value=bytes).enqueue(b"v"),
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_first_call_that_sends_starts(unused: BlockingProducer, call: str) -> None:
    FIRST_CALLS[call](unused)
    unused.flush()

    assert unused.statistics().records_acknowledged == 1


def test_first_question_and_transaction_start(cluster: ClusterElsewhere) -> None:
    asking = BlockingProducer(cluster.bootstrap_servers)
    assert asking.partitions_for("orders") == [0, 1, 2]
    asking.close()
    transactional = BlockingProducer(cluster.bootstrap_servers, transactional_id="t")
    with transactional.transaction() as txn:
        txn.send("orders", b"v")
    transactional.close()


def test_what_sends_nothing_starts_nothing(unused: BlockingProducer) -> None:
    before = threading.active_count()
    unused.flush()
    unused.flush(0)
    assert unused.statistics().records_acknowledged == 0
    assert (unused.metrics(), unused.explain().waiting) == ([], ())
    with pytest.raises(TypeError, match="topic"):
        unused.enqueue(5, b"v")  # type: ignore[arg-type]

    assert threading.active_count() == before


def test_threads_that_send_first_share_one_start(unused: BlockingProducer) -> None:
    together = threading.Barrier(8)

    def work(number: int) -> int:
        together.wait()
        return unused.send("orders", b"%d" % number, partition=0).offset

    with ThreadPoolExecutor(8) as threads:
        offsets = sorted(threads.map(work, range(8)))

    assert offsets == list(range(8))
    assert [thread.name for thread in threading.enumerate()].count("aioproducer") == 1


PATCHED = """
import sys
{patch}
from aioproducer import BlockingProducer

producer = BlockingProducer(sys.argv[1])
greenlets = [{spawn}(lambda: producer.send("orders", b"v", partition=0).offset) for _ in range(8)]
print(sorted({join} for greenlet in greenlets))
producer.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "patch, spawn, join",
    [
        ("from gevent import monkey, spawn; monkey.patch_all()", "spawn", "greenlet.get(timeout=30)"),
        ("import eventlet; eventlet.monkey_patch()", "eventlet.spawn", "greenlet.wait()"),
    ],
    ids=["gevent", "eventlet"],
)
def test_greenlets_that_send_first_share_one_start(  # noqa: PLR0917  # a fixture, and the parts of a row
    cluster: ClusterElsewhere, patch: str, spawn: str, join: str
) -> None:
    program = PATCHED.format(patch=patch, spawn=spawn, join=join)
    done = subprocess.run(
        [sys.executable, "-c", program, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert done.stdout == "[0, 1, 2, 3, 4, 5, 6, 7]\n", done.stderr


def eventually(send: Callable[[], RecordMetadata]) -> RecordMetadata:
    """Send until the producer has noticed the broker."""
    for _ in range(99):
        with contextlib.suppress(MetadataTimeoutError):
            return send()
    return send()


def test_without_a_broker_calls_fail_and_later_ones_can_succeed() -> None:
    with FakeCluster.in_thread(1) as probe:
        address = probe.bootstrap_servers
    producer = BlockingProducer(address, max_block_ms=200)
    for _ in range(2):
        with pytest.raises(MetadataTimeoutError):
            producer.send("orders", b"v")

    with FakeCluster.in_thread(1, topics={"orders": 1}, ports=[int(address.rpartition(":")[2])]):
        assert eventually(lambda: producer.send("orders", b"v")).offset == 0
        producer.close()


def test_closed_before_its_first_use_it_stays_closed(unused: BlockingProducer) -> None:
    unused.close()

    for call in (*FIRST_CALLS.values(), lambda producer: producer.partitions_for("orders"), BlockingProducer.flush):
        with pytest.raises(ProducerClosedError):
            call(unused)


def in_child(act: Callable[[], object]) -> int:
    """Run in a fork; returns its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: of a process with threads
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        signal.alarm(60)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_made_before_a_fork_it_sends_on_both_sides(unused: BlockingProducer) -> None:
    def child() -> None:
        unused.send("orders", b"child", partition=0)
        unused.close()

    assert [in_child(child), in_child(child)] == [0, 0]
    assert unused.send("orders", b"parent", partition=0).offset == 2


@needs_fork
def test_used_before_a_fork_it_says_so_in_the_child(unused: BlockingProducer) -> None:
    unused.send("orders", b"parent", partition=0)

    def child() -> None:
        for call in FIRST_CALLS.values():
            with pytest.raises(IllegalStateError, match=r"before a fork.*create a new producer in this process"):
                call(unused)
        with pytest.raises(IllegalStateError, match="before a fork"):
            unused.flush()
        unused.close()

    assert in_child(child) == 0
    assert unused.send("orders", b"parent", partition=0).offset == 1
