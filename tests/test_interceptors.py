"""Interceptors see every record and cannot break one."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from aioproducer.cluster import Cluster
from aioproducer.interceptors import InterceptorChain, ProducerInterceptor, check_interceptors
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition, with_headers
from tests.fakes.logs import EventList

RECORD = ProducerRecord("t", b"v", headers=(("h", b"1"),))
METADATA = RecordMetadata("t", 0, TopicPartition("t", 0), 5, 1000, 0, 0)


class AppendsToValue(ProducerInterceptor):
    """Adds its name to the value, and notes its notifications."""

    def __init__(self, name: bytes, heard: list[object]) -> None:
        self.name = name
        self.heard = heard

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        assert isinstance(record.value, bytes)
        return dataclasses.replace(record, value=record.value + self.name)

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        self.heard.append((self.name, metadata.offset, headers))

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        self.heard.append((self.name, topic_partition.partition, str(error), headers))

    def close(self) -> None:
        self.heard.append((self.name, "closed"))


def fail(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("on purpose")


class Fails(ProducerInterceptor):
    on_send = on_acknowledgement = on_error = close = fail


class Drops(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> None:
        """Drop it."""


class ReturnsBytes(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record.value  # type: ignore[return-value]


def test_chain_notifies_all_interceptors() -> None:
    heard: list[object] = []
    chain = InterceptorChain([AppendsToValue(b"1", heard), AppendsToValue(b"2", heard)], EventList())

    chain.on_acknowledgement(METADATA, RECORD.headers)
    chain.on_error(TopicPartition("t", -1), ValueError("no"))
    chain.close()

    assert heard == [
        (b"1", 5, RECORD.headers),
        (b"2", 5, RECORD.headers),
        (b"1", -1, "no", ()),
        (b"2", -1, "no", ()),
        (b"1", "closed"),
        (b"2", "closed"),
    ]


def test_dropped_record_ends_the_chain() -> None:
    heard: list[object] = []

    class Hears(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            heard.append(record)
            return record

    assert InterceptorChain([Drops(), Hears()], EventList()).on_send(RECORD) is None
    assert heard == []


def test_interceptors_before_a_drop_are_notified() -> None:
    """An interceptor that counts pending records would never reach zero; those behind the drop never saw the record."""
    heard: list[object] = []
    chain = InterceptorChain([AppendsToValue(b"1", heard), Drops(), AppendsToValue(b"2", heard)], EventList())

    chain.on_send(RECORD)

    assert heard == [(b"1", -1, f"an interceptor dropped the record for topic {RECORD.topic!r}", RECORD.headers)]


def test_interceptor_is_notified_of_a_drop_for_partition_0() -> None:
    heard: list[object] = []
    chain = InterceptorChain([AppendsToValue(b"1", heard), Drops()], EventList())

    chain.on_send(dataclasses.replace(RECORD, partition=0))

    assert heard == [(b"1", 0, f"an interceptor dropped the record for topic {RECORD.topic!r}", RECORD.headers)]


@pytest.mark.parametrize("broken", [Fails(), ReturnsBytes()])
def test_record_passes_in_order_and_skips_a_failing_on_send(broken: ProducerInterceptor) -> None:
    chain = InterceptorChain([AppendsToValue(b"1", []), broken, AppendsToValue(b"2", [])], EventList())

    assert chain.on_send(RECORD) == dataclasses.replace(RECORD, value=b"v12")
    assert chain.failures == 1


def test_failure_is_logged_once_a_method_and_counted_every_time() -> None:
    log = EventList()
    chain = InterceptorChain([Fails()], log)

    for _ in range(3):
        chain.on_send(RECORD)
        chain.on_acknowledgement(METADATA)

    assert chain.failures == 6
    assert [(event, fields["interceptor"], fields["method"], fields["error"]) for event, fields in log.events] == [
        ("interceptor_failed", "Fails", "on_send", "ZeroDivisionError: on purpose"),
        ("interceptor_failed", "Fails", "on_acknowledgement", "ZeroDivisionError: on purpose"),
    ]


def test_failing_interceptor_does_not_keep_others_from_hearing() -> None:
    heard: list[object] = []
    chain = InterceptorChain([Fails(), AppendsToValue(b"1", heard)], EventList())

    chain.on_error(TopicPartition("t", 0), ValueError("no"))
    chain.close()

    assert heard == [(b"1", 0, "no", ()), (b"1", "closed")]


class ForgetsReturn(ProducerInterceptor):
    heard = 0

    def for_producer(self) -> ProducerInterceptor:
        return None  # type: ignore[return-value]

    def on_acknowledgement(self, *_: object) -> None:
        self.heard += 1


def test_interceptor_whose_own_is_none_is_used_itself() -> None:
    interceptor, log = ForgetsReturn(), EventList()
    InterceptorChain.of_producer([interceptor], log).on_acknowledgement(METADATA)

    assert interceptor.heard == 1
    ((event, fields),) = log.events
    assert (event, fields["interceptor"], fields["method"]) == ("interceptor_failed", "ForgetsReturn", "for_producer")
    error = "TypeError: the result must be a ProducerInterceptor, not NoneType: it has no method on_send"
    assert fields["error"] == error


def test_empty_chain_is_false() -> None:
    assert not InterceptorChain([], EventList())


def test_base_interceptor_changes_nothing() -> None:
    chain = InterceptorChain([ProducerInterceptor()], EventList())
    chain.on_acknowledgement(METADATA)
    chain.on_error(TopicPartition("t", 0), ValueError("no"))
    chain.close()

    assert chain.on_send(RECORD) is RECORD
    assert chain.failures == 0


class AsyncOnSend(ProducerInterceptor):
    async def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[override]
        return record


@pytest.mark.parametrize(
    "interceptors, message",
    [
        (5, "interceptors must be a list of ProducerInterceptor, not int"),
        ("ab", "interceptors must be a list of ProducerInterceptor, not str"),
        (Drops(), "interceptors must be a list of ProducerInterceptor, not Drops"),
        ([5], r"interceptors\[0\] must be a ProducerInterceptor, not int: it has no method on_send"),
        ([Drops(), Drops], r"interceptors\[1\] must be an instance: Drops\(\)"),
        ([AsyncOnSend()], r"interceptors\[0\].on_send must not be async"),
    ],
)
def test_check_interceptors_refuses(interceptors: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_interceptors(interceptors)


class Encloses(ProducerInterceptor):
    """Fails where it is told to."""

    def __init__(self, fails_at: str, heard: list[str]) -> None:
        self.fails_at = fails_at
        self.heard = heard

    def on_start(self, client_id: str, cluster: Callable[[], Cluster]) -> None:
        self.hear(f"start {client_id} {cluster().cluster_id}")

    @contextmanager
    def around_many(self, topic: str) -> Iterator[None]:
        self.hear(f"begin {topic}")
        yield
        self.hear(f"end {topic}")

    def hear(self, text: str) -> None:
        self.heard.append(text)
        if text.startswith(self.fails_at):
            fail()


@pytest.mark.parametrize("fails_at", ["nowhere", "start", "begin", "end"])
def test_start_and_calls_of_many_records_are_enclosed(fails_at: str) -> None:
    heard: list[str] = []
    log = EventList()
    chain = InterceptorChain([Encloses(fails_at, heard), Encloses("nowhere", heard)], log)
    chain.on_start("p", lambda: Cluster(cluster_id="c"))
    with chain.around_many("t"):
        heard.append("records")

    ends = ["end t"] * (1 if fails_at == "begin" else 2)
    assert heard == ["start p c", "start p c", "begin t", "begin t", "records", *ends]
    assert (chain.failures, len(log.events)) == ((0, 0) if fails_at == "nowhere" else (1, 1))


def test_interceptor_without_the_later_methods_is_enough() -> None:
    """One that inherits nothing, written before they were there."""

    class Old:
        on_send = on_acknowledgement = on_error = close = Fails.on_send

    chain = InterceptorChain([Old()], EventList())  # type: ignore[list-item]  # it has what is called
    chain.on_start("p", Cluster)
    with chain.around_many("t"):
        assert chain.failures == 0


def test_copy_with_headers_is_as_a_checked_one() -> None:
    headers = (("h", b"1"), ("i", None))

    assert with_headers(RECORD, headers) == dataclasses.replace(RECORD, headers=headers)
