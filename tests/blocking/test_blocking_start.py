"""Starts: by the first call that sends, and where the system or the environment cannot carry the background thread."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aioproducer import (
    BlockingProducer,
    ConfigurationError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerInterceptor,
    RecordMetadata,
)
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import CertificateAuthority
from tests.blocking.programs import run
from tests.fakes.producing import ClusterElsewhere

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
    done = run(program, cluster.bootstrap_servers, timeout_s=90)

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
    with pytest.raises(ProducerClosedError, match="make a new one"):
        unused.enqueue("orders", b"late")
    with pytest.raises(ProducerClosedError, match="make a new one"):
        unused.partitions_for("orders")


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


@pytest.mark.timing
@pytest.mark.parametrize("trouble", ["files uvloop", "files asyncio", "threads uvloop"])
def test_start_without_a_thread_or_loop_raises(cluster: ClusterElsewhere, trouble: str) -> None:
    ended = run(TROUBLE, cluster.bootstrap_servers, *trouble.split())

    first = "OSError" if "files" in trouble else "RuntimeError"
    assert ended.stdout == f"{first} False\nProducerClosedError True\n0 1\n", ended.stderr


FIRST_USE_IN_TROUBLE = """
import resource, sys, threading
from aioproducer import BlockingProducer, ProducerInterceptor

class Watching(ProducerInterceptor):
    closed = 0

    def close(self):
        self.closed += 1

watching = Watching()
producer = BlockingProducer(sys.argv[1], max_block_ms=1_000, interceptors=[watching])
if sys.argv[2] == "files":
    with open("/dev/null") as next_file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file.fileno(), 4_096))
else:
    threading.stack_size(1 << 46)
for call in (lambda: producer.send("orders", b"v"), lambda: producer.enqueue("orders", b"v")):
    try:
        call()
    except (OSError, RuntimeError) as error:
        print(type(error).__name__, watching.closed, flush=True)
if sys.argv[2] == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, 4_096))
else:
    threading.stack_size(0)
print(producer.send("orders", b"v").offset, [thread.name for thread in threading.enumerate()].count("aioproducer"))
producer.close()
print(watching.closed)
"""


@pytest.mark.timing
@pytest.mark.parametrize("trouble", ["files", "threads"])
def test_first_use_that_fails_leaves_it_to_the_next_call(cluster: ClusterElsewhere, trouble: str) -> None:
    """Without a descriptor or a thread for a moment; interceptors are closed with the producer only."""
    ended = run(FIRST_USE_IN_TROUBLE, cluster.bootstrap_servers, trouble)

    error = "OSError" if trouble == "files" else "RuntimeError"
    assert ended.stdout.split() == [error, "0", error, "0", "0", "1", "1"], ended.stderr


def test_start_may_follow_a_first_use_that_failed(cluster: ClusterElsewhere, tmp_path: Path) -> None:
    """Whose certificates are not there yet, for example."""
    ca_file = tmp_path / "ca.pem"
    servers = cluster.bootstrap_servers
    producer = BlockingProducer(servers, security_protocol="SSL", ssl_truststore_location=str(ca_file))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="ssl_truststore_location"):
            producer.send("orders", b"v")
    ca_file.write_text(CertificateAuthority().certificate)

    with producer.start(wait=False):
        assert "running" in repr(producer)


class Watching(ProducerInterceptor):
    """Counts its closes."""

    closes = 0

    def close(self) -> None:
        self.closes += 1


def test_start_after_a_failed_first_use_closes_hooks(tmp_path: Path) -> None:
    """A `start` that fails closes the producer for good, also after other attempts."""
    watching = Watching()
    options: Any = {"security_protocol": "SSL", "ssl_truststore_location": str(tmp_path / "missing.pem")}
    producer = BlockingProducer("127.0.0.1:9", interceptors=[watching], **options)
    with pytest.raises(ConfigurationError, match="ssl_truststore_location"):
        producer.send("orders", b"v")
    assert watching.closes == 0

    with pytest.raises(ConfigurationError, match="ssl_truststore_location"):
        producer.start()

    assert watching.closes == 1


def test_config_has_complete_ids_once_started(cluster: ClusterElsewhere) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, client_id="orders-{pid}")
    assert producer.config.client_id == "orders-{pid}"

    with producer:
        assert producer.config.client_id == f"orders-{os.getpid()}"


def test_health_starts_it_and_never_raises(unused: BlockingProducer, tmp_path: Path) -> None:
    """Also when it cannot be started, and once it is closed."""
    unused.health()  # as a start that waits for no broker
    assert "running" in repr(unused)
    unused.send("orders", b"v")
    assert unused.health() == (True, "")

    unused.close()
    options: Any = {"security_protocol": "SSL", "ssl_truststore_location": str(tmp_path / "missing.pem")}
    for producer, said in ((unused, "closed"), (BlockingProducer("127.0.0.1:9", **options), "ssl_truststore_location")):
        health = producer.health()
        assert not health.is_ready
        assert said in health.reason


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


@pytest.mark.timing
def test_closed_standard_streams(cluster: ClusterElsewhere) -> None:
    """Sockets get their numbers, which uvloop does not bear: it ends the process when it closes one."""
    ended = run(NO_STREAMS, cluster.bootstrap_servers)

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


@pytest.mark.timing
@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("environment", ["gevent", "eventlet"])
def test_patched_threads(cluster: ClusterElsewhere, environment: str, when: str) -> None:
    ended = run(GREENLETS, cluster.bootstrap_servers, environment, when)

    assert (ended.stdout, ended.returncode) == ("True 20 True\n", 0), ended.stderr
    assert cluster.values().count(b"sent") == 6
