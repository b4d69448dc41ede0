"""An interceptor hears of the very record that it watches, once, and a producer may have one of its own."""

import contextlib
from typing import Any, Self

from aioproducer import (
    KafkaError,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    WatchedRecord,
)
from aioproducer.testing import FakeCluster


class Watching(ProducerInterceptor):
    """Notes how each of its records ends, by its key."""

    def __init__(self) -> None:
        self.ends: list[tuple[object, int, str]] = []

    def on_send(self, record: ProducerRecord) -> WatchedRecord:
        def on_end(place: TopicPartition, metadata: RecordMetadata | None, error: Exception | None) -> None:
            assert (metadata is None) != (error is None)
            self.ends.append((record.key, place.partition, type(error).__name__))

        return WatchedRecord(record, on_end)


class Drops(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        return None if record.key == b"dropped" else record


class EndFails(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> WatchedRecord:
        def on_end(*_: object) -> None:
            raise ZeroDivisionError("on purpose")

        return WatchedRecord(record, on_end)


async def test_watched_record_ends_once_however_it_ends(one_broker: FakeCluster) -> None:
    first, last = Watching(), Watching()
    values: dict[bytes, Any] = {b"delivered": b"", b"dropped": b"", b"refused": 5, b"too large": bytes(2_000_000)}
    async with Producer(one_broker.bootstrap_servers, interceptors=[first, EndFails(), Drops(), last]) as producer:
        for key, value in values.items():
            with contextlib.suppress(TypeError, KafkaError):
                await producer.send("orders", value, key=key, partition=0)

    ends = [
        (b"delivered", 0, "NoneType"),
        (b"dropped", 0, "RecordFilteredError"),
        (b"refused", 0, "TypeError"),
        (b"too large", 0, "RecordTooLargeError"),
    ]
    assert first.ends == ends
    assert last.ends == [end for end in ends if end[0] != b"dropped"]


class OneEach(ProducerInterceptor):
    """Is copied for each producer."""

    def __init__(self, made: list[Self]) -> None:
        self.made = made
        self.closes = 0
        self.values: list[object] = []

    def for_producer(self) -> Self:
        own = type(self)(self.made)
        self.made.append(own)
        return own

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.values.append(record.value)
        return record

    def close(self) -> None:
        self.closes += 1


async def test_each_producer_has_an_interceptor_of_its_own(one_broker: FakeCluster) -> None:
    shared = OneEach([])
    for value in (b"1", b"2"):
        async with Producer(one_broker.bootstrap_servers, interceptors=[shared]) as producer:
            await producer.send("orders", value)

    assert [(own.values, own.closes) for own in shared.made] == [([b"1"], 1), ([b"2"], 1)]
    assert (shared.values, shared.closes) == ([], 0)


class NoOwn(ProducerInterceptor):
    heard = 0

    def for_producer(self) -> Self:
        raise ZeroDivisionError("on purpose")

    def on_acknowledgement(self, *_: object) -> None:
        self.heard += 1


async def test_interceptor_that_has_no_own_is_used_itself(one_broker: FakeCluster) -> None:
    no_own = NoOwn()
    async with Producer(one_broker.bootstrap_servers, interceptors=[no_own]) as producer:
        await producer.send("orders", b"v")

    assert no_own.heard == 1
