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


def queue_of(count: int) -> tuple[WaitQueue, list[WaitingRecord]]:
    queue, records = WaitQueue(), [record(number) for number in range(count)]
    for each in records:
        queue.join(each)
    return queue, records


def test_first_who_came_is_first() -> None:
    queue, records = queue_of(3)
    assert queue.first() is records[0]

    queue.leave(records[0])

    assert queue.first() is records[1]


def test_empty_queue_has_no_first() -> None:
    queue, records = queue_of(1)
    queue.leave(records[0])

    assert (queue.first(), WaitQueue().first(), len(queue)) == (None, None, 0)


def test_record_that_leaves_from_the_middle_is_passed_over() -> None:
    queue, records = queue_of(5)

    queue.leave(records[2])
    queue.leave(records[0])

    assert list(queue) == [records[1], records[3], records[4]]
    assert (len(queue), records[2].is_waiting, records[1].is_waiting) == (3, False, True)


def test_queue_may_be_left_during_iteration() -> None:
    queue, _ = queue_of(10)

    for each in queue:
        queue.leave(each)

    assert list(queue) == []


def test_unwatched_queue_cancels_its_timer() -> None:
    queue, timers = WaitQueue(), TimerHeap(lambda _: None)
    queue.timer = timers.schedule(1.0, lambda _: None)

    queue.stop_watching()
    queue.stop_watching()

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
    queue, expected = WaitQueue(), list[WaitingRecord]()
    for step in steps:
        if step is None:
            expected.append(record())
            queue.join(expected[-1])
        elif expected:
            queue.leave(expected.pop(step % len(expected)))

        assert queue.first() is (expected[0] if expected else None)
        assert (list(queue), len(queue)) == (expected, len(expected))
