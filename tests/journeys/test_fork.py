"""A producer carried through a fork: the child is told at every call, and touches nothing of the parent's."""

import asyncio
import os
import warnings
from collections.abc import Callable

import pytest

from aioproducer import IllegalStateError, Producer
from aioproducer.testing import FakeCluster
from tests.produced import values

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


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
    """And the parent goes on as if nothing had been."""
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
    """It is the parent's to close."""

    def drop() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            producer.__del__()

    assert in_child(drop) == 0


def test_unstarted_producer_may_be_started_on_both_sides() -> None:
    """As a server that loads its application and then forks its workers does."""
    producer = Producer("127.0.0.1:9", max_block_ms=50)

    def start() -> None:
        with pytest.raises(TimeoutError):
            asyncio.run(started(producer))

    assert in_child(start) == 0
    start()


async def started(producer: Producer) -> None:
    """Start it."""
    await producer.start()
