"""The end of a process that has not closed its producer: what was accepted is delivered, or reported as lost."""

import multiprocessing
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from aioproducer.testing import ApiKey, Where
from tests.fakes.producing import ClusterElsewhere

pytestmark = pytest.mark.timing

PRODUCE = Where(api=ApiKey.PRODUCE)


def run(program: pathlib.Path, code: str, *arguments: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; from a file, which a spawned child can import."""
    program.write_text(code)
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "program.py"


FORGOTTEN = """
import sys
loop, compression, servers = sys.argv[1:]
if loop == "asyncio":
    sys.modules["uvloop"] = None  # as if it were not installed
from aioproducer import BlockingProducer
producer = BlockingProducer(servers, compression_type=compression, linger_ms=600_000, exit_flush_timeout_ms=20_000)
producer.start(wait=False)
for n in range(300):
    producer.enqueue("orders", b"%03d" % n + bytes(1000), partition=0)
"""


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_forgotten_records_are_delivered(
    cluster: ClusterElsewhere, program: pathlib.Path, *, loop: str, compression: str
) -> None:
    """The name is looked up, and the batch compressed, when no thread can be started any more."""
    servers = f"localhost:{cluster.bootstrap_servers.rpartition(':')[2]}"

    ended = run(program, FORGOTTEN, loop, compression, servers)

    assert (ended.stderr, ended.returncode) == ("", 0)
    assert [value[:3] for value in cluster.values() if value] == [b"%03d" % n for n in range(300)]


NOT_DELIVERED = """
import logging, sys
from aioproducer import BlockingProducer
logging.basicConfig(stream=sys.stdout, level=logging.WARNING)
producer = BlockingProducer(sys.argv[1], exit_flush_timeout_ms=int(sys.argv[2])).start()
for n in range(5):
    producer.enqueue("orders", b"payload")
"""


@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_records_that_are_not_delivered_are_reported(
    cluster: ClusterElsewhere, program: pathlib.Path, timeout_ms: int
) -> None:
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))

    ended = run(program, NOT_DELIVERED, cluster.bootstrap_servers, str(timeout_ms))

    assert ended.returncode == 0
    (line,), (event,) = ended.stderr.splitlines(), ended.stdout.splitlines()
    assert "aioproducer: 5 records were not delivered within" in line
    assert f"{program}:5" in line
    assert "event='producer_not_closed'" in event
    assert "records_undelivered=5" in event
    assert "WARNING" in event
    assert "payload" not in ended.stderr + ended.stdout


CLOSED_IN_A_HOOK = """
import atexit, logging, sys, weakref
hook, servers, timeout = sys.argv[1], sys.argv[2], float(sys.argv[3])

def close():
    try:
        print("close:", producer.close(timeout))
    except Exception as error:
        print(type(error).__name__, getattr(error, "count", None))

class Handler(logging.Handler):
    def close(self):
        close()

class Resource:
    pass

if hook == "atexit before the import":
    atexit.register(close)
elif hook == "logging.shutdown":
    logging.getLogger("app").addHandler(Handler())
elif hook == "weakref.finalize":
    resource = Resource()
    weakref.finalize(resource, close)
from aioproducer import BlockingProducer
if hook == "atexit after the import":
    atexit.register(close)
producer = BlockingProducer(servers, exit_flush_timeout_ms=0).start()
for n in range(5):
    producer.enqueue("orders", b"%d" % n, partition=0)
"""

HOOKS = ["atexit before the import", "atexit after the import", "logging.shutdown", "weakref.finalize"]


@pytest.mark.parametrize("hook", HOOKS)
def test_close_in_an_exit_hook_delivers(cluster: ClusterElsewhere, program: pathlib.Path, hook: str) -> None:
    ended = run(program, CLOSED_IN_A_HOOK, hook, cluster.bootstrap_servers, "30")

    assert (ended.stdout, ended.returncode) == ("close: None\n", 0), ended.stderr
    assert cluster.values() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("hook", HOOKS)
def test_close_in_an_exit_hook_raises_what_was_not_delivered(
    cluster: ClusterElsewhere, program: pathlib.Path, hook: str
) -> None:
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))

    ended = run(program, CLOSED_IN_A_HOOK, hook, cluster.bootstrap_servers, "0.05")

    assert ended.stdout == "UndeliveredError 5\n", ended.stderr


FAILED_EARLY = """
import atexit, sys
def close():
    try:
        producer.close()
    except Exception as error:
        print(type(error).__name__, error.count)
atexit.register(close)
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1]).start()
producer.enqueue("orders", b"v")
"""


def test_failure_met_while_the_process_ends_is_raised_by_close(
    cluster: ClusterElsewhere, program: pathlib.Path
) -> None:
    cluster.do(lambda fake: fake.faults.error(29, PRODUCE))  # TOPIC_AUTHORIZATION_FAILED

    ended = run(program, FAILED_EARLY, cluster.bootstrap_servers)

    assert ended.stdout == "UndeliveredError 1\n", ended.stderr
    assert "1 record was not delivered" in ended.stderr


CHILD = """
import atexit, multiprocessing, sys
from aioproducer import BlockingProducer

