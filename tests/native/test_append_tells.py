"""The append calls back once when a number of bytes has been written."""

import pytest

from tests.fakes.core_parts import CoreParts

RECORD = b"v" * 91
"""A record of 100 bytes in all."""


def sizes_told(core: CoreParts, size: int, records: int) -> list[int]:
    """Have records written, and return after how many each call came."""
    told: list[int] = []
    core.appender.call_after(size, lambda: told.append(core.open_batches.records))
    for _ in range(records):
        core.send(RECORD)
    return told


@pytest.mark.parametrize("size, after", [(1, 1), (100, 1), (101, 2), (1000, 10), (1001, 11)])
def test_writing_so_many_bytes_calls_back_once(size: int, after: int) -> None:
    """Written bytes count, not reserved ones; the record that reaches the number counts, too."""
    assert sizes_told(CoreParts(), size, records=30) == [after]


def test_later_wish_replaces_the_one_before() -> None:
    core = CoreParts()
    told: list[str] = []
    core.appender.call_after(250, lambda: told.append("before"))
    core.send(RECORD)
    core.appender.call_after(150, lambda: told.append("later"))
    core.send(RECORD)
    assert not told

    for _ in range(10):
        core.send(RECORD)

    assert told == ["later"]


def test_callback_may_ask_again() -> None:
    core = CoreParts()
    told: list[int] = []

    def again() -> None:
        told.append(core.open_batches.records)
        core.appender.call_after(200, again)

    core.appender.call_after(200, again)
    for _ in range(7):
        core.send(RECORD)

    assert told == [2, 4, 6]


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_record_is_accepted_when_the_callback_raises(error: type[Exception]) -> None:
    core = CoreParts()

    def fails() -> None:
        raise error

    core.appender.call_after(1, fails)
    core.send(RECORD)
    core.flush()

    assert [batch.count for batch in core.drain()] == [1]
