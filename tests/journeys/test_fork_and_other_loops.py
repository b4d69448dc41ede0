"""A producer on another event loop of its thread, or in a fork: calls raise, and touch nothing of the first one's."""

import asyncio
import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator
from itertools import product

import pytest
import uvloop

from aioproducer import IllegalStateError, Producer, ProducerClosedError, TopicPartition
from aioproducer.testing import FakeCluster
from tests.fakes.producing import ClusterElsewhere, cluster_elsewhere, producing
from tests.produced import values

NewLoop = Callable[[], asyncio.AbstractEventLoop]
Verb = Callable[[Producer], Awaitable[object]]

NEW_LOOPS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def called(verb: Callable[[Producer], object]) -> Verb:
    async def call(producer: Producer) -> object:
        return verb(producer)

    return call


VERBS: dict[str, Verb] = {
    "send": called(lambda producer: producer.send("orders", b"v")),
    "send to an unknown topic": called(lambda producer: producer.send("nowhere", b"v")),
    "enqueue": lambda producer: producer.enqueue("orders", b"v"),
    "send_nowait": called(lambda producer: producer.send_nowait("orders", b"v")),
    "send_and_wait": lambda producer: producer.send_and_wait("orders", b"v"),
    "send_many": lambda producer: producer.send_many("orders", [b"v"]),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("orders"),
    "committed_offsets": lambda producer: producer.committed_offsets("group", [TopicPartition("orders", 0)]),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "topic.send": called(lambda producer: producer.topic("orders", value=str).send("v")),
    "topic.enqueue": lambda producer: producer.topic("orders", value=str).enqueue("v"),
    "topic.send_many": lambda producer: producer.topic("orders", value=str).send_many(["v"]),
    "start": lambda producer: producer.start(),
    "close": lambda producer: producer.close(),
}

TRANSACTIONAL_VERBS: dict[str, Verb] = {
    "send": VERBS["send"],
    "enqueue": VERBS["enqueue"],
    "send_many": VERBS["send_many"],
    "flush": VERBS["flush"],
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "send_offsets": lambda producer: producer.send_offsets({TopicPartition("in", 0): 1}, "group"),
}


@pytest.fixture(params=NEW_LOOPS)
def own(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = NEW_LOOPS[request.param]()
    yield loop
    loop.close()


@pytest.fixture
def cluster() -> Iterator[ClusterElsewhere]:
    """A cluster that answers whichever loop runs here."""
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


def started(own: asyncio.AbstractEventLoop, cluster: ClusterElsewhere, **options: str) -> Producer:
    producer = Producer(cluster.bootstrap_servers, **options)  # type: ignore[arg-type]  # all of them are texts
    own.run_until_complete(producer.start())
    own.run_until_complete(producer.partitions_for("orders"))
    return producer


def refusal(verb: Verb, producer: Producer) -> str:
    async def call() -> None:
        await verb(producer)

    texts = set()
    for new_loop in NEW_LOOPS.values():
        with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(IllegalStateError) as caught:
            runner.run(call())
        texts.add(str(caught.value))
    (text,) = texts
    return text


@pytest.mark.parametrize("has_batch", [False, True], ids=["no batch", "open batch"])
@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}], ids=["native", "serializer"])
def test_verb_on_another_loop_is_refused(
    own: asyncio.AbstractEventLoop, cluster: ClusterElsewhere, *, has_batch: bool, options: dict[str, str]
) -> None:
    producer = started(own, cluster, **options)

    async def send(value: bytes) -> None:
        await producer.enqueue("orders", value, partition=0)

    if has_batch:
        own.run_until_complete(send(b"0"))
    before = producer.statistics()
    for verb in VERBS.values():
        assert "event loop" in refusal(verb, producer)
    after = producer.statistics()
    own.run_until_complete(send(b"1"))
    own.run_until_complete(producer.close())

    assert (after.records_sent, after.records_waiting) == (before.records_sent, before.records_waiting)
    assert cluster.values() == [b"0", b"1"][1 - has_batch :]


def test_transactional_verb_on_another_loop_is_refused(
    own: asyncio.AbstractEventLoop, cluster: ClusterElsewhere
) -> None:
    producer = started(own, cluster, transactional_id="t")
    own.run_until_complete(producer.begin_transaction())

    for verb in TRANSACTIONAL_VERBS.values():
        assert "event loop" in refusal(verb, producer)

    async def send() -> None:
        await producer.send("orders", b"1", partition=0)

    own.run_until_complete(send())
    own.run_until_complete(producer.commit_transaction())
    own.run_until_complete(producer.close())
    assert cluster.values() == [b"1"]


