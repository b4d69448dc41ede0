"""Serializers: those that fail, return an awaitable, take headers, or have the methods of a lifetime."""

import asyncio
import contextvars
import gc
import warnings
from collections.abc import Awaitable, Iterator
from functools import partial

import pytest

from aioproducer import (
    BlockingProducer,
    BrokerError,
    ConfigurationError,
    JsonSerializer,
    KafkaError,
    NoTransactionError,
    Outcome,
    Producer,
    ProducerClosedError,
    ProducerConfig,
    ProducerInterceptor,
    SerializationError,
    StringSerializer,
    TopicPartition,
    TransactionAbortedError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.produced import VERBS, give, produce_requests, values


def raises(_value: object) -> bytes:
    raise KeyError("inner")


def returns_text(_value: object) -> bytes:
    return "text"  # type: ignore[return-value]


def returns_number(_value: object) -> bytes:
    return 5  # type: ignore[return-value]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
@pytest.mark.parametrize(
    "serializer, message",
    [
        (raises, "KeyError: 'inner'"),
        (returns_text, "returned str"),
        (returns_number, "returned int"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_bad_serializer_is_an_error_at_the_call(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, verb: str, option: str, serializer: object, message: str
) -> None:
    async with Producer(one_broker.bootstrap_servers, **{option: serializer}) as producer:  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError, match=f"{option} {serializer.__name__}.*{message}") as caught:  # type: ignore[attr-defined]
            await give(producer, verb, "orders", b"v", key=b"k")

        assert isinstance(caught.value.__cause__, KeyError) == (serializer is raises)
        assert produce_requests(one_broker) == 0
        await producer.send("orders")  # null key and value need no serializer


async def test_serializer_may_make_a_null(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, value_serializer=lambda _value: None) as producer:
        await producer.send("orders", b"v")

    assert values(one_broker, "orders") == [None]


async def test_serializers_are_given_topic_and_value(one_broker: FakeCluster) -> None:
    async with Producer(
        one_broker.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=JsonSerializer()
    ) as typed:
        first = await typed.send("orders", {"a": [1]}, key="k")
        second = await typed.send("orders", None, key="k")

    assert first.topic_partition == second.topic_partition
    assert values(one_broker, "orders") == [b'{"a":[1]}', None]


# Serializers that are awaited


WAITING = ("send_and_wait", "enqueue")
NOT_WAITING = ("send", "send_nowait")


class Coded:
    """Waits for the first value of each kind, as a client of a schema registry does."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.may_end = asyncio.Event()
        self.error: BaseException | None = None
        self.awaited = 0

    def serialize(self, _topic: str, value: bytes, /) -> bytes | Awaitable[bytes | None] | None:
        return b"!" + value if value[:1] in self.known else self.later(value)

    async def later(self, value: bytes) -> bytes:
        self.awaited += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        self.known.add(value[:1])
        return b"!" + value


@pytest.mark.parametrize("verb", WAITING)
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
async def test_awaitable_is_awaited_once_per_unknown_kind(one_broker: FakeCluster, verb: str, option: str) -> None:
    coded = Coded()
    coded.may_end.set()
    async with Producer(one_broker.bootstrap_servers, **{option: coded}) as producer:  # type: ignore[arg-type]
        for _ in range(3):
            await give(producer, verb, "orders", b"v", key=b"k", partition=0)

    records = one_broker.records("orders", 0)
    expected = (b"!k", b"v") if option == "key_serializer" else (b"k", b"!v")
    assert [(record.key, record.value) for record in records] == [expected] * 3
    assert coded.awaited == 1


@pytest.mark.parametrize("is_typed", [False, True])
async def test_records_of_a_topic_keep_their_order(one_broker: FakeCluster, *, is_typed: bool) -> None:
    """A record whose bytes are there at once does not overtake one that waits; other topics go on."""
    coded = Coded()
    coded.known.add(b"k")
    serializer = None if is_typed else coded
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        enqueue = producer.topic("orders", value=coded).enqueue if is_typed else partial(producer.enqueue, "orders")
        first = asyncio.ensure_future(enqueue(b"u1", partition=0))
        second = asyncio.ensure_future(enqueue(b"k2", partition=0))
        one_broker.create_topic("other", partitions=1)
        others = producer.topic("other", value=coded)
        await others.send_and_wait(b"k3")
        assert not first.done()
        assert not second.done()
        coded.may_end.set()
        await asyncio.gather(first, second)
        await producer.flush()
        await enqueue(b"u4", partition=0)

    assert [record.value for record in one_broker.records("orders", 0)] == [b"!u1", b"!k2", b"!u4"]


async def test_send_many_awaits_and_keeps_the_order(one_broker: FakeCluster) -> None:
    coded = Coded()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded) as producer:
        asyncio.get_running_loop().call_later(0.01, coded.may_end.set)
        result = await (await producer.send_many("orders", [b"a1", b"b2", b"a3"], partition=0))

    assert result.delivered == 3
    assert [record.value for record in one_broker.records("orders", 0)] == [b"!a1", b"!b2", b"!a3"]
    assert coded.awaited == 2


async def asynchronous(_value: bytes) -> bytes:
    return b"later"


@pytest.mark.parametrize("verb", NOT_WAITING)
@pytest.mark.parametrize("is_typed", [False, True])
async def test_calls_that_do_not_wait_refuse_by_name(one_broker: FakeCluster, verb: str, *, is_typed: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a coroutine that was never awaited
        async with Producer(
            one_broker.bootstrap_servers, value_serializer=None if is_typed else asynchronous
        ) as producer:
            await producer.partitions_for("orders")
            send = getattr(producer.topic("orders", value=asynchronous) if is_typed else producer, verb)
            arguments = (b"v",) if is_typed else ("orders", b"v")
            with pytest.raises(SerializationError, match=r"asynchronous returned a coroutine.*use enqueue") as caught:
                send(*arguments)
            gc.collect()

            assert caught.value.outcome is Outcome.NOT_WRITTEN
            assert produce_requests(one_broker) == 0


async def test_both_parts_are_awaited_and_may_be_null(one_broker: FakeCluster) -> None:
    async def none(_value: bytes) -> None:
        return None

    async with Producer(one_broker.bootstrap_servers, key_serializer=none, value_serializer=asynchronous) as producer:
        metadata = await producer.send_and_wait("orders", b"v", key=b"k")
        await producer.send_and_wait("orders", None, partition=metadata.partition)

    records = one_broker.records("orders", metadata.partition)
    assert [(record.key, record.value) for record in records] == [(None, b"later"), (None, None)]


class Failing:
    def __init__(self, end: object) -> None:
        self.end = end

    async def serialize(self, _topic: str, _value: bytes, /) -> bytes | None:
        await asyncio.sleep(0)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end  # type: ignore[return-value]


@pytest.mark.parametrize(
    "end, message",
    [
        (KeyError("inner"), "value_serializer Failing failed for topic 'orders': KeyError: 'inner'"),
        (asyncio.CancelledError(), "value_serializer Failing failed for topic 'orders': CancelledError"),
        ("text", "value_serializer Failing returned str"),
        (5, "value_serializer Failing returned int"),
    ],
)
async def test_failing_awaitable_is_a_serialization_error(one_broker: FakeCluster, end: object, message: str) -> None:
    told: list[tuple[TopicPartition, Exception]] = []

    class Listening(ProducerInterceptor):
        def on_error(self, topic_partition: TopicPartition, error: Exception, headers: object = ()) -> None:  # noqa: ARG002
            told.append((topic_partition, error))

    async with Producer(
        one_broker.bootstrap_servers, value_serializer=Failing(end), interceptors=[Listening()]
    ) as producer:
        with pytest.raises(SerializationError, match=message) as caught:
            await producer.enqueue("orders", b"v", headers=[("h", b"1")])
        result = await (await producer.send_many("orders", [b"v", None], partition=1))

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert told[0] == (TopicPartition("orders", -1), caught.value)
    assert (result.delivered, list(result.errors)) == (1, [0])


async def test_slow_serializer_ends_at_max_block_ms(one_broker: FakeCluster) -> None:
    coded = Coded()
    coded.known.add(b"k")
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded, max_block_ms=50) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError, match="not serialized within max_block_ms=50") as caught:
            await producer.enqueue("orders", b"u")
        await producer.enqueue("orders", b"k")
        bulk = await producer.send_many("orders", [b"u"] * 1_000)
        errors = dict(bulk.refused)

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert len(errors) == 1_000
    assert coded.awaited == 2  # the others of the call were not tried
    assert values(one_broker, "orders") == [b"!k"]


async def test_cancelled_call_withdraws_and_lets_the_next_go_on(one_broker: FakeCluster) -> None:
    coded = Coded()
    coded.known.add(b"k")
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded) as producer:
        calls = [
            asyncio.ensure_future(producer.enqueue("orders", value, partition=0)) for value in (b"u1", b"k2", b"k3")
        ]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.sleep(0)
        assert not calls[2].done()  # it does not overtake the first
        calls[0].cancel()
        await calls[2]
        await producer.flush()

    assert [call.cancelled() for call in calls] == [True, True, False]
    assert values(one_broker, "orders") == [b"!k3"]


async def test_coroutine_that_is_never_awaited_holds_up_no_one(one_broker: FakeCluster) -> None:
    coded = Coded()
    coded.known.add(b"k")
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded) as producer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forgotten = producer.enqueue("orders", b"u1")
            forgotten.close()
            del forgotten
            gc.collect()
        await producer.send_and_wait("orders", b"k2")

    assert values(one_broker, "orders") == [b"!k2"]


async def test_on_delivery_and_partitioner_see_context_and_bytes(one_broker: FakeCluster) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[object] = []

    class Choosing:
        def partition(self, *arguments: object) -> int:
            seen.extend(arguments[1:5])
            return 2

    coded = Coded()
    coded.may_end.set()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded, partitioner=Choosing()) as producer:
        variable.set("of the call")
        coroutine = producer.enqueue("orders", b"v", key=b"k", on_delivery=lambda *_: seen.append(variable.get()))
        variable.set("of later")
        metadata = await (await coroutine)
        await producer.flush()

    assert metadata.partition == 2
    assert seen == [b"k", b"k", b"v", b"!v", "of the call"]


async def test_producer_that_closes_refuses_what_is_being_serialized(one_broker: FakeCluster) -> None:
    coded = Coded()
    producer = await Producer(one_broker.bootstrap_servers, value_serializer=coded).start()
    waiting = asyncio.ensure_future(producer.enqueue("orders", b"u"))
    await asyncio.sleep(0)
    await producer.close(0.05)

    with pytest.raises(ProducerClosedError) as caught:
        await asyncio.wait_for(waiting, 5)
    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("end", ["flush", "close"])
async def test_flush_and_close_wait_for_what_is_being_serialized(one_broker: FakeCluster, end: str) -> None:
    coded = Coded()
    producer = await Producer(one_broker.bootstrap_servers, value_serializer=coded).start()
    waiting = asyncio.ensure_future(producer.enqueue("orders", b"u"))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(getattr(producer, end)())
    await asyncio.sleep(0)
    coded.may_end.set()
    await ending

    assert values(one_broker, "orders") == [b"!u"]
    assert waiting.done()
    await producer.close()


async def test_flush_that_ends_before_a_serializer_says_so(one_broker: FakeCluster) -> None:
    coded = Coded()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded) as producer:
        waiting = asyncio.ensure_future(producer.enqueue("orders", b"u"))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError, match=r"1 batch or waiting record not yet .* after 0.01 s.*serializer"):
            await producer.flush(0.01)
        coded.may_end.set()
        await waiting


@pytest.mark.parametrize("end", ["commit_transaction", "prepare_transaction"])
async def test_transaction_ends_with_what_is_being_serialized(one_broker: FakeCluster, end: str) -> None:
    coded = Coded()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded, transactional_id="t") as producer:
        await producer.begin_transaction()
        waiting = asyncio.ensure_future(producer.enqueue("orders", b"u"))
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(getattr(producer, end)())
        await asyncio.sleep(0)
        coded.may_end.set()
        await ending
        assert (await waiting).done()
        await producer.abort_transaction() if end == "prepare_transaction" else await producer.begin_transaction()

    assert [record.value for record in one_broker.consumed("orders")] == [b"!u"] * (end == "commit_transaction")


async def test_block_of_a_transaction_commits_what_is_being_serialized(one_broker: FakeCluster) -> None:
    coded = Coded()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded, transactional_id="t") as producer:
        async with producer.transaction() as transaction:
            waiting = asyncio.ensure_future(transaction.enqueue("orders", b"u"))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.01, coded.may_end.set)
        assert (await waiting).done()

    assert [record.value for record in one_broker.consumed("orders")] == [b"!u"]


async def test_flush_waits_for_no_record_that_is_accepted_later(one_broker: FakeCluster) -> None:
    coded, later = Coded(), Coded()
    async with Producer(one_broker.bootstrap_servers, linger_ms=20_000) as producer:
        waiting = asyncio.ensure_future(producer.topic("orders", value=coded).enqueue(b"u"))
        await asyncio.sleep(0)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        one_broker.create_topic("other", partitions=1)
        other = asyncio.ensure_future(producer.topic("other", value=later).enqueue(b"w"))
        await asyncio.sleep(0)
        coded.may_end.set()
        await flushing
        assert (await waiting).done()
        assert not other.done()
        later.may_end.set()
        await other


@pytest.mark.parametrize("turns", [0, 1])  # before the call begins to wait, and while it waits
async def test_record_of_an_aborted_transaction_is_not_of_the_next(one_broker: FakeCluster, turns: int) -> None:
    coded = Coded()
    async with Producer(one_broker.bootstrap_servers, value_serializer=coded, transactional_id="t") as producer:
        await producer.begin_transaction()
        waiting = asyncio.ensure_future(producer.enqueue("orders", b"u"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        coded.may_end.set()
        with pytest.raises((TransactionAbortedError, NoTransactionError)):
            await waiting
        await producer.enqueue("orders", b"v")
        await producer.commit_transaction()

    assert [record.value for record in one_broker.consumed("orders")] == [b"!v"]


async def test_producer_that_fails_ends_what_is_being_serialized(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers) as producer:
        one_broker.faults.error(31, Where(api=ApiKey.PRODUCE))  # CLUSTER_AUTHORIZATION_FAILED
        refused = producer.send("orders", b"v")
        waiting = asyncio.ensure_future(producer.topic("orders", value=Coded()).enqueue(b"u"))
        with pytest.raises(BrokerError):
            await refused

        assert producer.explain().waiting == ()
        with pytest.raises(BrokerError) as caught:
            await asyncio.wait_for(waiting, 5)
        assert (caught.value.topic, caught.value.outcome) == ("orders", Outcome.NOT_WRITTEN)


def test_blocking_producer_awaits(threaded_cluster: str) -> None:
    async def serialize(value: bytes) -> bytes:
        await asyncio.sleep(0)
        return b"!" + value

    with BlockingProducer(threaded_cluster, value_serializer=serialize) as producer:
        producer.send("orders", b"v")
        producer.enqueue("orders", b"v")
        producer.topic("orders", value=serialize).send(b"v")
        assert producer.send_many("orders", [b"v"] * 3).delivered == 3
        producer.flush()
        assert producer.statistics().records_acknowledged == 6


@pytest.fixture
def threaded_cluster() -> Iterator[str]:
    with FakeCluster.in_thread() as cluster:
        yield cluster.bootstrap_servers


# Headers


class Marking:
    """Adds a header, as a serializer does that puts the schema's id there."""

    def __init__(self, *, waits: bool, added: object = ("id", b"7")) -> None:
        self.waits = waits
        self.added = added

    def serialize(
        self, _topic: str, value: bytes, headers: list[tuple[str, bytes | None]], /
    ) -> bytes | Awaitable[bytes | None] | None:
        if self.waits:
            return self.later(value, headers)
        headers.append(self.added)  # type: ignore[arg-type]
        return value + str(len(headers)).encode()

    async def later(self, value: bytes, headers: list[tuple[str, bytes | None]]) -> bytes:
        await asyncio.sleep(0)
        headers.append(self.added)  # type: ignore[arg-type]
        return value + str(len(headers)).encode()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_typed", [False, True])
async def test_serializer_may_add_headers(one_broker: FakeCluster, *, waits: bool, is_typed: bool) -> None:
    marking = Marking(waits=waits)
    given = [("own", b"1")]
    async with Producer(one_broker.bootstrap_servers, value_serializer=None if is_typed else marking) as producer:
        if is_typed:
            await producer.topic("orders", value=marking).send_and_wait(b"v", headers=given, partition=0)
        else:
            await producer.send_and_wait("orders", b"v", headers=given, partition=0)

    [record] = one_broker.records("orders", 0)
    assert record.value == b"v2"
    assert list(record.headers) == [("own", b"1"), ("id", b"7")]
    assert given == [("own", b"1")]  # the caller's list stays


@pytest.mark.parametrize("waits", [False, True])
async def test_invalid_header_of_a_serializer_is_refused(one_broker: FakeCluster, *, waits: bool) -> None:
    async with Producer(
        one_broker.bootstrap_servers, value_serializer=Marking(waits=waits, added=("id", 7))
    ) as producer:
        with pytest.raises(TypeError, match="header"):
            await producer.send_and_wait("orders", b"v")

        assert produce_requests(one_broker) == 0


# The methods of a lifetime


class Lived:
    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[object] = []

    def note(self, method: str, *arguments: object) -> None:
        self.calls.append((method, *arguments))
        if self.fails == method:
            raise KeyError("on purpose")

    def configure(self, config: ProducerConfig, is_key: bool) -> None:  # noqa: FBT001  # Kafka's signature
        self.note("configure", config.client_id, is_key)

    def on_cluster(self, cluster_id: str) -> None:
        self.note("on_cluster", cluster_id)

    def serialize(self, _topic: str, value: bytes, /) -> bytes:
        return value

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.note("close")


async def test_serializers_live_with_their_producer(one_broker: FakeCluster) -> None:
    own, early, late = Lived(), Lived(), Lived()
    producer = Producer(one_broker.bootstrap_servers, client_id="me", value_serializer=own)
    producer.topic("orders", key=early, value=early)
    assert own.calls == [("configure", "me", False)]
    async with producer:
        producer.topic("orders", value=late)
        producer.topic("other", value=late)
        cluster_id = own.calls[1][1]  # type: ignore[index]
        assert isinstance(cluster_id, str)
        assert own.calls[1:] == [("on_cluster", cluster_id)]
        assert late.calls == [("configure", "me", False), ("on_cluster", cluster_id)]

    assert own.calls[2:] == late.calls[2:] == [("close",)]
    assert early.calls == [
        ("configure", "me", True),
        ("configure", "me", False),
        ("on_cluster", cluster_id),
        ("close",),
    ]


async def test_configure_that_fails_is_an_error_of_the_configuration(one_broker: FakeCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"key_serializer Lived\.configure failed: KeyError: 'on purpose'"):
        Producer(one_broker.bootstrap_servers, key_serializer=Lived(fails="configure"))
    async with Producer(one_broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaError, match=r"value serializer Lived\.configure failed"):
            producer.topic("orders", value=Lived(fails="configure"))


@pytest.mark.parametrize("method", ["on_cluster", "close"])
async def test_other_failures_of_a_lifetime_are_logged(one_broker: FakeCluster, method: str) -> None:
    other = Lived()
    with LogCapture() as log:
        async with Producer(
            one_broker.bootstrap_servers, key_serializer=Lived(fails=method), value_serializer=other
        ) as producer:
            await producer.send("orders", b"v")

    [event] = log.naming("serializer_failed")
    assert "serializer='Lived'" in event
    assert f"method='{method}'" in event
    assert ("close",) in other.calls
