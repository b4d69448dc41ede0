"""Hooks and callbacks run in the context (`contextvars`) of the call that gave the record, once per record."""

import asyncio
import contextvars
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer import NoTransactionError, Producer, ProducerInterceptor, ProducerRecord, RecordTooLargeError, Topic
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import give

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
FORBIDDEN = 29


class Notes(ProducerInterceptor):
    """An interceptor, a serializer, a partitioner and a callback that note in which context they are called."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def note(self, hook: str) -> None:
        self.seen.append((hook, REQUEST.get()))

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.note("on_send")
        return record

    def on_acknowledgement(self, metadata: object, headers: object) -> None:  # noqa: ARG002
        self.note("on_acknowledgement")

    def on_error(self, topic_partition: object, error: Exception, headers: object) -> None:  # noqa: ARG002
        self.note("on_error")

    def serialize(self, value: object) -> bytes:
        self.note("serializer")
        return str(value).encode()

    def partition(self, *_: object) -> int:
        self.note("partitioner")
        return 0

    def on_delivery(self, *_: object) -> None:
        self.note("on_delivery")

    def producer(self, cluster: FakeCluster, **options: object) -> Producer:
        hooks = {"interceptors": [self], "value_serializer": self.serialize, "partitioner": self}
        return Producer(cluster.bootstrap_servers, **hooks, **options)  # type: ignore[arg-type]


ALL = ["on_send", "serializer", "partitioner", "on_acknowledgement", "on_delivery"]


def in_request(name: str, call: Callable[[], object]) -> object:
    def run() -> object:
        REQUEST.set(name)
        return call()

    return contextvars.copy_context().run(run)


async def give_in_request(
    producer: Producer | Topic[object, object], verb: str, *arguments: object, **options: object
) -> None:
    """Give a record within the context of a request, and await its end outside."""
    given = in_request("7", lambda: getattr(producer, verb)(*arguments, **options))
    ended = await given  # type: ignore[misc]
    if asyncio.isfuture(ended):
        await ended


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, topics={"orders": 3}) as running:
        yield running


@pytest.mark.parametrize("topic", ["orders", "appears"])
@pytest.mark.parametrize("verb", ["send", "enqueue", "send_nowait"])
async def test_hooks_see_the_context_of_the_call(cluster: FakeCluster, verb: str, topic: str) -> None:
    """Also where the record waits for its topic, or a coroutine is awaited elsewhere; each hook is called once."""
    notes = Notes()
    async with notes.producer(cluster) as producer:
        await producer.partitions_for("orders" if verb != "send_nowait" else topic)
        await give_in_request(producer, verb, topic, "v", on_delivery=notes.on_delivery)

    assert notes.seen == [(hook, "7") for hook in ALL]


@pytest.mark.parametrize("verb", ["send", "enqueue", "send_nowait"])
async def test_hooks_of_a_typed_topic_see_the_context_of_the_call(one_broker: FakeCluster, verb: str) -> None:
    notes = Notes()
    async with notes.producer(one_broker) as producer:
        await producer.partitions_for("orders")
        topic: Topic[object, object] = producer.topic("orders", key=bytes, value=notes.serialize)  # type: ignore[assignment]
        await give_in_request(topic, verb, "v", on_delivery=notes.on_delivery)

    assert notes.seen == [(hook, "7") for hook in ALL]


async def test_callback_of_a_plain_record_sees_the_context_of_the_call(cluster: FakeCluster) -> None:
    notes = Notes()
    async with Producer(cluster.bootstrap_servers) as producer:
        for verb in ("send", "enqueue", "send_nowait"):
            for topic in ("orders", f"{verb}-appears"):
                await producer.partitions_for("orders" if verb != "send_nowait" else topic)
                await give_in_request(producer, verb, topic, b"v", on_delivery=notes.on_delivery)
        cluster.faults.error(FORBIDDEN, Where(api=ApiKey.PRODUCE))
        failed = in_request("8", lambda: producer.send("orders", b"v", on_delivery=notes.on_delivery))
        await asyncio.wait([failed])  # type: ignore[type-var]

    assert notes.seen == [("on_delivery", "7")] * 6 + [("on_delivery", "8")]


async def test_failures_are_notified_in_the_context_of_the_call(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(RecordTooLargeError):
            in_request("7", lambda: producer.send("orders", "v" * 2_000_000))
        one_broker.faults.error(FORBIDDEN, Where(api=ApiKey.PRODUCE))
        failed = in_request("8", lambda: producer.send("orders", "v"))
        await asyncio.wait([failed])  # type: ignore[type-var]

    assert [seen for seen in notes.seen if seen[0] == "on_error"] == [("on_error", "7"), ("on_error", "8")]


async def test_late_refusal_is_notified_in_the_calls_context(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker) as producer:
        coroutine = in_request("7", lambda: producer.enqueue("appears", "v" * 2_000_000))
        with pytest.raises(RecordTooLargeError):
            await coroutine  # type: ignore[misc]

    assert notes.seen == [("on_send", "7"), ("serializer", "7"), ("on_error", "7")]


async def test_hooks_of_a_call_from_another_thread_see_its_context(one_broker: FakeCluster) -> None:
    notes = Notes()

    def call() -> None:
        REQUEST.set("7")
        producer.send_threadsafe("orders", "v", on_delivery=notes.on_delivery).result()

    async with notes.producer(one_broker) as producer:
        await producer.partitions_for("orders")
        await asyncio.to_thread(call)

    assert notes.seen == [(hook, "7") for hook in ALL]


async def test_hooks_of_many_records_see_the_context_of_the_call(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker) as producer:
        await producer.partitions_for("orders")
        context = contextvars.copy_context()
        context.run(REQUEST.set, "7")
        bulk = await asyncio.create_task(producer.send_many("orders", ["a", "b"]), context=context)
        await bulk

    assert sorted(notes.seen) == sorted((hook, "7") for hook in ALL[:-1] * 2)


async def test_hooks_in_a_transaction_see_the_context_of_the_call(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker, transactional_id="worker") as producer, producer.transaction() as txn:
        for verb in ("send", "enqueue"):
            given = in_request(verb, lambda verb=verb: getattr(txn, verb)("orders", "v", on_delivery=notes.on_delivery))  # type: ignore[misc]
            if verb == "enqueue":
                await given  # type: ignore[misc]

    assert sorted(notes.seen) == sorted((hook, verb) for hook in ALL for verb in ("send", "enqueue"))


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue"])
async def test_hooks_run_once_though_memory_is_short(one_broker: FakeCluster, verb: str) -> None:
    """A record that waits for memory has passed its hooks already."""
    notes = Notes()
    options: dict[str, object] = {"buffer_memory": 40_000, "batch_size": 8_192, "linger_ms": 0}
    async with notes.producer(one_broker, **options) as producer:
        await producer.partitions_for("orders")
        sending = asyncio.gather(*(give(producer, verb, "orders", "v" * 5_000) for _ in range(30)))
        await asyncio.sleep(0)
        assert producer.statistics().records_waiting > 0
        await sending

    assert Counter(hook for hook, _ in notes.seen) == dict.fromkeys(ALL[:4], 30)


async def test_callbacks_of_send_only_interceptors_are_not_kept(one_broker: FakeCluster) -> None:
    """An interceptor with `on_send` alone costs nothing when its records end."""

    class OnlySends(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

    async with Producer(one_broker.bootstrap_servers, interceptors=[OnlySends()]) as producer:
        delivery = producer.send("orders", b"v", partition=0)
        assert not delivery._batch_result.has_callbacks
        await delivery


async def test_cancelled_wait_withdraws_a_record_whose_hooks_have_run(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker) as producer:
        enqueuing = asyncio.ensure_future(in_request("7", lambda: producer.enqueue("missing", "v")))  # type: ignore[call-overload]
        await asyncio.sleep(0)
        enqueuing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueuing
        await producer.flush()
        assert producer.statistics().records_waiting == 0

    assert notes.seen == [("on_send", "7"), ("serializer", "7"), ("on_error", "7")]


async def test_topic_known_before_the_await_takes_the_record(cluster: FakeCluster) -> None:
    """The partitioner, which could not choose at the call, chooses then."""
    notes = Notes()
    async with notes.producer(cluster, max_block_ms=2_000) as producer:
        enqueuing = in_request("7", lambda: producer.enqueue("appears", "v"))
        await producer.partitions_for("appears")
        delivery = await enqueuing  # type: ignore[misc]
        assert (await delivery).partition == 0

    assert notes.seen == [(hook, "7") for hook in ALL[:-1]]


async def test_record_awaited_after_its_transaction_is_refused(one_broker: FakeCluster) -> None:
    notes = Notes()
    async with notes.producer(one_broker, transactional_id="worker") as producer:
        async with producer.transaction() as txn:
            enqueuing = in_request("7", lambda: txn.enqueue("missing", "v"))
        with pytest.raises(NoTransactionError):
            await enqueuing  # type: ignore[misc]

    assert notes.seen == [("on_send", "7"), ("serializer", "7"), ("on_error", "7")]
