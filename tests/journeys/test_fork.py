"""A producer after a fork: every call in the child raises, and touches nothing of the parent's."""

import asyncio
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import product

import pytest

from aioproducer import IllegalStateError, Producer
from aioproducer.testing import FakeCluster
from tests.fakes.cluster_elsewhere import cluster_elsewhere
from tests.produced import values

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"), pytest.mark.timing]


def in_child(work: Callable[[], None]) -> int:
    """Run something in a fork of this process; its exit code, 0 = all went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: threads and fork
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_every_call_in_the_child_says_so(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.send("orders", b"before", partition=0)
    requests = len(one_broker.requests)

    def check() -> None:
        for verb in (producer.send, producer.send_nowait, producer.send_threadsafe):
            with pytest.raises(IllegalStateError, match="fork"):
                verb("orders", b"child")
        for make in (
            lambda: producer.enqueue("orders", b"child"),
            lambda: producer.send_and_wait("orders", b"child"),
            lambda: producer.send_many("orders", [b"child"]),
            producer.flush,
            producer.close,
            producer.start,
            lambda: producer.partitions_for("orders"),
        ):
            with pytest.raises(IllegalStateError, match="fork"):
                make().send(None)

    assert in_child(check) == 0
    assert len(one_broker.requests) == requests
    await producer.send("orders", b"after", partition=0)
    assert values(one_broker, "orders") == [b"before", b"after"]


async def test_dropped_in_the_child_it_is_silent(producer: Producer) -> None:
    def drop() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            producer.__del__()

    assert in_child(drop) == 0


def test_unstarted_producer_may_be_started_on_both_sides() -> None:
    """A server that loads its application and then forks its workers does this."""
    producer = Producer("127.0.0.1:9", max_block_ms=50)

    def start() -> None:
        with pytest.raises(TimeoutError):
            asyncio.run(started(producer))

    assert in_child(start) == 0
    start()


async def started(producer: Producer) -> None:
    await producer.start()


FORKING = """
import asyncio, os, sys, uvloop
from aioproducer import Producer
loop_module, host, port, does_child_send = *sys.argv[1:4], len(sys.argv) > 4
new_loop = {"asyncio": asyncio, "uvloop": uvloop}[loop_module].new_event_loop

async def send(producer, value):
    await producer.send("orders", value)

def make_and_send(loop, value):
    producer = Producer(f"{host}:{port}")
    loop.run_until_complete(producer.start())
    loop.run_until_complete(send(producer, value))
    return producer

loop = new_loop()
producer = make_and_send(loop, b"parent")
child = os.fork()
if child == 0:
    if does_child_send:
        own = new_loop()
        own.run_until_complete(make_and_send(own, b"child").close())
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
loop.run_until_complete(producer.close())
"""

CASES = list(product(["asyncio", "uvloop"], ["localhost", "127.0.0.1"], [False, True]))


@pytest.mark.parametrize("loop, host, does_child_send", CASES)
def test_child_ends_with_its_own_exit_code(loop: str, host: str, *, does_child_send: bool) -> None:
    """The pool of threads of uvloop for name look-ups does not survive a fork, and must not break the exit."""
    with cluster_elsewhere() as cluster:
        port = cluster.bootstrap_servers.rpartition(":")[2]
        command = [sys.executable, "-c", FORKING, loop, host, port, *["send"][:does_child_send]]
        program = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        sent = cluster.values()

    assert (program.stdout, program.returncode) == ("7\n", 0), program.stderr
    assert sorted(map(str, sent)) == ["b'child'", "b'parent'"][1 - does_child_send :]
