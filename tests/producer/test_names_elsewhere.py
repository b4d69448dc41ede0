"""Methods and keywords of other clients: one sentence each, and nothing that looks as if they were there."""

import asyncio
import contextlib
import inspect
import pydoc
import types
from abc import ABC
from typing import Any, Protocol
from unittest import mock  # noqa: TID251  # as users' tests have it

import pytest

from aioproducer import BlockingProducer, ConfigurationTypeError, Producer
from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster, MockProducer

CLASSES = [Producer, BlockingProducer, AIOKafkaProducer, MockProducer]


@pytest.mark.parametrize("kind", [Producer, BlockingProducer, MockProducer])
@pytest.mark.parametrize(
    "name, said",
    [
        ("stop", "close() ends it"),
        ("produce", "send(topic, value, key=...)"),
        ("poll", "flush() waits"),
        ("publish", "send(topic, value, key=...)"),
        ("send_offsets_to_transaction", "send_offsets(offsets, group)"),
        ("list_topics", "partitions_for(topic)"),
    ],
)
def test_method_of_another_client_gets_a_sentence(kind: Any, name: str, said: str) -> None:
    producer = kind() if kind is MockProducer else kind("h:1")

    with pytest.raises(AttributeError) as caught:
        getattr(producer, name)

    assert f"{kind.__name__!r} object has no attribute {name!r}: " in str(caught.value)
    assert said in str(caught.value)
    assert not hasattr(producer, name)
    assert name not in dir(producer)


async def test_method_on_a_topic_or_transaction_gets_a_sentence(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, transactional_id="t") as producer:
        topic: Any = producer.topic("orders", value=bytes)
        with pytest.raises(AttributeError, match=r"flush\(\) of the producer"):
            topic.flush()
        async with producer.transaction() as transaction:
            untyped: Any = transaction
            with pytest.raises(AttributeError, match="the end of its block commits it"):
                untyped.commit()


async def test_close_of_a_producer_for_aiokafka_names_stop() -> None:
    producer: Any = AIOKafkaProducer(bootstrap_servers="h:1")

    with pytest.raises(AttributeError, match=r"stop\(\) ends it, as in aiokafka"):
        producer.close()


@pytest.mark.parametrize("kind", CLASSES)
def test_help_and_inspection_work(kind: Any) -> None:
    assert "Gets records" in pydoc.render_doc(kind) or kind is not Producer
    assert inspect.getmembers(kind)
    assert not issubclass(kind, contextlib.AbstractContextManager) or kind is BlockingProducer
    assert not issubclass(kind, contextlib.AbstractAsyncContextManager) or kind is not BlockingProducer


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_may_be_combined_with_protocols(kind: Any) -> None:
    """As with any class that has no metaclass of its own."""

    class Sink(Protocol):
        async def flush(self) -> None: ...

    assert isinstance(kind, type)
    assert type("Combined", (kind, ABC), {})
    assert types.new_class("Implementing", (kind, Sink))


def test_help_of_a_class_says_what_is_used_instead() -> None:
    assert "stop = <not here: close() ends it>" in pydoc.plain(pydoc.render_doc(Producer))


@pytest.mark.parametrize("kind", CLASSES)
def test_autospec_has_no_method_of_another_client(kind: Any) -> None:
    with pytest.raises(TypeError, match="not callable"):
        mock.create_autospec(kind, instance=True).publish("orders", b"v")


def test_wrong_kind_of_block_gets_a_sentence() -> None:
    producer: Any = Producer("h:1")

    with pytest.raises(TypeError, match="async with"), producer:
        pass


async def test_wrong_kind_of_block_of_a_transaction(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, transactional_id="t") as producer:
        transaction: Any = producer.transaction()
        with pytest.raises(TypeError, match="its block is `async with`"), transaction:
            pass


async def test_wrong_kind_of_block_of_a_blocking_producer() -> None:
    producer: Any = BlockingProducer("h:1")

    with pytest.raises(TypeError, match=r"without async|Did you mean to use 'with'"):
        async with producer:
            pass


