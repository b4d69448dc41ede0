"""`FakeCluster.in_thread`, and what `FakeCluster` says where its event loop does not run."""

import asyncio
import gc
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from aioproducer import BlockingProducer, IllegalStateError, Producer, TopicAuthorizationError
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, ThreadedFakeCluster, Where
from aioproducer.testing.kafka.server_properties import free_ports

OF_ONE_LOOP = {"model", "in_thread"}  # public names of `FakeCluster` that another thread cannot use


@pytest.fixture(name="threaded", scope="module")
def fixture_threaded() -> Iterator[ThreadedFakeCluster]:
    """Start one cluster for the module; a FakeCluster on pytest-asyncio's loop could not be shared like that."""
    with FakeCluster.in_thread(3, topics={"t": 1}) as cluster:
        yield cluster


def signatures(kind: type) -> dict[str, list[inspect.Parameter]]:
    members = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    functions = {name: value.fget if isinstance(value, property) else value for name, value in members.items()}
    return {
        name: [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters_of(function)]
        for name, function in functions.items()
        if name not in OF_ONE_LOOP
    }


def parameters_of(function: object) -> list[inspect.Parameter]:
    assert callable(function)
    return list(inspect.signature(function).parameters.values())[1:]


def test_threaded_cluster_has_every_method_of_a_cluster() -> None:
    assert signatures(ThreadedFakeCluster) == signatures(FakeCluster)
    assert not any(map(inspect.iscoroutinefunction, vars(ThreadedFakeCluster).values()))


def test_topic_deleted_by_many_threads_is_deleted_once(threaded: ThreadedFakeCluster) -> None:
    topics = [f"deleted-{number}" for number in range(40)]
    for topic in topics:
        threaded.create_topic(topic, 1)
    together = threading.Barrier(4)

    def delete_all(_: int) -> list[type | None]:
        together.wait()
        return [deleted(topic) for topic in topics]

    def deleted(topic: str) -> type | None:
        try:
            threaded.delete_topic(topic)
        except LookupError as error:
            return type(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        outcomes = Counter(outcome for each in pool.map(delete_all, range(4)) for outcome in each)

    assert outcomes == {None: 40, LookupError: 120}


def test_blocking_producer_survives_restart_of_the_leader(threaded: ThreadedFakeCluster) -> None:
    threaded.create_topic("orders", 1)
    leader = threaded.leader_of("orders", 0)
    with BlockingProducer(threaded.bootstrap_servers) as producer:
        producer.send("orders", b"1")
        threaded.kill(leader)
        producer.send("orders", b"2")
        threaded.restart(leader)
        threaded.move_leader("orders", 0, threaded.leader_of("orders", 0))
        producer.send("orders", b"3")

    assert [record.value for record in threaded.consumed("orders")] == [b"1", b"2", b"3"]
    assert threaded.end_offset("orders", 0) == threaded.high_watermark("orders", 0) == 3


def test_fault_of_another_thread_applies_once(threaded: ThreadedFakeCluster) -> None:
    refused = threaded.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE, topic="t"))
    with BlockingProducer(threaded.bootstrap_servers) as producer:
        with pytest.raises(TopicAuthorizationError):
            producer.send("t", b"refused")
        producer.send("t", b"accepted")

    assert refused.hits == 1


def test_stall_removed_in_another_thread_releases_requests(threaded: ThreadedFakeCluster) -> None:
    """No other event is needed to wake the brokers."""
    stall = threaded.faults.stall(Where(api=ApiKey.PRODUCE))
    with BlockingProducer(threaded.bootstrap_servers) as producer:
        producer.enqueue("t", b"late")
        while stall.hits == 0:
            threading.Event().wait(0.001)
        threaded.faults.clear()
        producer.flush(60)

    assert threaded.consumed("t")[-1].value == b"late"


def test_consumed_leaves_out_an_aborted_transaction(threaded: ThreadedFakeCluster) -> None:
    threaded.create_topic("paid", 2)
    with BlockingProducer(threaded.bootstrap_servers, transactional_id="payer") as producer:
        with producer.transaction() as txn:
            txn.enqueue("paid", b"kept, 1", partition=1)
            txn.enqueue("paid", b"kept, 0", partition=0)
        producer.begin_transaction()
        producer.enqueue("paid", b"dropped", partition=0)
        producer.flush()
        producer.abort_transaction()

    assert [record.value for record in threaded.consumed("paid")] == [b"kept, 0", b"kept, 1"]


