"""The next records are read while Spark takes those before."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer.errors import KafkaError
from aioproducer.spark._consumer import ReadRecord
from aioproducer.spark._reader import _read_ahead


@dataclass(slots=True)
class Record:
    offset: int
    timestamp: int = 0
    timestamp_type: int | None = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as found:
        yield found


class Reads:
    """Ten records at a time; the read at `fails_at` fails, and one at `hangs_at` never ends."""

    def __init__(self, *, fails_at: int = -1, hangs_at: int = -1) -> None:
        self.asked: list[int] = []
        self._fails_at = fails_at
        self._hangs_at = hangs_at

    async def next(self, position: int) -> tuple[Sequence[ReadRecord], int]:
        self.asked.append(position)
        if position == self._fails_at:
            raise KafkaError("gone")
        if position == self._hangs_at:
            await asyncio.Event().wait()
        return [Record(offset) for offset in range(position, position + 10)], position + 10


def test_nothing_is_read_behind_the_end(portal: BlockingPortal) -> None:
    reads = Reads()
    found = list(_read_ahead(portal, reads.next, position=0, end=15))

    assert [[record.offset for record in records] for records in found] == [[*range(10)], [*range(10, 15)]]
    assert reads.asked == [0, 10]


def test_error_comes_after_the_records_before_it(portal: BlockingPortal) -> None:
    found = _read_ahead(portal, Reads(fails_at=10).next, position=0, end=30)

    assert len(next(found)) == 10
    with pytest.raises(KafkaError, match="gone"):
        next(found)


def test_reading_that_is_given_up_ends(portal: BlockingPortal) -> None:
    """Else the end of the portal would wait for it."""
    found = _read_ahead(portal, Reads(hangs_at=10).next, position=0, end=30)

    assert len(next(found)) == 10
    found.close()  # type: ignore[attr-defined]  # of a generator
