"""A wait queue serves in call order, and forgets waiters that left."""

from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.wait_queue import WaitingRecord, WaitQueue
from aioproducer._native.delivery import BatchResult
from aioproducer._timing.timers import TimerHeap


def record(number: int = 0) -> WaitingRecord:
    result = BatchResult(None, None)  # type: ignore[arg-type]  # it is never awaited
    made = WaitingRecord("t", result, timestamp=number, size=10, called_at=0.0)
    made.value = b"v"
    return made


def line_of(count: int) -> tuple[WaitQueue, list[WaitingRecord]]:
    line, records = WaitQueue(), [record(number) for number in range(count)]
    for each in records:
        line.join(each)
    return line, records


def test_first_who_came_is_first() -> None:
    line, records = line_of(3)
    assert line.first() is records[0]

    line.leave(records[0])

    assert line.first() is records[1]


def test_empty_queue_has_no_first() -> None:
    line, records = line_of(1)
    line.leave(records[0])

    assert (line.first(), WaitQueue().first(), len(line)) == (None, None, 0)


def test_record_that_leaves_from_the_middle_is_passed_over() -> None:
    line, records = line_of(5)

    line.leave(records[2])
    line.leave(records[0])

    assert list(line) == [records[1], records[3], records[4]]
    assert (len(line), records[2].is_waiting, records[1].is_waiting) == (3, False, True)


def test_queue_may_be_left_during_iteration() -> None:
    line, _ = line_of(10)

    for each in line:
        line.leave(each)

    assert list(line) == []


def test_unwatched_queue_cancels_its_timer() -> None:
    line, timers = WaitQueue(), TimerHeap(lambda _: None)
    line.timer = timers.schedule(1.0, lambda _: None)

    line.stop_watching()
    line.stop_watching()

    assert len(timers) == 0


def test_record_lets_its_content_go() -> None:
    waited = record()
    waited.key, waited.headers, waited.choose_partition = b"k", (("h", b"v"),), lambda: 0
    names = ("value", "key", "headers", "choose_partition")
    assert all(getattr(waited, name) is not None for name in names)

    waited.forget_content()

    assert [getattr(waited, name) for name in names] == [None] * 4


@given(st.lists(st.integers(0, 99) | st.none(), max_size=60))
def test_queue_behaves_like_a_list_with_removal(steps: list[int | None]) -> None:
    line, expected = WaitQueue(), list[WaitingRecord]()
    for step in steps:
        if step is None:
            expected.append(record())
            line.join(expected[-1])
        elif expected:
            line.leave(expected.pop(step % len(expected)))

        assert line.first() is (expected[0] if expected else None)
        assert (list(line), len(line)) == (expected, len(expected))