def work(servers, timeout_ms):
    global producer
    producer = BlockingProducer(servers, exit_flush_timeout_ms=timeout_ms).start()
    for n in range(5):
        producer.enqueue("orders", b"%d" % n, partition=0)
    sys.exit(3)

if __name__ == "__main__":
    method, servers, timeout_ms = sys.argv[1:]
    child = multiprocessing.get_context(method).Process(target=work, args=(servers, int(timeout_ms)))
    child.start()
    child.join()
    print(child.exitcode)
"""

METHODS = pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())


@METHODS
def test_end_of_a_multiprocessing_child_delivers(cluster: ClusterElsewhere, program: pathlib.Path, method: str) -> None:
    """A forked child runs no `atexit` hooks."""
    ended = run(program, CHILD, method, cluster.bootstrap_servers, "20000")

    assert (ended.stdout, ended.stderr) == ("3\n", "")
    assert cluster.values() == [b"0", b"1", b"2", b"3", b"4"]


@METHODS
def test_end_of_a_multiprocessing_child_reports_what_is_lost(
    cluster: ClusterElsewhere, program: pathlib.Path, method: str
) -> None:
    """Once, though a spawned child has `atexit` hooks as well."""
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))

    ended = run(program, CHILD, method, cluster.bootstrap_servers, "20")

    assert ended.stdout == "3\n"
    assert ended.stderr.count("aioproducer: 5 records were not delivered") == 1
    assert len(ended.stderr.splitlines()) == 1


DROPPED = """
import sys
from aioproducer import BlockingProducer

def work():
    producer = BlockingProducer(sys.argv[1], exit_flush_timeout_ms=int(sys.argv[2])).start()
    for n in range(5):
        producer.enqueue("orders", b"%d" % n, partition=0)

work()
print("goes on")
"""


def test_dropped_producer_delivers(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    """On a thread of its own, which the end of the process waits for."""
    ended = run(program, DROPPED, cluster.bootstrap_servers, "20000")

    assert (ended.stdout, ended.stderr, ended.returncode) == ("goes on\n", "", 0)
    assert cluster.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_dropped_producer_reports_what_is_lost(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))

    ended = run(program, DROPPED, cluster.bootstrap_servers, "20")

    (line,) = ended.stderr.splitlines()
    assert "5 records were not delivered within 0.02 s" in line
    assert "was dropped without close()" in line


DROPPED_AND_BLOCKED = """
import sys, threading, time
from aioproducer import BlockingProducer
blocked = threading.Event()

def block(metadata, error):
    blocked.set()
    time.sleep(60)

def work():
    producer = BlockingProducer(sys.argv[1], exit_flush_timeout_ms=20).start()
    producer.enqueue("orders", b"first", on_delivery=block)
    blocked.wait()
    for n in range(5):
        producer.enqueue("orders", b"%d" % n, partition=0)

work()
"""


def test_dropped_producer_that_cannot_close_reports_too(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    """Its close gives up a second after its time, and its thread ends later than the process."""
    ended = run(program, DROPPED_AND_BLOCKED, cluster.bootstrap_servers)

    (line,) = ended.stderr.splitlines()
    assert "5 records were not delivered within 0.02 s" in line
    assert "was dropped without close()" in line


TRANSACTION = """
import sys
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1], transactional_id="t").start()
producer.begin_transaction()
producer.send("orders", b"acknowledged, and not committed")
"""


def test_open_transaction_is_reported(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    """Its records were acknowledged, and no reader of committed records will see them."""
    ended = run(program, TRANSACTION, cluster.bootstrap_servers)

    assert "aioproducer: 1 record was not delivered" in ended.stderr


ASYNCIO = """
import asyncio, sys
from aioproducer import Producer
kept = []

