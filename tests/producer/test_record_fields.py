"""The keyword arguments of send methods: written once, shown one by one, and refused by name."""

import asyncio
import inspect
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any

import pytest

from aioproducer import BlockingProducer, BlockingTopic, ColumnFields, Producer, RecordFields, Topic
from aioproducer._producer.record_fields import ArrowFields, BlockingColumnFields
from aioproducer.integrations.aiokafka import BatchTransaction
from aioproducer.testing import FakeCluster

RECORD_METHODS = [
    *(Producer.send, Producer.send_nowait, Producer.enqueue, Producer.send_and_wait, Producer.send_threadsafe),
    *(Topic.send, Topic.send_nowait, Topic.enqueue, Topic.send_and_wait),
    *(BlockingProducer.send, BlockingProducer.enqueue, BlockingProducer.send_threadsafe),
    *(BlockingTopic.send, BlockingTopic.enqueue, BlockingTopic.send_threadsafe),
    *(BatchTransaction.send, BatchTransaction.enqueue, BatchTransaction.send_and_wait),
]
MANY_METHODS = [Producer.send_many, Topic.send_many, BatchTransaction.send_many]
BLOCKING_MANY_METHODS = [BlockingProducer.send_many, BlockingTopic.send_many]
ARROW_METHODS = [Producer.send_arrow, BlockingProducer.send_arrow]
METHODS: list[tuple[Any, type]] = [
    *((method, RecordFields) for method in RECORD_METHODS),
    *((method, ColumnFields) for method in MANY_METHODS),
    *((method, BlockingColumnFields) for method in BLOCKING_MANY_METHODS),
    *((method, ArrowFields) for method in ARROW_METHODS),
]


@pytest.mark.parametrize("method, fields", METHODS, ids=lambda value: getattr(value, "__qualname__", None))
def test_send_method_shows_each_keyword(method: Any, fields: type) -> None:
    """In `help()`, in completion, and for libraries that bind arguments."""
    parameters = inspect.signature(method).parameters.values()
    by_name = [one for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]

    assert [one.name for one in by_name] == [*fields.__annotations__]
    assert {one.default for one in by_name} == {None}
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def test_shown_types_are_those_of_the_topic() -> None:
    key = inspect.signature(Topic.send_and_wait).parameters["key"]

    assert key.annotation == inspect.signature(Topic.send).parameters["key"].annotation == "KeyT | None"
    assert inspect.signature(Producer.send_and_wait).parameters["key"].annotation == "object"


@pytest.mark.parametrize(
    "verb", ["send", "send_nowait", "enqueue", "send_and_wait", "send_threadsafe", "send_many", "send_arrow"]
)
async def test_unknown_keyword_is_named(cluster: FakeCluster, verb: str) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=r"\w+\(\) got an unexpected keyword argument 'lane'"):
            await ended(getattr(producer, verb)("orders", [b"v"], lane=0))


@pytest.mark.parametrize("verb", ["send", "send_nowait", "enqueue", "send_and_wait", "send_many"])
async def test_unknown_keyword_of_a_topic_is_named(cluster: FakeCluster, verb: str) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        topic = producer.topic("orders", value=bytes)
        with pytest.raises(TypeError, match=r"\w+\(\) got an unexpected keyword argument 'lane'"):
            await ended(getattr(topic, verb)(b"v", lane=0))


@pytest.mark.parametrize("verb", ["send", "send_threadsafe", "enqueue", "send_many", "send_arrow"])
def test_unknown_keyword_is_refused_by_a_blocking_call(verb: str) -> None:
    """By the call itself, before anything is started."""
    producer = BlockingProducer("nowhere.invalid:9092")

    with pytest.raises(TypeError, match=r"BlockingProducer\.\w+\(\) got an unexpected keyword argument 'lane'"):
        getattr(producer, verb)("orders", b"v", lane=0)
    producer.close()


@pytest.mark.parametrize("verb", ["send", "send_threadsafe", "enqueue", "send_many"])
def test_unknown_keyword_is_refused_by_a_blocking_topic(verb: str) -> None:
    producer = BlockingProducer("nowhere.invalid:9092")
    topic = producer.topic("orders", value=bytes)

    with pytest.raises(TypeError, match=r"BlockingTopic\.\w+\(\) got an unexpected keyword argument 'lane'"):
        getattr(topic, verb)(b"v", lane=0)
    producer.close()


async def ended(result: object) -> object:
    if isinstance(result, Future):
        return await asyncio.wrap_future(result)
    return await result if isinstance(result, Awaitable) else result
