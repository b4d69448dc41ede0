"""Starts where the system or the environment cannot carry the background thread, each in a process of its own."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.fakes.cluster_elsewhere import ClusterElsewhere

pytestmark = pytest.mark.timing


def run(program: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


TROUBLE = """
import resource, sys, threading
from aioproducer import BlockingProducer, ProducerClosedError
import aioproducer._producer.runtime, structlog, uvloop
producer = BlockingProducer(sys.argv[1], max_block_ms=1_000)
if sys.argv[2] == "files":
    with open("/dev/null") as next_file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file.fileno(), 4_096))
    if sys.argv[3] == "asyncio":
        sys.modules["uvloop"] = None
else:
    threading.stack_size(1 << 46)
for _ in range(2):
    try:
        producer.start()
    except (OSError, RuntimeError) as error:
        print(type(error).__name__, isinstance(error, ProducerClosedError), flush=True)
producer.close()
if sys.argv[2] == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, 4_096))
else:
    threading.stack_size(0)
with BlockingProducer(sys.argv[1]) as again:
    print(again.send("orders", b"v").offset, [thread.name for thread in threading.enumerate()].count("aioproducer"))
"""


@pytest.mark.parametrize("trouble", ["files uvloop", "files asyncio", "threads uvloop"])
def test_start_without_a_thread_or_loop_raises(cluster: ClusterElsewhere, trouble: str) -> None:
    ended = run(TROUBLE, [cluster.bootstrap_servers, *trouble.split()])

    first = "OSError" if "files" in trouble else "RuntimeError"
    assert ended.stdout == f"{first} False\nProducerClosedError True\n0 1\n", ended.stderr


NO_STREAMS = """
import os, sys
out = os.dup(1)
for descriptor in (0, 1, 2):
    os.close(descriptor)
from aioproducer import BlockingProducer
with BlockingProducer(sys.argv[1]) as producer:
    offset = producer.send("orders", b"v").offset
os.write(out, b"%d" % offset)
"""


def test_closed_standard_streams(cluster: ClusterElsewhere) -> None:
    """Sockets get their numbers, which uvloop does not bear: it ends the process when it closes one."""
    ended = run(NO_STREAMS, [cluster.bootstrap_servers])

    assert (ended.stdout, ended.returncode) == ("0", 0)


GREENLETS = """
import sys, warnings
warnings.simplefilter("ignore")
environment, is_early = sys.argv[2], sys.argv[3] == "early"
if not is_early:
    import aioproducer
if environment == "gevent":
    from gevent import monkey, sleep, spawn
    monkey.patch_all()
else:
    import eventlet
    eventlet.monkey_patch()
    from eventlet import sleep, spawn
import threading
from aioproducer import BlockingProducer

steps, told = [], []

def step():
    while True:
        steps.append(1)
        sleep(0.001)

spawn(step)
# Of two brokers' names one is looked up; batches of a MiB are compressed on a thread.
with BlockingProducer(
    sys.argv[1].replace("127.0.0.1", "localhost"), compression_type="gzip", batch_size=1 << 20, linger_ms=50
) as producer:
    producer.send("orders", b"sent")
    for _ in range(20):
        producer.enqueue("orders", bytes(100_000), partition=0, on_delivery=lambda *end: told.append(end))
    producer.flush()
    threads = [threading.Thread(target=producer.send, args=("orders", b"sent")) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
before = len(steps)
try:
    BlockingProducer("localhost:9", max_block_ms=300).start()
except TimeoutError:
    print(len(steps) > before, len(told), all(error is None for _, error in told))
"""


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("environment", ["gevent", "eventlet"])
def test_patched_threads(cluster: ClusterElsewhere, environment: str, when: str) -> None:
    ended = run(GREENLETS, [cluster.bootstrap_servers, environment, when])

    assert (ended.stdout, ended.returncode) == ("True 20 True\n", 0), ended.stderr
    assert cluster.values().count(b"sent") == 6
