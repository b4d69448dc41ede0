"""Serializers, partitioners, and topic handles with types."""

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine
from dataclasses import dataclass

import pytest

from aioproducer import (
    Delivery,
    IllegalStateError,
    JsonSerializer,
    KafkaError,
    Outcome,
    Partitioner,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    SerializationError,
    StringSerializer,
    Topic,
)
from aioproducer.cluster import Cluster
from aioproducer.testing import FakeCluster
from tests.fakes.log_capture import LogCapture
from tests.produced import VERBS, give, produce_requests, values

# Serializers


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


# Partitioners


class Chosen:
    """A partitioner that makes a given choice, or raises it."""

    def __init__(self, choice: object) -> None:
        self.choice = choice
        self.batches: list[tuple[str, int]] = []
        self.is_closed = False

    def partition(self, *_: object) -> int:
        if isinstance(self.choice, Exception):
            raise self.choice
        return self.choice  # type: ignore[return-value]

    def on_new_batch(self, topic: str, _cluster: object, previous: int) -> None:
        self.batches.append((topic, previous))

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("choice", [99, -1, None, "0", True, 1.0, ZeroDivisionError("inner"), KeyError("k")], ids=repr)
async def test_bad_choice_is_a_value_error_that_names_the_partitioner(
    one_broker: FakeCluster, choice: object, *, is_known: bool
) -> None:
    async with Producer(one_broker.bootstrap_servers, partitioner=Chosen(choice)) as producer:
        if is_known:
            await producer.partitions_for("orders")
        with pytest.raises(ValueError, match=r"Chosen\.partition") as caught:
            await producer.send("orders", b"v")
        with pytest.raises(ValueError, match=r"Chosen\.partition"):
            await producer.enqueue("orders", b"v")

        assert isinstance(caught.value, KafkaError)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        assert produce_requests(one_broker) == 0
        await producer.send("orders", b"valid", partition=1)


async def test_partitioner_chooses_and_is_notified_of_batches(one_broker: FakeCluster) -> None:
    chosen = Chosen(2)
    async with Producer(one_broker.bootstrap_servers, partitioner=chosen, batch_size=500) as producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100))
        metadata = await producer.send("orders", b"v")
        written = producer.statistics().batches_sent

    assert metadata.partition == 2
    assert set(chosen.batches) == {("orders", 2)}
    assert written - 2 <= len(chosen.batches) <= written  # once of each; the last may not be asked about
    assert chosen.is_closed


async def test_failing_batch_notification_stops_nothing(one_broker: FakeCluster) -> None:
    class Failing(Chosen):
        def on_new_batch(self, *_: object) -> None:
            raise ZeroDivisionError

        def close(self) -> None:
            raise ZeroDivisionError

    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers, partitioner=Failing(0), batch_size=500) as producer:
            for _ in range(20):
                await producer.enqueue("orders", bytes(100))

    assert len(values(one_broker, "orders")) == 20
    assert len(log.naming("partitioner_failed")) >= 2


async def test_partitioner_may_send_when_told_of_a_batch(one_broker: FakeCluster) -> None:
    """Its record must not get into the record that is being written."""
    producers: list[Producer] = []

    class Sending(Chosen):
        def on_new_batch(self, *_: object) -> None:
            producers[0].send("orders", b"other", partition=1, headers=[("other", b"header" * 50)])

    producer = Producer(one_broker.bootstrap_servers, partitioner=Sending(0), batch_size=500)
    producers.append(producer)
    async with producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100), headers=[("own", b"1")])

    assert {tuple(record.headers) for record in one_broker.records("orders", 0)} == {(("own", b"1"),)}
    assert len(one_broker.records("orders", 1)) > 0


# A topic whose keys and values have types, from the call to the log


@dataclass
class Order:
    id: int


@pytest.fixture
def orders(producer: Producer) -> Topic[str, Order]:
    return producer.topic("orders", key=str, value=Order)


