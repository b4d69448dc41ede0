"""What the inspector answers: its page, and the JSON behind it."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from aioproducer import BlockingProducer, KafkaError, Producer, UndeliveredError, Waiting, WaitReason
from aioproducer.integrations.asgi import inspector
from aioproducer.integrations.asgi._inspector import PARTITIONS, Inspector, document_of
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.asgi_server import App, client_of
from tests.fakes.producing import cluster_elsewhere
from tests.states.situations import producer_in

PRODUCE = Where(api=ApiKey.PRODUCE)


async def shown(app: App) -> list[dict[str, object]]:
    async with client_of(app) as client:
        answer = await client.get("/anything?state")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    producers: list[dict[str, object]] = answer.json()["producers"]
    return producers


async def test_page_is_whole_in_itself() -> None:
    """It loads nothing, and a browser would not let it: what is not of this answer does not run."""
    async with client_of(inspector(Producer("localhost:9092"))) as client:
        first, second = await client.get("/"), await client.get("/")

    page, policy = first.text, first.headers["content-security-policy"]
    (nonce,) = set(re.findall(r'nonce="([^"]+)"', page))
    assert f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert nonce not in second.text
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not fetched
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(| on\w+=| style=", page)
    assert (first.headers["cache-control"], first.headers["referrer-policy"]) == ("no-store", "no-referrer")


async def test_state_has_totals_nodes_and_what_waits(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="web") as producer:
        await producer.send("orders", b"v", partition=0)
        cluster.faults.stall(PRODUCE)
        await producer.enqueue("orders", b"x" * 100, partition=0)
        await producer.enqueue("orders", b"x" * 100, partition=1)
        await asyncio.sleep(0)
        (now,) = await shown(inspector(producer))
        cluster.faults.clear()

    assert (now["client_id"], now["state"], now["acknowledged"]) == ("web", "running", 1)
    nodes = now["nodes"]
    assert isinstance(nodes, list)
    assert [node["id"] for node in nodes] == [1, 2, 3]
    assert sum(node["requests"] for node in nodes) >= 2
    partitions = now["partitions"]
    assert isinstance(partitions, list)
    assert [(each["topic"], each["partition"], each["records"]) for each in partitions] == [
        ("orders", 0, 1),
        ("orders", 1, 1),
    ]


async def test_state_shows_calls_that_wait(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, transactional_id="t") as producer:
        await producer.begin_transaction()
        await producer.send("orders", b"v")
        one_broker.faults.stall(Where(api=ApiKey.END_TXN))
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)
        (now,) = await shown(inspector(producer))
        one_broker.faults.clear()
        await committing

    calls = now["calls"]
    assert isinstance(calls, list)
    assert [call["name"] for call in calls] == ["commit_transaction"]
    assert now["calls_left"] == 0


async def test_state_shows_why_a_failed_transaction_refuses(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, transactional_id="t") as producer:
        await producer.begin_transaction()
        one_broker.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, PRODUCE)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"v")
        await asyncio.sleep(0)
        (now,) = await shown(inspector(producer))
        await producer.abort_transaction()

    assert str(now["note"]).startswith("the transaction has failed")


async def test_state_shows_records_that_are_not_serialized(one_broker: FakeCluster) -> None:
    may_end = asyncio.Event()

    async def hanging(_value: bytes) -> bytes:
        await may_end.wait()
        return b"v"

    async with Producer(one_broker.bootstrap_servers, value_serializer=hanging) as producer:
        call = asyncio.ensure_future(producer.enqueue("orders", b"v"))
        await asyncio.sleep(0)
        (now,) = await shown(inspector(producer))
        may_end.set()
        await (await call)

    assert now["waiting_records"] == 1
    partitions = now["partitions"]
    assert isinstance(partitions, list)
    assert [(each["topic"], each["partition"], each["reason"]) for each in partitions] == [
        ("orders", None, "serializer")
    ]


async def test_no_payload_and_no_secret_leaves(one_broker: FakeCluster) -> None:
    secured = Producer(
        one_broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="web",
        sasl_password="secret-password",
        allow_plaintext_credentials=True,
    )
    await secured.start(wait=False)
    async with Producer(one_broker.bootstrap_servers) as producer:
        one_broker.faults.stall(PRODUCE)
        producer.send("orders", b"secret-value", key=b"secret-key", headers=[("secret-header", b"secret-header-value")])
        async with client_of(inspector(producer, secured)) as client:
            text = (await client.get("/?state")).text
        one_broker.faults.clear()
    await secured.close(0)

    assert '"topic":"orders"' in text
    assert "secret" not in text


@pytest.mark.parametrize("state", ["new", "starting", "failed", "closing", "closed"])
async def test_producer_in_each_state_is_shown(state: str) -> None:
    async with producer_in(state) as producer:
        (now,) = await shown(inspector(producer))

    assert now["state"] == state
    assert bool(now["note"]) == (state not in {"starting", "closing"})


async def test_forked_producer_is_shown_as_such(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        producer._mark_forked()
        (now,) = await shown(inspector(producer))
        producer._lifecycle.is_forked = False  # noqa: SLF001  # so that it can be closed

    assert now["state"] == "forked"
    assert "made before a fork" in str(now["note"])
    assert now["nodes"] == []


async def test_two_producers_of_both_kinds_share_a_page(cluster: FakeCluster) -> None:
    with cluster_elsewhere() as elsewhere, BlockingProducer(elsewhere.bootstrap_servers, client_id="a") as blocking:
        blocking.send("orders", b"v")
        async with Producer(cluster.bootstrap_servers, client_id="b") as producer:
            found = await shown(inspector(blocking, producer))

    assert [(now["client_id"], now["state"], now["acknowledged"]) for now in found] == [
        ("a", "running", 1),
        ("b", "running", 0),
    ]


async def test_same_error_of_many_partitions_is_one_reason(cluster: FakeCluster) -> None:
    cluster.create_topic("orders", 3)
    cluster.faults.error(ErrorCode.NOT_ENOUGH_REPLICAS, PRODUCE, times=None)
    async with Producer(cluster.bootstrap_servers, retry_backoff_ms=20_000, retry_backoff_max_ms=20_000) as producer:
        for partition in range(3):
            await producer.enqueue("orders", b"v", partition=partition)
        async with asyncio.timeout(30):
            while producer.statistics().records_retried < 3:  # noqa: ASYNC110  # a page asks again
                await asyncio.sleep(0.01)
        (now,) = await shown(inspector(producer))
        cluster.faults.clear()
        with pytest.raises(UndeliveredError):
            await producer.close(0)

    reasons = now["reasons"]
    assert isinstance(reasons, list)
    texts = {re.sub(r"^node [123]", "node", reason["words"]) for reason in reasons}
    error = "NOT_ENOUGH_REPLICAS: fewer replicas in sync than min.insync.replicas"
    assert texts == {f"node answered the last attempt with {error}"}


def waiting(topic: str, partition: int, age_s: float) -> Waiting:
    reason = {"reason": WaitReason.LINGER, "detail": "", "since_s": age_s, "until_s": 1.0, "deadline_s": 120 - age_s}
    return Waiting(topic, partition, 1, 2, 300, 0, age_s=age_s, **reason)  # type: ignore[arg-type]


def test_ten_thousand_partitions_are_cut_to_the_oldest() -> None:
    rows = [waiting(f"t{number % 10}", number // 10, number / 1000) for number in range(10_000)]
    view = Producer("localhost:9092")._view(explained=True)
    assert view.explanation is not None
    now = document_of(view._replace(explanation=replace(view.explanation, waiting=tuple(rows))))

    partitions = now["partitions"]
    assert isinstance(partitions, list)
    assert [each["age_s"] for each in partitions] == [(9_999 - number) / 1000 for number in range(PARTITIONS)]
    assert (partitions[0]["topic"], partitions[0]["partition"]) == ("t9", 999)
    assert now["partitions_left"] == 10_000 - PARTITIONS
    assert now["reasons"] == [{"words": "more records may join the batch", "records": 20_000, "oldest_s": 9.999}]
    assert len(json.dumps(now)) < 20_000


async def test_many_pages_cost_one_reading(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        app = inspector(producer)
        async with client_of(app) as client:
            answers = await asyncio.gather(*(client.get("/?state") for _ in range(20)))

    assert len({json.loads(answer.content)["at"] for answer in answers}) == 1


@pytest.mark.parametrize(
    "host,status",
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.0.0.1@evil.example:80", 403),
        ("[::1]:8080", 403),
        ("evil.example@localhost", 403),
        ("", 403),
        ("\xff", 403),
    ],
)
async def test_only_the_hosts_that_are_allowed_are_answered(host: str, status: int) -> None:
    app = Inspector([], hosts=frozenset({"localhost", "127.0.0.1"}))
    sent: list[Mapping[str, object]] = []

    async def receive() -> dict[str, object]:
        raise AssertionError

    async def send(message: Mapping[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", host.encode("latin-1"))]
    scope = {"type": "http", "method": "GET", "headers": headers, "query_string": b"state"}
    await app(scope, receive, send)

    assert sent[0]["status"] == status


@pytest.mark.parametrize(
    "host,options,status",
    [
        ("localhost", {}, 200),
        ("127.0.0.1:8080", {}, 200),
        ("[::1]:8080", {}, 200),
        ("orders.internal", {}, 403),
        ("evil.example", {}, 403),
        ("Orders.Internal:443", {"hosts": ["orders.internal"]}, 200),
        ("localhost", {"hosts": ["orders.internal"]}, 403),
        ("evil.example", {"hosts": ["*"]}, 200),
    ],
)
@pytest.mark.parametrize("query", ["", "?state"])
async def test_mounted_page_answers_only_its_hosts(
    host: str, options: Mapping[str, Sequence[str]], *, status: int, query: str
) -> None:
    async with client_of(inspector(Producer("localhost:9092"), **options)) as client:
        answer = await client.get(f"/{query}", headers={"host": host})

    assert answer.status_code == status
    assert ("hosts=[...]" in answer.text) == (status == 403)


@pytest.mark.parametrize(
    "hosts,error,text",
    [
        ("localhost", TypeError, r"hosts must be a list of names, as hosts=\["),
        (None, TypeError, "hosts must be a list"),
        ([b"localhost"], TypeError, "hosts must be a list"),
        (["https://orders.internal"], ValueError, "is no name of a host"),
        (["orders.internal:8080"], ValueError, "without scheme, port and path"),
        ([""], ValueError, "is no name"),
    ],
)
def test_hosts_that_are_no_names_are_refused(hosts: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        inspector(Producer("localhost:9092"), hosts=hosts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "producers,error",
    [
        ((), "producers is empty"),
        (("localhost:9092",), r"producers\[0\] must be a Producer, a BlockingProducer or a Relay, not str"),
    ],
)
def test_invalid_producers_are_refused_at_once(producers: tuple[object, ...], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        inspector(*producers)  # type: ignore[arg-type]
