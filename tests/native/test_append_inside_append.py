"""Code of the user that runs inside an append, in a finalizer or a log handler, may itself send."""

from collections.abc import Callable, Iterator

import pytest

from aioproducer._native.append import OpenPartition
from aioproducer._native.delivery import Delivery
from tests.fakes.core_parts import CoreParts


class SendsInside:
    """Sends to the same partition, with headers, at each look at the clock: in the middle of opening a batch."""

    def __init__(self, core: CoreParts) -> None:
        self.core = core
        self.sent: list[Delivery] = []
        self.left = 1

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            headers = [("inner", b"i" * 50)]
            delivery = self.core.appender.append("t", b"inner", None, 0, None, headers, None)
            assert delivery is None
            record = self.core.wait_in_queue(b"inner")
            self.sent.append(record.delivery)


def records_of(core: CoreParts) -> Iterator[bytes]:
    for batch in core.drain():
        yield bytes(batch.records())


def test_record_sent_inside_an_append_waits() -> None:
    """The outer record keeps its room, its headers and its batch."""
    core = CoreParts()
    inside = SendsInside(core)
    core.on_clock = inside
    outer = core.appender.append("t", b"outer", None, 0, None, [("outer", b"o" * 50)], None)
    core.on_clock = lambda: None
    assert outer is not None
    core.wait_queues.serve()
    core.flush()

    [records] = records_of(core)
    assert records.count(b"outer") == 2
    assert b"o" * 50 in records
    assert records.count(b"inner") == len(inside.sent) == 1
    assert {delivery._batch_result for delivery in inside.sent} == {outer._batch_result}


class SendsWhenRead(bytearray):
    """A header's value that sends when its bytes are read, as a finalizer may at any allocation."""

    def __init__(self, inside: Callable[[], None]) -> None:
        super().__init__(b"not yet")
        self.inside = inside

    def __bytes__(self) -> bytes:
        self.inside()
        return bytes(50)


def test_record_sent_while_headers_are_read_waits() -> None:
    core = CoreParts()
    inside = SendsInside(core)
    headers = [("first", b"f" * 50), ("reads", SendsWhenRead(inside)), ("last", b"l" * 50)]
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is None  # behind the inner one
    _, _, _, size = core.appender.measure("t", b"outer", None, 0, None, headers)
    core.wait_queues.serve()
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    written = b"".join((b"\x06", b"\x0afirst\x64", b"f" * 50, b"\x0areads\x64", bytes(50), b"\x08last\x64", b"l" * 50))
    assert records.count(b"inner") == len(inside.sent) == 1
    assert written in records
    assert size >= len(written)


def test_second_record_sent_while_headers_are_read_waits() -> None:
    """The first one was measured, as waiting records are; the outer append goes on."""
    core = CoreParts(leaders=(1, 1))
    answers: list[Delivery | None] = []

    def send() -> None:
        inner = [("inner", b"i" * 70)]
        answers.append(core.appender.append("t", b"inner", None, 1, None, inner, None))
        core.appender.measure("t", b"inner", None, 1, None, inner)

    headers = [("first", b"f" * 50), ("one", SendsWhenRead(send)), ("two", SendsWhenRead(send))]
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    assert set(answers) == {None}
    assert b"".join((b"\x06", b"\x0afirst\x64", b"f" * 50, b"\x06one\x64", bytes(50), b"\x06two\x64")) in records


def test_record_sent_while_another_is_measured_leaves_its_size() -> None:
    core = CoreParts()
    headers = [("first", b"f"), ("reads", SendsWhenRead(SendsInside(core)))]
    _, _, _, size = core.appender.measure("t", b"outer", None, 0, None, headers)

    assert core.appender.measure("t", b"outer", None, 0, None, headers)[3] == size
    assert core.wait_queues.records == 1


def test_headers_changed_while_read_are_those_of_the_call() -> None:
    core = CoreParts()
    inside = SendsInside(core)
    inside.left = 0
    headers: list[tuple[str, bytes]] = []

    class Appends(bytearray):
        def __bytes__(self) -> bytes:
            headers.append(("more", b"m"))
            return b"v"

    headers.append(("one", Appends()))
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    assert records.endswith(b"\x02\x06one\x02v")


def test_queue_is_empty_afterwards() -> None:
    core = CoreParts()
    core.on_clock = SendsInside(core)
    core.appender.append("t", b"outer", None, 0, None, None, None)
    core.on_clock = lambda: None
    core.wait_queues.serve()
    slot = core.queue().slot

    assert isinstance(slot, OpenPartition)
    assert slot.waiting_count == 0
    assert core.appender.append("t", b"next", None, 0, None, None, None) is not None


def test_unplaceable_record_leaves_its_queue_unchanged() -> None:
    core = CoreParts()
    core.wait_in_queue(b"first")
    slot = core.queue().slot
    waiting_count = slot.waiting_count

    def fails() -> None:
        raise MemoryError

    core.on_clock = fails
    with pytest.raises(MemoryError):
        core.appender.append_waiting("t", b"first", None, 0, 0, None)
    core.on_clock = lambda: None

    assert slot.waiting_count == waiting_count == 1
    assert core.appender.append("t", b"later", None, 0, None, None, None) is None


def test_record_queued_while_the_first_is_placed_is_counted() -> None:
    """Else the queue of its partition would look empty while a record waits, and never be empty afterwards."""
    core = CoreParts()
    core.wait_in_queue(b"first")
    inside = SendsInside(core)
    core.on_clock = inside
    core.wait_queues.serve()
    core.on_clock = lambda: None
    core.wait_queues.serve()

    assert len(inside.sent) == 1
    assert (core.wait_queues.records, core.queue().slot.waiting_count) == (0, 0)
    assert core.appender.append("t", b"next", None, 0, None, None, None) is not None