def test_records_are_accepted_between_two_runs_of_its_own_loop(
    own: asyncio.AbstractEventLoop, cluster: ClusterElsewhere
) -> None:
    producer = started(own, cluster)
    for number in range(3):
        producer.send("orders", b"%d" % number, partition=0)
        own.run_until_complete(producer.flush())
    own.run_until_complete(producer.close())

    assert cluster.values() == [b"0", b"1", b"2"]


def test_result_of_send_many_is_not_awaited_on_another_loop(
    own: asyncio.AbstractEventLoop, cluster: ClusterElsewhere
) -> None:
    producer = started(own, cluster)
    bulk = own.run_until_complete(producer.send_many("orders", [b"v"]))

    async def wait() -> None:
        await bulk

    with asyncio.Runner() as runner, pytest.raises(IllegalStateError, match="another event loop"):
        runner.run(wait())
    own.run_until_complete(producer.close())


FILES = pathlib.Path("/proc/self/fd")


def open_sockets() -> int:
    found = 0
    for each in FILES.iterdir():
        with contextlib.suppress(OSError):  # closed since
            found += str(each.readlink()).startswith("socket:")
    return found


@pytest.mark.skipif(not FILES.is_dir(), reason="no /proc")
@pytest.mark.parametrize("new_loop", NEW_LOOPS.values(), ids=NEW_LOOPS)
def test_sockets_are_closed_when_asyncio_run_ends(new_loop: NewLoop) -> None:
    """Nothing could close them afterwards; a later close says so."""
    gc.collect()
    before = open_sockets()

    async def main() -> Producer:
        async with FakeCluster(1, topics={"orders": 1}) as cluster:
            producer = await Producer(cluster.bootstrap_servers).start()
            await producer.send("orders", b"v")
            return producer

    with asyncio.Runner(loop_factory=new_loop) as runner:
        producer = runner.run(main())
    assert open_sockets() == before

    with pytest.raises(IllegalStateError, match=r"belonged to an event loop that is closed.* 0 records were not"):
        asyncio.run(producer.close())


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a loop that is closed with open transports ...
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ... and with tasks
@pytest.mark.parametrize("new_loop", NEW_LOOPS.values(), ids=NEW_LOOPS)
def test_connections_end_when_close_finds_the_loop_closed(new_loop: NewLoop) -> None:
    """A loop may be closed without cancelling its tasks; the broker sees the connection close all the same."""
    with cluster_elsewhere() as cluster:
        producer, own = Producer(cluster.bootstrap_servers), new_loop()
        own.run_until_complete(producer.start())
        own.close()

        with pytest.raises(IllegalStateError, match="belonged to an event loop that is closed"):
            asyncio.run(producer.close())
        while cluster.do(lambda fake: fake.connections):
            pass
    del producer, own
    gc.collect()  # here, where its warnings are ignored


def test_close_of_a_closed_producer_does_nothing_on_any_loop() -> None:
    async def main() -> Producer:
        async with producing() as (_, producer):
            await producer.send("orders", b"v")
        return producer

    producer = asyncio.run(main())

    asyncio.run(producer.close())
    with pytest.raises(ProducerClosedError):
        asyncio.run(start(producer))


async def start(producer: Producer) -> None:
    await producer.start()


def test_start_without_asyncio_names_it() -> None:
    starting = Producer("127.0.0.1:9").start()

    with pytest.raises(IllegalStateError, match=r"needs asyncio, and does not run on trio"):
        starting.send(None)


# In a fork


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


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


@forks
@pytest.mark.timing
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


@forks
@pytest.mark.timing
async def test_dropped_in_the_child_it_is_silent(producer: Producer) -> None:
    def drop() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            producer.__del__()

    assert in_child(drop) == 0


@forks
@pytest.mark.timing
def test_unstarted_producer_may_be_started_on_both_sides() -> None:
    """A server that loads its application and then forks its workers does this."""
    producer = Producer("127.0.0.1:9", max_block_ms=50)

    def attempt() -> None:
        with pytest.raises(TimeoutError):
            asyncio.run(start(producer))

    assert in_child(attempt) == 0
    attempt()


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


@forks
@pytest.mark.timing
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