async def main(servers):
    producer = await Producer(servers).start()
    if sys.argv[1] == "kept":
        kept.append(producer)
    for _ in range(5):
        producer.send("orders", b"v")

if sys.argv[2] == "asyncio.run":
    asyncio.run(main(sys.argv[3]))
else:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main(sys.argv[3]))
    if sys.argv[2] == "closed loop":
        loop.close()
"""


@pytest.mark.parametrize("reference", ["kept", "dropped"])
@pytest.mark.parametrize("end", ["asyncio.run", "closed loop", "stopped loop"])
def test_unclosed_asyncio_producer_reports_losses(
    cluster: ClusterElsewhere, program: pathlib.Path, *, reference: str, end: str
) -> None:
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))

    ended = run(program, ASYNCIO, reference, end, cluster.bootstrap_servers)

    assert ended.stderr.count("aioproducer: 5 records were not delivered: producer 'producer-1'") == 1
    assert ended.returncode == 0


CLOSED = """
import asyncio, sys
from aioproducer import BlockingProducer, Producer
with BlockingProducer(sys.argv[1]) as producer:
    producer.enqueue("orders", b"1")
never_started = BlockingProducer(sys.argv[1])

async def main():
    async with Producer(sys.argv[1]) as producer:
        await producer.enqueue("orders", b"2")

asyncio.run(main())
"""


def test_closed_producers_are_not_reported(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    ended = run(program, CLOSED, cluster.bootstrap_servers)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)


NEVER_CLOSED = """
import sys
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1]).start()
print(producer.send("orders", b"v").offset, flush=True)
"""


def test_program_that_never_closes_it_ends(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    ended = run(program, NEVER_CLOSED, cluster.bootstrap_servers, timeout_s=10)

    assert (ended.stdout, ended.returncode) == ("0\n", 0)


SLOW_END = """
import atexit, ctypes, signal, sys, time
atexit.register(time.sleep, float(sys.argv[3]))  # called last: the loop has nothing to do when the interpreter ends
loop, servers, _ = sys.argv[1:]
if loop == "asyncio":
    sys.modules["uvloop"] = None  # as if it were not installed
from aioproducer import BlockingProducer
producer = BlockingProducer(servers).start()
producer.enqueue("orders", b"v", partition=0)
ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).pause)  # called when there is no interpreter any more
signal.alarm(3)
"""


@pytest.mark.parametrize("loop, seconds", [("asyncio", "0.3"), ("uvloop", "0.3"), ("uvloop", "0")])
def test_events_after_the_end_of_the_interpreter_do_no_harm(
    cluster: ClusterElsewhere, program: pathlib.Path, *, loop: str, seconds: str
) -> None:
    """Connections are closed while the process still ends; its thread must not ask for the interpreter's lock."""
    program.write_text(SLOW_END)
    with subprocess.Popen([sys.executable, str(program), loop, cluster.bootstrap_servers, seconds]) as process:
        while cluster.values() != [b"v"]:
            time.sleep(0.01)
        time.sleep(1)  # until nothing but the end of the process is left
        cluster.do(lambda fake: fake.kill(fake.leader_of("orders", 0)))

        assert process.wait(30) == -signal.SIGALRM


STARTED_AT_THE_END = """
import atexit, ctypes, signal, sys, time

def start():
    global producer
    producer = BlockingProducer(sys.argv[1]).start()
    print(len(producer.partitions_for("orders")), flush=True)
    time.sleep(0.3)

atexit.register(start)  # before the import: it is called behind the producer's own hook
from aioproducer import BlockingProducer
ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).pause)
signal.alarm(4)
"""