async def test_record_arrives_as_bytes_of_its_types(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    metadata = await orders.send(Order(7), key="customer-7", partition=1, timestamp=5, headers=[("h", b"1")])

    (found,) = one_broker.records("orders", 1)
    assert (found.key, found.value, found.timestamp) == (b"customer-7", b'{"id":7}', 5)
    assert list(found.headers) == [("h", b"1")]
    assert (metadata.topic, metadata.partition, metadata.offset) == ("orders", 1, 0)


async def test_every_verb_sends(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []

    await orders.send_and_wait(Order(1), partition=0)
    await (await orders.enqueue(Order(2), partition=0, on_delivery=lambda *outcome: told.append(outcome)))
    await orders.send_nowait(Order(3), partition=0)
    result = await (await orders.send_many([Order(4), Order(5)], partition=0))

    assert values(one_broker, "orders") == [b'{"id":%d}' % number for number in range(1, 6)]
    assert result.delivered == 2
    assert [(metadata.offset, error) for metadata, error in told if metadata] == [(1, None)]


async def test_nulls_stay_null(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    await orders.send(key="customer-7", partition=0)
    await orders.send(Order(7), partition=0)

    assert [(r.key, r.value) for r in one_broker.records("orders", 0)] == [(b"customer-7", None), (None, b'{"id":7}')]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue", "send_nowait"])
async def test_wrong_type_is_an_error_of_the_call(
    orders: Topic[str, Order], one_broker: FakeCluster, verb: str
) -> None:
    async def send(value: object, key: object) -> None:
        await getattr(orders, verb)(value, key=key)

    with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
        await send({"id": 7}, "k")
    with pytest.raises(TypeError, match=r"^key for topic 'orders' must be str or None, not int$"):
        await send(Order(7), 7)
    await orders.send(Order(8))

    assert values(one_broker, "orders") == [b'{"id":8}']


async def test_wrong_type_in_a_column_keeps_no_other_back(orders: Topic[str, Order]) -> None:
    bulk = await orders.send_many([Order(1), {"id": 2}, Order(3)], keys=["a", "b", 3])  # type: ignore[list-item]
    result = await bulk

    assert (result.delivered, {position: type(error) for position, error in result.errors.items()}) == (
        1,
        {1: TypeError, 2: TypeError},
    )


async def test_keys_and_values_are_paired(orders: Topic[str, Order]) -> None:
    with pytest.raises(ValueError, match="keys must be as many as values: there are 1 keys, and more values"):
        await orders.send_many([Order(1), Order(2)], keys=["a"])


async def test_headers_of_the_topic_come_first(producer: Producer, one_broker: FakeCluster) -> None:
    clicks = producer.topic("orders", value=str, headers=[("source", b"web")])

    await clicks.send("a", partition=0)
    await clicks.send("b", partition=0, headers=[("h", None)])
    await (await clicks.send_many(["c"], partition=0, headers=iter([("h", b"1")])))

    found = [list(record.headers) for record in one_broker.records("orders", 0)]
    assert found == [[("source", b"web")], [("source", b"web"), ("h", None)], [("source", b"web"), ("h", b"1")]]


async def test_failing_serializer_is_an_error_of_the_call(producer: Producer, one_broker: FakeCluster) -> None:
    numbers: Topic[bytes, int] = producer.topic("orders", value=lambda number: b"%d" % (1 // number))

    with pytest.raises(SerializationError, match=r"value serializer .*<lambda> failed for topic 'orders': Zero"):
        numbers.send(0)
    await numbers.send(1)

    assert values(one_broker, "orders") == [b"1"]


async def test_serializers_of_the_producer_do_not_run(one_broker: FakeCluster) -> None:
    async with Producer(
        one_broker.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=JsonSerializer()
    ) as producer:
        raw = producer.topic("orders", value=bytes)
        await raw.send(b"\xff", key=b"\xfe", partition=0)
        await producer.send("orders", {"id": 7}, key="k", partition=0)

    assert [(r.key, r.value) for r in one_broker.records("orders", 0)] == [(b"\xfe", b"\xff"), (b"k", b'{"id":7}')]


class SeesObjects(ProducerInterceptor, Partitioner):
    """An interceptor and a partitioner that note the values they are shown."""

    def __init__(self) -> None:
        self.intercepted: list[object] = []
        self.partitioned: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        self.intercepted.append(record.value)
        return record

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,  # noqa: ARG002
        key: object,  # noqa: ARG002
        key_bytes: bytes | None,  # noqa: ARG002
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,  # noqa: ARG002
    ) -> int:
        self.partitioned.append((value, value_bytes))
        return 2


async def test_interceptors_and_partitioner_see_the_object(one_broker: FakeCluster) -> None:
    sees = SeesObjects()
    async with Producer(one_broker.bootstrap_servers, interceptors=[sees], partitioner=sees) as producer:
        orders = producer.topic("orders", value=Order)
        metadata = await orders.send(Order(7))
        with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
            await orders.enqueue({"id": 7})  # type: ignore[arg-type]

    assert metadata.partition == 2
    assert sees.intercepted == [Order(7)]
    assert sees.partitioned == [(Order(7), b'{"id":7}')]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue", "send_nowait"])
async def test_verbs_of_a_subclass_get_the_bytes(one_broker: FakeCluster, verb: str) -> None:
    given: list[object] = []

    class Own(Producer):
        def send(self, topic: str, value: object = None, **options: object) -> Delivery:
            given.append(value)
            return super().send(topic, value, **options)  # type: ignore[arg-type]

        def enqueue(self, topic: str, value: object = None, **options: object) -> Coroutine[object, None, Delivery]:
            given.append(value)
            return super().enqueue(topic, value, **options)  # type: ignore[arg-type]

        def send_nowait(self, topic: str, value: object = None, **options: object) -> Delivery:
            given.append(value)
            return super().send_nowait(topic, value, **options)  # type: ignore[arg-type]

    async with Own(one_broker.bootstrap_servers) as producer:
        orders = producer.topic("orders", value=Order)
        await orders.partitions_for()
        done = await getattr(orders, verb)(Order(7))
        if verb == "enqueue":
            await done
        with pytest.raises(TypeError, match="must be Order or None, not int"):
            await getattr(orders, verb)(7)

    assert given == [b'{"id":7}']
    assert values(one_broker, "orders") == given


async def test_handle_may_be_made_before_the_start(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    orders = producer.topic("orders", value=Order)

    with pytest.raises(IllegalStateError, match="start"):
        orders.send(Order(1))
    async with producer:
        await orders.send(Order(2))
        assert await orders.partitions_for() == [0, 1, 2]
    with pytest.raises(ProducerClosedError):
        await orders.send(Order(3))

    assert values(one_broker, "orders") == [b'{"id":2}']


async def test_enqueue_cancelled_while_it_waits_is_withdrawn(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers) as producer:
        unknown = producer.topic("unknown", value=str)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(unknown.enqueue("a"), 0.01)

        assert producer.statistics().records_waiting == 0


@pytest.mark.parametrize("name", ["", "a b", 5])
def test_wrong_name_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match="topic"):
        Producer("a:9092").topic(name, value=bytes)


def test_frameworks_know_what_to_await(producer_unstarted: Producer) -> None:
    orders = producer_unstarted.topic("orders", value=Order)

    verbs = [orders.send, orders.send_and_wait, orders.enqueue, orders.send_many]
    is_coroutine = inspect.iscoroutinefunction if hasattr(inspect, "markcoroutinefunction") else asyncio_iscoroutine
    assert [verb for verb in verbs if not is_coroutine(verb)] == []


def asyncio_iscoroutine(function: object) -> bool:
    return asyncio.iscoroutinefunction(function)


@pytest.fixture
def producer_unstarted() -> Producer:
    return Producer("a:9092")
