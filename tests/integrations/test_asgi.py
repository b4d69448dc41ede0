"""Web services: producers that start and close with them, readiness for load balancers, the time of a request."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from litestar import Litestar, asgi, get
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from aioproducer import BlockingProducer, Producer
from aioproducer.integrations.asgi import InvalidDeadlineError, deadline, lifespan, readiness
from aioproducer.testing import ApiKey, FakeCluster, MockProducer, Where
from tests.fakes.asgi_server import App, StartFailedError, client_of, serving
from tests.fakes.producing import cluster_elsewhere
from tests.produced import values
from tests.states.situations import producer_in

FRAMEWORKS = ["starlette", "fastapi", "litestar"]


def application(framework: str, *producers: Producer, wait: bool = True) -> App:
    """An application that sends b"tea" without waiting, at GET /."""

    async def send(_: Request) -> PlainTextResponse:
        producers[-1].send("orders", b"tea")
        return PlainTextResponse("accepted")

    @get("/")
    async def send_in_litestar() -> str:
        producers[-1].send("orders", b"tea")
        return "accepted"

    if framework == "starlette":
        return Starlette(lifespan=lifespan(*producers, wait=wait), routes=[Route("/", send)])
    if framework == "fastapi":
        return FastAPI(lifespan=lifespan(*producers, wait=wait), routes=[Route("/", send)])
    return Litestar([send_in_litestar], lifespan=[lifespan(*producers, wait=wait)], logging_config=None)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_lifespan_starts_and_delivers_what_was_accepted(cluster: FakeCluster, framework: str) -> None:
    producers = [Producer(cluster.bootstrap_servers, linger_ms=60_000) for _ in range(2)]
    async with serving(application(framework, *producers)) as client:
        answer = await client.get("/")
        states = [producer.explain().state for producer in producers]

    assert (answer.text, states) == ("accepted", ["running", "running"])
    assert values(cluster, "orders") == [b"tea"]
    assert [producer.explain().state for producer in producers] == ["closed", "closed"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_start_that_fails_ends_the_application_and_says_why(cluster: FakeCluster, framework: str) -> None:
    first = Producer(cluster.bootstrap_servers)
    second = Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(StartFailedError, match=r"no broker has answered within 0\.2 s.*127\.0\.0\.1:1"):
        async with serving(application(framework, first, second)):
            raise AssertionError

    assert first.explain().state == "closed"


async def test_application_that_does_not_wait_starts_without_brokers() -> None:
    producer = Producer("127.0.0.1:1")
    async with serving(application("starlette", producer, wait=False)):
        assert producer.explain().state == "running"


async def test_lifespan_of_the_user_runs_inside(cluster: FakeCluster) -> None:
    """Its producer is started before and closed after it, and what it yields is the application's state."""
    producer = Producer(cluster.bootstrap_servers)
    seen: list[str] = []

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[Mapping[str, object]]:
        assert isinstance(app, Starlette)
        seen.append(producer.explain().state)
        yield {"pool": "a pool"}
        await producer.send("orders", b"the last")
        seen.append(producer.explain().state)

    async def pool(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.pool)

    app = Starlette(lifespan=lifespan(producer, then=own), routes=[Route("/", pool)])
    async with app.router.lifespan_context(app) as state:
        assert state == {"pool": "a pool"}

    assert seen == ["running", "running"]
    assert producer.explain().state == "closed"


async def test_double_of_a_producer_is_told_whether_to_wait() -> None:
    seen: list[Mapping[str, bool]] = []

    class Double:
        """With the signature that a mock has."""

        async def start(self, **options: bool) -> None:
            seen.append(options)

        async def __aexit__(self, *_: object) -> None:
            """Nothing is open."""

    async with lifespan(Double(), wait=False)(None):
        assert seen == [{"wait": False}]


async def test_error_of_the_users_lifespan_closes_the_producer(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[None]:
        if "database" not in vars(app):
            raise LookupError("no database")
        yield

    with pytest.raises(StartFailedError, match="no database"):
        async with serving(Starlette(lifespan=lifespan(producer, then=own))):
            raise AssertionError

    assert producer.explain().state == "closed"


async def test_application_does_not_start_twice_with_one_producer(cluster: FakeCluster) -> None:
    app = application("starlette", Producer(cluster.bootstrap_servers))
    async with serving(app):
        pass

    with pytest.raises(StartFailedError, match="was closed; make a new one"):
        async with serving(app):
            raise AssertionError


@pytest.mark.parametrize(
    "producers,options,error",
    [
        ((), {}, "producers is empty: lifespan needs at least one Producer"),
        (("localhost:9092",), {}, r"producers\[0\] must be a Producer, not str"),
        ((Producer("localhost:9092"), Producer), {}, r"producers\[1\] must be a Producer, not type"),
        ((BlockingProducer("localhost:9092"),), {}, r"producers\[0\] must be a Producer, not BlockingProducer"),
        ((Producer("localhost:9092"),), {"wait": 5}, "wait must be True or False, not 5"),
        ((Producer("localhost:9092"),), {"then": "own"}, "then must be a lifespan, a function of .*, not str"),
    ],
)
def test_invalid_arguments_are_refused_at_once(
    producers: tuple[object, ...], options: Mapping[str, object], error: str
) -> None:
    with pytest.raises(TypeError, match=error):
        lifespan(*producers, **options)  # type: ignore[call-overload]


# Readiness, as load balancers ask


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
        else Litestar([asgi("/ready", is_mount=True, copy_scope=True)(probe)], logging_config=None)
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
        ((None,), r"producers\[0\] must be a Producer, a BlockingProducer or a Relay, not NoneType"),
        ((Producer,), r"producers\[0\] must be a Producer, a BlockingProducer or a Relay, not type"),
    ],
)
def test_invalid_producers_are_refused_at_once(producers: tuple[object, ...], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        readiness(*producers)  # type: ignore[arg-type]


# The time that a proxy gives a request


def request(*headers: tuple[str, str]) -> Request:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw})