def test_producer_started_in_an_exit_hook_rests_too(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    program.write_text(STARTED_AT_THE_END)
    command = [sys.executable, str(program), cluster.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
        time.sleep(1)  # until nothing but the end of the process is left
        cluster.do(lambda fake: fake.kill(fake.leader_of("orders", 0)))

        assert process.wait(30) == -signal.SIGALRM


LATE = """
import atexit, sys
call, limit_ms = sys.argv[2], int(sys.argv[3])

def late():
    for n in range(3):
        record = b"late %d" % n
        try:
            if call == "topic.enqueue":
                topic.enqueue(record)
            elif call == "topic.send_threadsafe":
                topic.send_threadsafe(record)
            else:
                getattr(producer, call)("orders", record if call != "send_many" else [record])
        except Exception as error:
            print(type(error).__name__, flush=True)

atexit.register(late)  # before the package's own hook, so it runs after that
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1], linger_ms=600_000, exit_flush_timeout_ms=limit_ms, delivery_timeout_ms=700_000)
topic = producer.topic("orders", value=bytes)
producer.start(wait=False)
producer.partitions_for("orders")
"""
LATE_CALLS = ["enqueue", "send_threadsafe", "topic.enqueue", "topic.send_threadsafe"]


@pytest.mark.parametrize("call", LATE_CALLS)
def test_record_of_a_later_exit_hook_is_delivered(cluster: ClusterElsewhere, program: pathlib.Path, call: str) -> None:
    """As that of a logging handler, whose module's hook runs later: nothing looks at it afterwards."""
    ended = run(program, LATE, cluster.bootstrap_servers, call, "20000")

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
    assert sorted(value for value in cluster.values() if value) == [b"late 0", b"late 1", b"late 2"]


@pytest.mark.parametrize("call", LATE_CALLS)
def test_record_of_a_later_exit_hook_is_reported_if_lost(
    cluster: ClusterElsewhere, program: pathlib.Path, call: str
) -> None:
    """Once the time of `exit_flush_timeout_ms` is over, the call refuses it."""
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    ended = run(program, LATE, cluster.bootstrap_servers, call, "500")

    assert "1 record was not delivered within 0.5 s" in ended.stderr
    assert ended.stdout.split() == ["ProducerClosedError"] * 2


LATE_ON_A_LOOP = """
import asyncio, atexit, sys, threading

def late():
    try:
        future = producer.send_threadsafe("orders", b"late")
        print(future.result(0).topic)
    except Exception as error:
        print(type(error).__name__, flush=True)

atexit.register(late)
from aioproducer import Producer
loop = asyncio.new_event_loop()
producer = Producer(sys.argv[1], linger_ms=0)
if sys.argv[2] == "daemon":
    started = threading.Event()

    async def start():
        await producer.start()
        await producer.partitions_for("orders")
        started.set()

    def serve():
        loop.create_task(start())
        loop.run_forever()

    threading.Thread(target=serve, daemon=True).start()
    started.wait()
else:
    loop.run_until_complete(producer.start())
    if sys.argv[2] == "before":
        producer.send_threadsafe("orders", b"never begun")
    elif sys.argv[2] == "closed":
        loop.close()
"""


@pytest.mark.parametrize(
    "loop, said, lost",
    [
        ("daemon", "orders", ""),
        ("before", "ProducerClosedError", "1 record was not delivered"),
        ("ended", "ProducerClosedError", ""),
        ("closed", "ProducerClosedError", ""),
    ],
)
def test_send_threadsafe_to_a_loop_that_does_not_run(
    cluster: ClusterElsewhere, program: pathlib.Path, *, loop: str, said: str, lost: str
) -> None:
    """It is delivered, counted, or refused; what the loop never began is in the report."""
    ended = run(program, LATE_ON_A_LOOP, cluster.bootstrap_servers, loop)

    assert ended.stdout.split() == [said], ended.stderr
    assert ("not delivered" in ended.stderr, lost in ended.stderr) == (bool(lost), True)


HANDED_OVER_AT_A_FORK = """
import asyncio, multiprocessing, sys
from concurrent.futures import ThreadPoolExecutor
from aioproducer import Producer

async def send(value):
    async with Producer(sys.argv[1]) as producer:
        await producer.send("orders", value)

def child():
    asyncio.run(send(b"child"))

async def main():
    async with Producer(sys.argv[1]) as producer:
        with ThreadPoolExecutor() as pool:
            sending = pool.submit(producer.send_threadsafe, "orders", b"parent").result()
        process = multiprocessing.get_context("fork").Process(target=child)  # this loop has not begun the call
        process.start()
        process.join()
        await asyncio.wrap_future(sending)

asyncio.run(main())
"""


def test_record_handed_over_before_a_fork_is_the_parents(cluster: ClusterElsewhere, program: pathlib.Path) -> None:
    ended = run(program, HANDED_OVER_AT_A_FORK, cluster.bootstrap_servers)

    assert (ended.stderr, ended.returncode) == ("", 0)
    assert sorted(cluster.values()) == [b"child", b"parent"]