def test_subclass_may_have_such_a_method() -> None:
    class Mine(Producer):
        def stop(self) -> str:
            return "stopped"

    producer: Any = Mine("h:1")
    producer.publish = len

    assert (producer.stop(), producer.publish("ab")) == ("stopped", 2)


@pytest.mark.parametrize("kind", [Producer, BlockingProducer])
def test_dict_of_options_as_servers_gets_a_sentence(kind: Any) -> None:
    with pytest.raises(ConfigurationTypeError, match=r"ProducerConfig\.from_kafka_properties"):
        kind({"bootstrap.servers": "h:1"})


async def test_delivery_given_to_create_task_says_what_it_is(producer: Producer) -> None:
    delivery: Any = producer.send("orders", b"v")

    with pytest.raises(TypeError, match="a future to await"):
        await asyncio.create_task(delivery)
    await delivery


@pytest.mark.parametrize(
    "keyword, said",
    [("timeout", "deadline="), ("timestamp_ms", "timestamp="), ("callback", "on_delivery="), ("message", "value=")],
)
@pytest.mark.parametrize("method", ["send", "enqueue", "send_nowait", "send_and_wait"])
async def test_keyword_of_another_client_gets_a_note(
    one_broker: FakeCluster, *, method: str, keyword: str, said: str
) -> None:
    with pytest.raises(TypeError, match=keyword) as caught:
        async with Producer(one_broker.bootstrap_servers) as producer:
            await getattr(producer, method)("orders", **{keyword: 5})

    assert any(said in note for note in caught.value.__notes__)


KEY = "aioproducer: what follows the value is given by name: key=..., partition=..."
KEYS = "aioproducer: what follows the values is given by name: keys=..., partition=..."


@pytest.mark.parametrize("is_of_topic", [False, True])
@pytest.mark.parametrize(
    "method, note",
    [("send", KEY), ("enqueue", KEY), ("send_nowait", KEY), ("send_and_wait", KEY), ("send_many", KEYS)],
)
async def test_key_in_third_place_gets_a_note(
    one_broker: FakeCluster, *, is_of_topic: bool, method: str, note: str
) -> None:
    async def run() -> None:
        async with Producer(one_broker.bootstrap_servers) as producer:
            if is_of_topic:
                await getattr(producer.topic("orders", value=bytes), method)(b"v", b"key")
            else:
                await getattr(producer, method)("orders", b"v", b"key")

    with pytest.raises(TypeError, match="positional") as caught:
        await run()

    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize("method", ["send", "enqueue", "send_threadsafe"])
def test_key_in_third_place_of_a_blocking_producer(method: str) -> None:
    with FakeCluster.in_thread(1) as cluster:
        producer = BlockingProducer(cluster.bootstrap_servers)
        with pytest.raises(TypeError, match="positional") as caught, producer:
            getattr(producer, method)("orders", b"v", b"key")

    assert caught.value.__notes__ == [KEY]


async def test_keyword_in_a_transaction_gets_a_note_once(one_broker: FakeCluster) -> None:
    async def run() -> None:
        options: Any = {"timeout": 5}
        async with (
            Producer(one_broker.bootstrap_servers, transactional_id="t") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send("orders", **options)

    with pytest.raises(TypeError) as caught:
        await run()

    assert len([note for note in caught.value.__notes__ if "deadline=" in note]) == 1


class Mail:
    """What an application may use beside a producer."""

    def send(self, text: str) -> None: ...


def send_mail(text: str) -> None: ...


@pytest.mark.parametrize("call", [Mail().send, send_mail])
async def test_keyword_of_an_applications_own_gets_no_note(one_broker: FakeCluster, call: Any) -> None:
    with pytest.raises(TypeError, match="timeout") as caught:
        async with Producer(one_broker.bootstrap_servers):
            call(timeout=5)

    assert not hasattr(caught.value, "__notes__")


async def test_too_many_arguments_of_an_applications_own_get_no_note(one_broker: FakeCluster) -> None:
    send: Any = Mail().send
    with pytest.raises(TypeError, match="positional") as caught:
        async with Producer(one_broker.bootstrap_servers):
            send("orders", b"v", b"key")

    assert not hasattr(caught.value, "__notes__")
