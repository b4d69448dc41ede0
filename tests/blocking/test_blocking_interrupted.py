"""Ctrl-C between any two steps of the interpreter: it ends the call it meets, and never stops the background loop."""

import contextlib
import ctypes
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType, MappingProxyType

import pytest

from aioproducer import BlockingProducer, UndeliveredError
from tests.blocking.programs import run
from tests.fakes.producing import ClusterElsewhere, cluster_elsewhere

# In a weak reference's callback Python can only print it.
pytestmark = [pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"), pytest.mark.timing]

PATIENCE_S = 30
FEW, MANY = 43, 3

press_ctrl_c = ctypes.PyDLL(None).PyErr_SetInterrupt
"""A local trace function: the signal comes at the next step of the traced frame, as a real one would."""
press_ctrl_c.argtypes = [ctypes.py_object] * 3
press_ctrl_c.restype = None


class CtrlC:
    """Interrupts once, after a number of steps of this thread, which it counts."""

    def __init__(self, after: int) -> None:
        self._left = after
        self.has_come = False
        self.tracing = self.trace
        """Kept: the handler ends the tracing also while this is called, and Python does not keep it."""

    def trace(self, frame: FrameType, event: str, _argument: object) -> object:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._left -= 1
        return press_ctrl_c if self._left < 0 else self.tracing

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        sys.settrace(None)
        if not self.has_come:
            self.has_come = True
            raise KeyboardInterrupt


def interrupted(work: Callable[[], object], after: int) -> bool:
    ctrl_c = CtrlC(after)
    before = signal.signal(signal.SIGINT, ctrl_c.handle)
    try:
        # RuntimeError: what `Condition.wait` makes of it, where a caller waits for a future by himself
        with contextlib.suppress(KeyboardInterrupt, RuntimeError):
            traced(work, ctrl_c)
    finally:
        signal.signal(signal.SIGINT, before)
    return ctrl_c.has_come


def traced(work: Callable[[], object], ctrl_c: CtrlC) -> None:
    tracing, frame = sys.gettrace(), inspect.currentframe()
    assert frame is not None
    frame.f_trace_opcodes = True  # 3.12 looks for it when tracing begins
    try:
        sys.settrace(ctrl_c.tracing)  # type: ignore[arg-type]  # a function of C traces too
        work()
    finally:
        sys.settrace(tracing)


def within_patience(threads: ThreadPoolExecutor, work: Callable[[], object]) -> None:
    """Do something on another thread, within a limit."""
    threads.submit(work).result(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterElsewhere]:
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Return another name for locks that must be free; locked ones are not waited for."""
    pool = ThreadPoolExecutor(4)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


VERBS: Mapping[str, Callable[[BlockingProducer], object]] = MappingProxyType(
    {
        "send": lambda producer: producer.send("orders", b"v"),
        "send_threadsafe": lambda producer: producer.send_threadsafe("orders", b"v").result(),
        "enqueue": lambda producer: producer.enqueue("orders", b"v"),
        "flush": lambda producer: producer.flush(),
        "partitions_for": lambda producer: producer.partitions_for("orders"),
        "statistics": lambda producer: producer.statistics(),
    }
)


@pytest.mark.parametrize("stride", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("verb", list(VERBS))
def test_all_goes_on_after_an_interrupted_call(
    cluster: ClusterElsewhere, threads: ThreadPoolExecutor, *, verb: str, stride: int
) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, linger_ms=0).start()
    after = 0
    while interrupted(lambda: VERBS[verb](producer), after):
        within_patience(threads, lambda: producer.send("orders", b"next"))
        producer.enqueue("orders", b"next")
        after += stride

    assert after > stride
    within_patience(threads, producer.close)


@pytest.mark.parametrize("stride", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_interrupted_start_leaves_no_thread(
    cluster: ClusterElsewhere, threads: ThreadPoolExecutor, stride: int
) -> None:
    after = 0
    while True:
        producer = BlockingProducer(cluster.bootstrap_servers)
        has_come = interrupted(producer.start, after)
        within_patience(threads, producer.close)
        if not has_come:
            break
        after += stride

    assert after > stride
    assert_no_thread_is_left()


@pytest.mark.parametrize("stride", [FEW, pytest.param(11, marks=pytest.mark.nightly)])
def test_interrupted_first_use_leaves_it_to_the_next_call(
    cluster: ClusterElsewhere, threads: ThreadPoolExecutor, stride: int
) -> None:
    """A module's producer, which no one starts, would otherwise be closed for the life of its process."""
    after = 0
    while True:
        producer = BlockingProducer(cluster.bootstrap_servers)
        has_come = interrupted(partial(producer.partitions_for, "orders"), after)
        within_patience(threads, lambda: producer.send("orders", b"next"))  # noqa: B023  # before the next turn
        within_patience(threads, producer.close)
        if not has_come:
            break
        after += stride

    assert after > stride
    assert_no_thread_is_left()


@pytest.mark.parametrize("stride", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_interrupted_close_may_be_called_again(
    cluster: ClusterElsewhere, threads: ThreadPoolExecutor, stride: int
) -> None:
    after = 0
    while True:
        producer = BlockingProducer(cluster.bootstrap_servers).start()
        producer.enqueue("orders", b"v")
        has_come = interrupted(producer.close, after)
        with contextlib.suppress(UndeliveredError):
            within_patience(threads, partial(producer.close, 0))
        if not has_come:
            break
        after += stride

    assert after > stride
    assert_no_thread_is_left()


def assert_no_thread_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name == "aioproducer":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


UNHEARD = """
import signal, sys, threading, time
from aioproducer import BlockingProducer

def interrupt():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # noted for the main thread, whose sleep goes on

try:
    with BlockingProducer(sys.argv[1], max_block_ms=600_000) as producer:
        threading.Thread(target=interrupt).start()
        producer.send("nowhere", b"waits for its topic")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_during_a_sleep_is_not_lost(cluster: ClusterElsewhere) -> None:
    ended = run(UNHEARD, cluster.bootstrap_servers)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("interrupted\n", "", 0)


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
    assert cluster.values().count(b"accepted") == 1


@pytest.mark.parametrize("stride", [97, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_next_block_has_its_turn_after_an_interrupted_one(stride: int) -> None:
    """Regression: a begin on another thread waited for a transaction without an owner."""

    def block() -> None:
        with producer.transaction():
            producer.enqueue("orders", b"v", partition=0)

    threads = ThreadPoolExecutor(1)
    with cluster_elsewhere() as elsewhere:
        producer = BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b", linger_ms=0).start()
        after = 0
        while interrupted(block, after):
            within_patience(threads, block)
            after += stride
        producer.close()
    threads.shutdown(wait=False, cancel_futures=True)

    assert after > stride