@pytest.mark.parametrize(
    "header,value,seconds",
    [
        ("x-request-timeout", "2.5", 2.5),
        ("x-request-timeout", " 15 ", 15),
        ("x-envoy-expected-rq-timeout-ms", "1500", 1.5),
        ("grpc-timeout", "2H", 7200),
        ("grpc-timeout", "3M", 180),
        ("grpc-timeout", "4S", 4),
        ("grpc-timeout", "500m", 0.5),
        ("grpc-timeout", "90000000u", 90),
        ("grpc-timeout", "99999999n", 0.099999999),
    ],
)
def test_deadline_reads_each_header_in_its_unit(header: str, value: str, seconds: float) -> None:
    assert deadline(request((header, value))) == pytest.approx(seconds)


def test_smallest_time_counts() -> None:
    several = request(("grpc-timeout", "3S"), ("x-request-timeout", "2"), ("x-request-timeout", "7"))

    assert deadline(several) == 2
    assert deadline(several, at_most=30) <= 2  # type: ignore[operator]  # not None
    assert deadline(several, at_most=0.5) <= 0.5  # type: ignore[operator]


def test_no_header_leaves_no_deadline() -> None:
    assert deadline(request()) is None
    assert deadline(request(), at_most=5) == 5


def test_time_counts_from_the_first_call() -> None:
    this = request(("x-request-timeout", "20"))
    first = deadline(this)
    time.sleep(0.01)

    assert deadline(this) < first - 0.009  # type: ignore[operator]  # neither is None
    assert deadline(this.scope) < 20 - 0.009  # type: ignore[operator]  # as above


def test_time_counts_from_a_first_call_without_a_header() -> None:
    this = request()
    assert deadline(this) is None
    time.sleep(0.01)

    assert deadline(this, at_most=5) <= 5 - 0.009  # type: ignore[operator]  # not None


def test_time_counts_from_a_first_call_with_an_invalid_header() -> None:
    """A handler may answer with a time of its own choice."""
    this = request(("x-request-timeout", "soon"))
    with pytest.raises(InvalidDeadlineError):
        deadline(this)
    time.sleep(0.01)

    assert deadline(this, headers=["x-budget"], at_most=5) <= 5 - 0.009  # type: ignore[operator]  # not None


def test_no_time_left_is_an_error() -> None:
    this = request(("x-request-timeout", "0.005"))
    deadline(this)
    time.sleep(0.01)

    with pytest.raises(TimeoutError, match=r"the deadline of the request has passed, 0\.0 s ago"):
        deadline(this)


def test_headers_of_the_users_choice() -> None:
    this = request(("x-budget-ms", "250"), ("x-request-timeout", "1"))

    assert deadline(this, headers=["X-Budget-MS"]) == 0.25


@pytest.mark.parametrize("value", ["", "0", "0.0", "-1", "1e3", "inf", "nan", "5s", "0x10", "1,5", "٣", "9" * 4000])
@pytest.mark.parametrize("header", ["x-request-timeout", "x-envoy-expected-rq-timeout-ms"])
def test_invalid_header_is_named(header: str, value: str) -> None:
    scope = {"headers": [(header.encode(), value.encode())]}

    with pytest.raises(InvalidDeadlineError, match=f"header {header} must be a number above 0") as raised:
        deadline(scope)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize("value", ["", "5", "S", "0S", "1.5S", "123456789S", "5s", "5 S", "-1S"])
def test_invalid_grpc_timeout_is_named(value: str) -> None:
    with pytest.raises(InvalidDeadlineError, match="header grpc-timeout must be a number above 0"):
        deadline(request(("grpc-timeout", value)))


@pytest.mark.parametrize(
    "options,kind,error",
    [
        ({"at_most": "5"}, TypeError, "at_most must be a number of seconds or None, not str"),
        ({"at_most": True}, TypeError, "at_most must be a number of seconds or None, not bool"),
        ({"at_most": 0}, ValueError, "at_most must be a number of seconds above 0, not 0"),
        ({"at_most": float("nan")}, ValueError, "at_most must be a number of seconds above 0, not nan"),
        ({"at_most": float("inf")}, ValueError, "at_most must be a number of seconds above 0, not inf"),
        ({"headers": "x-budget"}, TypeError, "headers must be a sequence of names, not str"),
        ({"headers": {"x-budget"}}, TypeError, "headers must be a sequence of names, not set"),
        ({"headers": [b"x-budget"]}, ValueError, "headers must be names of headers, not b'x-budget'"),
        ({"headers": ["x budget"]}, ValueError, "headers must be names of headers, not 'x budget'"),
    ],
)
def test_invalid_arguments_are_named(options: Mapping[str, object], kind: type[Exception], error: str) -> None:
    with pytest.raises(kind, match=error):
        deadline(request(), **options)  # type: ignore[arg-type]


class SanicsRequest:
    @property
    def scope(self) -> object:
        """Sanic's own server has none."""
        raise NotImplementedError


@pytest.mark.parametrize("what", [None, "a request", {"type": "http"}, object(), SanicsRequest()])
def test_what_is_no_request_is_refused(what: object) -> None:
    kind = f"{type(what).__module__}.{type(what).__name__}"
    text = f"request must be a request of an ASGI framework, such as FastAPI, or an ASGI scope, not {kind}"
    with pytest.raises(TypeError, match=f"^{text}$"):
        deadline(what)  # type: ignore[arg-type]
