"""Which batches look like a loop that awaits each send."""

import pytest

from aioproducer._sender.await_hint import STREAK, SerialAwaitDetector
from tests.fakes.event_log import EventList


def told(*, pause: float, took: float, records: int = 1, is_awaited: bool = True) -> list[str]:
    """The events after so many batches of a kind; each begins `pause` seconds after the end of the one before."""
    log = EventList()
    watch = SerialAwaitDetector(log)  # type: ignore[arg-type]  # `error` is not used
    now = 100.0
    for _ in range(STREAK * 3):
        called_at = now + pause
        now = called_at + took
        watch.note(records=records, is_awaited=is_awaited, called_at=called_at, now=now)
    return log.names()


def test_habit_is_told_once() -> None:
    """However long it goes on."""
    assert told(pause=0.0001, took=0.001) == ["awaited_one_by_one"]


@pytest.mark.parametrize(
    "kind",
    [
        {"pause": 0.005, "took": 0.001},
        {"pause": -0.0005, "took": 0.001},
        {"pause": 0.0001, "took": 0.001, "records": 2},
        {"pause": 0.0001, "took": 0.001, "is_awaited": False},
    ],
    ids=["pauses", "overlaps", "batches", "nobody awaits"],
)
def test_other_callers_get_no_hint(kind: dict[str, float]) -> None:
    """Whose batches differ in one respect."""
    assert told(**kind) == []  # type: ignore[arg-type]


def test_some_pauses_are_forgiven() -> None:
    """A busy machine makes them."""
    log = EventList()
    watch = SerialAwaitDetector(log)  # type: ignore[arg-type]
    now = 100.0
    for number in range(STREAK * 2):
        called_at = now + (0.1 if number % 50 == 0 else 0.0)
        now = called_at + 0.001
        watch.note(records=1, is_awaited=True, called_at=called_at, now=now)

    assert log.names() == ["awaited_one_by_one"]
