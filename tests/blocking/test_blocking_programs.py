"""Programs and processes: a fork, Ctrl-C, and an end without close."""

import os
import signal
import subprocess
import sys
import warnings
from itertools import product

import pytest

from aioproducer import BlockingProducer, IllegalStateError
from tests.fakes.cluster_elsewhere import ClusterElsewhere

pytestmark = pytest.mark.timing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_call_in_a_forked_child_raises(blocking: BlockingProducer) -> None:
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("loop, host, does_child_send", FORKS)
def test_child_of_a_fork_ends_by_itself(
    cluster: ClusterElsewhere, loop: str, host: str, *, does_child_send: bool
) -> None:
    """By the interpreter's own end, which waits for no thread that is not there, and with its own exit code."""
    port = cluster.bootstrap_servers.rpartition(":")[2]
    program = subprocess.run(
        [sys.executable, "-c", FORKED, loop, host, port, *["send"][:does_child_send]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (program.stdout, program.returncode) == ("3\n", 0), program.stderr
    assert sorted(map(str, cluster.values())) == ["b'child'", "b'parent'"][1 - does_child_send :]


NEVER_CLOSED = """
import sys
from aioproducer import BlockingProducer
producer = BlockingProducer(sys.argv[1]).start()
print(producer.send("orders", b"v").offset, flush=True)
"""


def test_program_that_never_closes_it_ends(cluster: ClusterElsewhere) -> None:
    program = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )

    assert (program.stdout, program.returncode) == ("0\n", 0)
