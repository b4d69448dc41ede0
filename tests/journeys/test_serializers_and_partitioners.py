"""Serializers and partitioners of the user: what they may do, and what an error of theirs means."""

import asyncio

import pytest

from aioproducer import (
    JsonSerializer,
    KafkaError,
    Outcome,
    Producer,
    SerializationError,
    StringSerializer,
)
from aioproducer.testing import FakeCluster
from tests.fakes.log_capture import LogCapture
from tests.produced import VERBS, give, produce_requests, values

# Serializers


def raises(_value: object) -> bytes:
    """Fail."""
    raise KeyError("inner")


def returns_text(_value: object) -> bytes:
    return "text"  # type: ignore[return-value]


def returns_coroutine(_value: object) -> bytes:
    return asyncio.sleep(0)  # type: ignore[return-value]


def returns_number(_value: object) -> bytes:
    return 5  # type: ignore[return-value]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
@pytest.mark.parametrize(
    "serializer, message",
    [
        (raises, "KeyError: 'inner'"),
        (returns_text, "returned str"),
        (returns_coroutine, "returned a coroutine"),
        (returns_number, "returned int"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_bad_serializer_is_an_error_at_the_call(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, verb: str, option: str, serializer: object, message: str
) -> None:
    """The error names option and function, with the original as its cause; nothing is sent."""
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
    """A partitioner that chooses what it is told, or raises it."""

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
    """At the call, or by the delivery if the topic was unknown; the producer goes on."""
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


async def test_partitioner_chooses_and_is_told_of_batches(one_broker: FakeCluster) -> None:
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


async def test_partitioner_that_errs_elsewhere_stops_nobody(one_broker: FakeCluster) -> None:
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