def test_consumed_of_a_topic_that_does_not_exist(threaded: ThreadedFakeCluster) -> None:
    """It is empty if the topic would be created on first use; otherwise the name may be wrong."""
    assert threaded.consumed("never") == []
    with FakeCluster.in_thread(1, auto_create_topics=False) as strict, pytest.raises(LookupError, match="no topic"):
        strict.consumed("never")


def test_application_in_a_test_client_sends(threaded: ThreadedFakeCluster) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Producer(threaded.bootstrap_servers) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)
    with BlockingProducer(threaded.bootstrap_servers) as blocking:

        @app.post("/async/{order}")
        async def place_order(order: str) -> None:
            await app.state.producer.send("web", order.encode())

        @app.post("/sync/{order}")
        def place_order_in_thread(order: str) -> None:
            blocking.send("web", order.encode())

        with TestClient(app) as client:
            codes = [client.post("/async/1").status_code, client.post("/sync/2").status_code]

    assert codes == [200, 200]
    assert sorted(record.value or b"" for record in threaded.consumed("web")) == [b"1", b"2"]


async def test_threaded_cluster_serves_an_async_test(threaded: ThreadedFakeCluster) -> None:
    threaded.create_topic("async", 1)
    async with Producer(threaded.bootstrap_servers) as producer:
        await producer.send("async", b"1")
        threaded.kill(1)
        threaded.restart(1)

    assert len(threaded.consumed("async")) == 1


def test_stopped_threaded_cluster_can_be_read_and_started_again() -> None:
    threads = set(threading.enumerate())
    cluster = FakeCluster.in_thread(1, topics={"t": 1})
    with pytest.raises(RuntimeError, match=r"in_thread\(\)"):
        _ = cluster.bootstrap_servers
    for _ in range(2):
        with cluster:
            with pytest.raises(RuntimeError, match="started already"):
                cluster.start()
            with BlockingProducer(cluster.bootstrap_servers) as producer:
                producer.send("t", b"x")
        cluster.stop()

        assert set(threading.enumerate()) == threads
        assert len(cluster.consumed("t")) == 1
        assert len(cluster.requests) > 0
        with pytest.raises(RuntimeError, match="not running"):
            cluster.kill(1)


def test_threaded_cluster_that_cannot_start_leaves_no_thread() -> None:
    threads = set(threading.enumerate())
    (port,) = free_ports(1)
    with FakeCluster.in_thread(1, ports=[port]), pytest.raises(OSError, match="address already in use"):
        FakeCluster.in_thread(2, ports=[0, port]).start()

    assert set(threading.enumerate()) == threads


# A cluster on an event loop that does not run


def test_cluster_whose_loop_stands_still_says_so() -> None:
    """A sync test with an async fixture: without a word each call would wait for its whole time-out."""
    with asyncio.Runner() as runner:
        cluster = runner.run(started_cluster())
        with pytest.raises(IllegalStateError, match=r"is not running now.*FakeCluster\.in_thread\(\)"):
            _ = cluster.bootstrap_servers
        runner.run(cluster.stop())


async def ask(cluster: FakeCluster) -> None:
    _ = cluster.bootstrap_servers


async def kill(cluster: FakeCluster) -> None:
    await cluster.kill(1)


@pytest.mark.parametrize("act", [ask, kill])
def test_cluster_used_on_another_loop_says_so(act: Callable[[FakeCluster], Coroutine[object, object, None]]) -> None:
    """A fixture and a test on loops of different scopes."""
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        cluster = runner.run(started_cluster())
        with pytest.raises(IllegalStateError, match=r"FakeCluster\.in_thread\(\)"):
            other.run(act(cluster))
        runner.run(cluster.stop())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the ports were never closed
def test_cluster_whose_loop_is_closed_says_so() -> None:
    """The loop was that of `asyncio.run`."""
    cluster = asyncio.run(started_cluster())
    with pytest.raises(IllegalStateError, match=r"is closed.*FakeCluster\.in_thread\(\)"):
        _ = cluster.bootstrap_servers
    del cluster
    gc.collect()


async def test_threads_beside_a_running_loop_may_use_its_cluster(cluster: FakeCluster) -> None:
    """A BlockingProducer in an executor; what changes the cluster stays with the loop."""

    def send_blocking() -> None:
        with BlockingProducer(cluster.bootstrap_servers) as producer:
            producer.send("t", b"x")
        cluster.hold_replication(1)

    with pytest.raises(IllegalStateError, match="may be called from any thread"):
        await asyncio.to_thread(send_blocking)

    assert len(cluster.consumed("t")) == 1


async def started_cluster() -> FakeCluster:
    cluster = FakeCluster(1)
    await cluster.start()
    return cluster
