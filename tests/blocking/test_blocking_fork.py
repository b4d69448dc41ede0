"""Forks, also in the middle of another thread's call: the child has that thread's locks, and not the thread."""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from itertools import product
from types import FrameType

import pytest

from aioproducer import BlockingProducer, IllegalStateError
from tests.blocking.programs import run
from tests.blocking.test_blocking_start import FIRST_CALLS
from tests.fakes.producing import ClusterElsewhere

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PATIENCE_S = 60


class Stepping:
    """A thread that stops at each line of this package's blocking part, until it is let go on."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._is_at_line = threading.Semaphore(0)
        self._may_go_on = threading.Semaphore(0)
        self._has_ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def next_line(self) -> bool:
        """Wait until it stands at a line; False: it has ended."""
        assert self._is_at_line.acquire(timeout=PATIENCE_S)
        return not self._has_ended

    def go_on(self) -> None:
        self._may_go_on.release()

    def _run(self) -> None:
        sys.settrace(self._trace)
        try:
            self._work()
        finally:
            sys.settrace(None)
            self._has_ended = True
            self._is_at_line.release()

    def _trace(self, frame: FrameType, event: str, _argument: object) -> object:
        if "/aioproducer/blocking/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self._is_at_line.release()
            self._may_go_on.acquire()
        return self._trace


def exit_code_of_child(act: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: threads and fork, which is the point here
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def use_and_close(producer: BlockingProducer) -> None:
    for call in (producer.start, producer.flush, lambda: producer.enqueue("orders", b"child")):
        with contextlib.suppress(IllegalStateError):
            call()
    producer.close()


def test_child_of_a_fork_in_another_threads_call_can_close(blocking: BlockingProducer) -> None:
    thread = Stepping(lambda: blocking.send_threadsafe("orders", b"parent"))
    codes: list[int] = []
    while thread.next_line():
        codes.append(exit_code_of_child(lambda: use_and_close(blocking)))
        thread.go_on()

    assert len(codes) > 10
    assert set(codes) == {0}
    blocking.send("orders", b"parent")


FORKED = """
import os, sys
loop, host, port, does_child_send = *sys.argv[1:4], len(sys.argv) > 4
if loop == "asyncio":
    sys.modules["uvloop"] = None  # as if it were not installed
from aioproducer import BlockingProducer
producer = BlockingProducer(f"{host}:{port}").start()
producer.send("orders", b"parent")
child = os.fork()
if child == 0:
    del producer
    if does_child_send:
        with BlockingProducer(f"{host}:{port}") as own:
            own.send("orders", b"child")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
producer.close()
"""

FORKS = list(product(["asyncio", "uvloop"], ["localhost", "127.0.0.1"], [False, True]))


@pytest.mark.timing
@pytest.mark.parametrize("loop, host, does_child_send", FORKS)
def test_child_of_a_fork_ends_by_itself(
    cluster: ClusterElsewhere, loop: str, host: str, *, does_child_send: bool
) -> None:
    """By the interpreter's own end, which waits for no thread that is not there, and with its own exit code."""
    port = cluster.bootstrap_servers.rpartition(":")[2]
    program = run(FORKED, loop, host, port, *["send"][:does_child_send])

    assert (program.stdout, program.returncode) == ("3\n", 0), program.stderr
    assert sorted(map(str, cluster.values())) == ["b'child'", "b'parent'"][1 - does_child_send :]


def test_made_before_a_fork_it_sends_on_both_sides(unused: BlockingProducer) -> None:
    def child() -> None:
        unused.send("orders", b"child", partition=0)
        unused.close()

    assert [exit_code_of_child(child), exit_code_of_child(child)] == [0, 0]
    assert unused.send("orders", b"parent", partition=0).offset == 2


def test_used_before_a_fork_it_says_so_in_the_child(unused: BlockingProducer) -> None:
    unused.send("orders", b"parent", partition=0)

    def child() -> None:
        for call in FIRST_CALLS.values():
            with pytest.raises(IllegalStateError, match=r"before a fork.*create a new producer in this process"):
                call(unused)
        with pytest.raises(IllegalStateError, match="before a fork"):
            unused.flush()
        unused.close()

    assert exit_code_of_child(child) == 0
    assert unused.send("orders", b"parent", partition=0).offset == 1


def fork_while_starting(producer: BlockingProducer, act: Callable[[], object]) -> list[int]:
    """Fork at each line of another thread's first use; the codes of the children."""
    thread = Stepping(lambda: producer.partitions_for("orders"))
    codes: list[int] = []
    while thread.next_line():
        codes.append(exit_code_of_child(act))
        thread.go_on()
    return codes


@pytest.mark.slow
def test_fork_in_another_threads_first_use_works_in_the_child(cluster: ClusterElsewhere) -> None:
    """With a producer that the child makes; the imports were done when the first one was made."""
    first = BlockingProducer(cluster.bootstrap_servers)

    def use_another() -> None:
        with BlockingProducer(cluster.bootstrap_servers) as other:
            other.send("orders", b"child")

    codes = fork_while_starting(first, use_another)

    assert len(codes) > 10
    assert set(codes) == {0}
    first.close()


@pytest.mark.slow
def test_producer_starting_in_the_parent_is_new_in_the_child(cluster: ClusterElsewhere) -> None:
    """Until it has started: then its thread and connections are the parent's."""
    producer = BlockingProducer(cluster.bootstrap_servers)

    def use_it() -> None:
        with contextlib.suppress(IllegalStateError):
            producer.send("orders", b"child")
        producer.close()

    codes = fork_while_starting(producer, use_it)

    assert len(codes) > 10
    assert set(codes) == {0}
    producer.send("orders", b"parent")
    producer.close()


FIRST_USE_AND_FORK = """
import os, sys, threading, time
from aioproducer import BlockingProducer

mine = BlockingProducer(sys.argv[1])
threading.Thread(target=mine.start, kwargs={"wait": False}, daemon=True).start()
time.sleep(float(sys.argv[2]))
child = os.fork()
if child == 0:
    other = BlockingProducer(sys.argv[1])
    print(other.send("orders", b"x", partition=0).topic, flush=True)
    other.close()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timing
@pytest.mark.parametrize("after_s", ["0", "0.01", "0.04"])
def test_fork_soon_after_a_first_use_began_works(cluster: ClusterElsewhere, after_s: str) -> None:
    """In a new process, where nothing is imported yet."""
    ended = run(FIRST_USE_AND_FORK, cluster.bootstrap_servers, after_s)

    assert ended.stdout.split() == ["orders", "0"], ended.stderr
