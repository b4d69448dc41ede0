"""The user's code on the background thread sees the context variables of the call that gave the record."""

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pyarrow as pa
import pytest

from aioproducer import BlockingProducer, KafkaError, ProducerInterceptor, ProducerRecord
from aioproducer.blocking._handoff_queue import run_in_context
from tests.fakes.producing import ClusterElsewhere

REQUEST = contextvars.ContextVar("REQUEST", default="none")


class Tracing(ProducerInterceptor):
    """Notes the request that each record belongs to."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(("interceptor", REQUEST.get()))
        return record

    def serialize(self, value: object) -> bytes:
        self.seen.append(("serializer", REQUEST.get()))
        return str(value).encode()


VERBS: Mapping[str, Callable[[BlockingProducer], object]] = MappingProxyType(
    {
        "send": lambda producer: producer.send("orders", b"v"),
        "send_threadsafe": lambda producer: producer.send_threadsafe("orders", b"v").result(),
        "enqueue": lambda producer: producer.enqueue("orders", b"v"),
        "enqueue to an unknown topic": lambda producer: producer.enqueue("later", b"v"),
        "send_many": lambda producer: producer.send_many("orders", [b"v"]),
        "topic.send": lambda producer: producer.topic("orders", value=bytes).send(b"v"),
        "topic.enqueue": lambda producer: producer.topic("orders", value=bytes).enqueue(b"v"),
        "topic.send_many": lambda producer: producer.topic("orders", value=bytes).send_many([b"v"]),
    }
)


@pytest.mark.parametrize("verb", list(VERBS))
def test_hooks_see_the_context_of_the_call(cluster: ClusterElsewhere, verb: str) -> None:
    tracing = Tracing()
    serializer = {} if verb.startswith("topic") else {"value_serializer": tracing.serialize}
    hooks = {"interceptor"} | ({"serializer"} if serializer else set())
    REQUEST.set("start")
    with BlockingProducer(cluster.bootstrap_servers, interceptors=[tracing], **serializer) as producer:  # type: ignore[arg-type]
        for request in ("a", "b"):
            REQUEST.set(request)
            VERBS[verb](producer)
        REQUEST.set("flush")
        cluster.do(lambda fake: fake.create_topic("later", 1))
        producer.flush()

    assert set(tracing.seen) == {(hook, request) for hook in hooks for request in ("a", "b")}


def test_refused_records_callback_sees_the_calls_context(cluster: ClusterElsewhere) -> None:
    told: list[tuple[str, KafkaError | None]] = []
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.partitions_for("orders")  # so that the call itself is refused
        REQUEST.set("a")
        producer.enqueue("orders", b"v", partition=99, on_delivery=lambda _, error: told.append((REQUEST.get(), error)))
        REQUEST.set("flush")
        producer.flush()

    assert [request for request, _ in told] == ["a"]


def test_interceptor_of_a_table_sees_the_context_of_the_call(cluster: ClusterElsewhere) -> None:
    """Interceptors are the only hooks that run per row."""
    tracing = Tracing()
    with BlockingProducer(cluster.bootstrap_servers, interceptors=[tracing]) as producer:
        REQUEST.set("a")
        producer.send_arrow("orders", pa.table({"value": [b"v"]}))

    assert tracing.seen == [("interceptor", "a")]


async def test_every_step_runs_in_the_given_context() -> None:
    REQUEST.set("given")
    context = contextvars.copy_context()
    REQUEST.set("task's")
    seen: list[str] = []
    is_waiting = asyncio.Event()

    async def steps() -> str:
        seen.append(REQUEST.get())
        await asyncio.sleep(0)
        seen.append(REQUEST.get())
        try:
            is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(REQUEST.get())
            await asyncio.sleep(0)
            seen.append(REQUEST.get())
            REQUEST.set("its own")
        return "result"

    async def outer() -> tuple[str, str]:
        return await run_in_context(steps(), context), REQUEST.get()

    task = asyncio.create_task(outer())
    await is_waiting.wait()
    task.cancel()

    assert await task == ("result", "task's")
    assert seen == ["given"] * 4
