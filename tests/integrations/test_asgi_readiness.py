"""Whether producers can send, as load balancers ask."""

import asyncio
import threading

import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from aioproducer import BlockingProducer, Producer
from aioproducer.integrations.asgi import readiness
from aioproducer.testing import ApiKey, FakeCluster, MockProducer, Where
from tests.fakes.asgi_server import App, client_of
from tests.fakes.cluster_elsewhere import cluster_elsewhere
from tests.states.situations import producer_in


async def asked(app: App) -> tuple[int, bool, dict[str, object]]:
    """Status, whether all are ready, and the row of the first producer."""
    async with client_of(app) as client:
        answer = await client.get("/ready")
    document = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, document["ready"], document["producers"][0]


async def test_running_producer_is_ready(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="web") as producer:
        await producer.send("orders", b"v")
        status, ready, row = await asked(readiness(producer))

    assert (status, ready) == (200, True)
    assert row["connections"] in {1, 2, 3}
    assert {name: row[name] for name in row if name != "connections"} == {
        "client_id": "web",
        "ready": True,
        "reason": "",
        "state": "running",
        "brokers": 3,
        "records_pending": 0,
        "last_error": None,
    }


async def test_mock_producer_is_ready_too() -> None:
    async with MockProducer() as producer:
        status, ready, row = await asked(readiness(producer))

    assert (status, ready, row["reason"]) == (200, True, "")


@pytest.mark.parametrize(
    "state,reason",
    [
        ("new", "it is not started"),
        ("starting", "the producer is starting"),
        ("closing", "the producer is closing"),
        ("closed", "the producer is closed: nothing waits"),
        ("failed", "the producer has failed, and with it all that waited"),
    ],
)
async def test_producer_in_another_state_is_not_ready(state: str, reason: str) -> None:
    async with producer_in(state) as producer:
        status, ready, row = await asked(readiness(producer))

    assert (status, ready, row["state"]) == (503, False, state)
    assert str(row["reason"]).startswith(reason)


async def test_forked_producer_is_not_ready(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        producer._mark_forked()
        status, _, row = await asked(readiness(producer))
        producer._lifecycle.is_forked = False  # noqa: SLF001  # so that it can be closed

    assert (status, row["state"]) == (503, "forked")
    assert "create a new one in this process" in str(row["reason"])


async def test_producer_without_brokers_is_not_ready() -> None:
    producer = await Producer("127.0.0.1:1").start(wait=False)
    status, _, row = await asked(readiness(producer))
    await producer.close()

    assert (status, row["brokers"]) == (503, 0)
    assert str(row["reason"]).startswith("no broker has answered yet")


async def test_producer_whose_brokers_are_gone_is_not_ready(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, metadata_max_age_ms=100, reconnect_backoff_ms=10) as producer:
        await one_broker.kill(1)
        async with asyncio.timeout(30):
            while (await asked(readiness(producer)))[0] == 200:  # noqa: ASYNC110  # a probe asks again
                await asyncio.sleep(0.01)
        _, _, row = await asked(readiness(producer))

    assert str(row["reason"]).startswith("no broker can be reached: ")


async def test_all_producers_must_be_ready() -> None:
    with (
        cluster_elsewhere() as cluster,
        BlockingProducer(cluster.bootstrap_servers, client_id="threads") as blocking,
    ):
        async with client_of(readiness(blocking, Producer(cluster.bootstrap_servers))) as client:
            answer = await client.get("/")

    assert answer.status_code == 503
    assert [row["ready"] for row in answer.json()["producers"]] == [True, False]


async def test_probe_starts_a_blocking_producer() -> None:
    """Else a process whose only producer starts at its first call would never get one."""
    with cluster_elsewhere() as cluster:
        cluster.do(lambda each: each.faults.stall(Where(api=ApiKey.METADATA)))
        blocking = BlockingProducer(cluster.bootstrap_servers)
        status, _, row = await asked(readiness(blocking))
        assert (status, row["state"]) == (503, "running")
        assert str(row["reason"]).startswith("no broker has answered yet")

        cluster.do(lambda each: each.faults.clear())
        async with asyncio.timeout(30):
            while (await asked(readiness(blocking)))[0] != 200:  # noqa: ASYNC110  # a probe asks again
                await asyncio.sleep(0.01)
        blocking.close()
        status, _, row = await asked(readiness(blocking))

    assert (status, row["state"]) == (503, "closed")


async def test_probe_does_not_start_a_closed_blocking_producer() -> None:
    blocking = BlockingProducer("127.0.0.1:1")
    blocking.close()

    status, _, row = await asked(readiness(blocking))

    assert (status, row["reason"]) == (503, "the producer is closed: it takes no more records")


async def test_blocked_thread_of_a_blocking_producer_is_not_ready() -> None:
    blocked, over = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        blocked.set()
        over.wait(20)

    with cluster_elsewhere() as cluster, BlockingProducer(cluster.bootstrap_servers) as blocking:
        blocking.enqueue("orders", b"v", on_delivery=block)
        assert await asyncio.to_thread(blocked.wait, 10)
        status, _, row = await asked(readiness(blocking))
        over.set()

    assert status == 503
    assert "the event loop's thread does not answer" in str(row["reason"])


def test_only_get_and_head_are_answered() -> None:
    app = Starlette(routes=[Mount("/under", readiness(Producer("localhost:9092")))])
    client = TestClient(app)

    head, post = client.head("/under/"), client.post("/under/")

    assert (head.status_code, head.text, int(head.headers["content-length"]) > 50) == (503, "", True)
    assert (post.status_code, post.headers["allow"]) == (405, "GET, HEAD")
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/under/"):
        raise AssertionError


@pytest.mark.parametrize("framework", ["starlette", "litestar"])
async def test_readiness_is_a_route_of_each_framework(framework: str) -> None:
    probe = readiness(Producer("localhost:9092"))
    app = (
        Starlette(routes=[Route("/ready", probe)])
        if framework == "starlette"
        else Litestar([asgi("/ready", is_mount=True, copy_scope=True)(probe)])
    )

    status, _, row = await asked(app)

    assert (status, row["reason"]) == (503, "it is not started")


async def test_answer_has_no_secret(one_broker: FakeCluster) -> None:
    """The reason is the error of a connection, and no option."""
    one_broker.faults.stall(Where(api=ApiKey.METADATA))
    producer = Producer(
        one_broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="web",
        sasl_password="hunter2-hunter2",
        allow_plaintext_credentials=True,
    )
    await producer.start(wait=False)
    async with client_of(readiness(producer)) as client:
        answer = await client.get("/")
    await producer.close(0)

    assert answer.status_code == 503
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "producers,error",
    [
        ((), "producers is empty"),
        ((None,), r"producers\[0\] must be a Producer or a BlockingProducer, not NoneType"),
        ((Producer,), r"producers\[0\] must be a Producer or a BlockingProducer, not type"),
    ],
)
def test_invalid_producers_are_refused_at_once(producers: tuple[object, ...], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        readiness(*producers)  # type: ignore[arg-type]
