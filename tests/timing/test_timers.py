"""Timers fire in the order of their times, once, and wake the sleeper when an earlier one is set."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._timing.timers import TimerHeap


def test_timers_fire_earliest_first() -> None:
    heap, fired = TimerHeap(lambda _: None), list[str]()
    heap.schedule(2.0, lambda _: fired.append("b"))
    heap.schedule(1.0, lambda _: fired.append("a"))
    heap.schedule(2.0, lambda _: fired.append("c"))

    heap.fire(2.0)

    assert fired == ["a", "b", "c"]


def test_timer_waits_until_its_time_has_come() -> None:
    heap, fired = TimerHeap(lambda _: None), list[float]()
    heap.schedule(1.0, fired.append)

    heap.fire(0.999)
    assert fired == []
    heap.fire(1.0)
    assert fired == [1.0]


def test_cancelled_timer_never_fires() -> None:
    heap, fired = TimerHeap(lambda _: None), list[float]()
    timer = heap.schedule(1.0, fired.append)

    timer.cancel()
    timer.cancel()
    heap.fire(5.0)

    assert (fired, heap.next_at(), len(heap), timer.is_pending) == ([], None, 0, False)


def test_timer_scheduled_for_the_past_runs_in_the_same_turn() -> None:
    """Otherwise it would not fire until the next deadline."""
    heap, fired = TimerHeap(lambda _: None), list[str]()

    def schedule_another(_: float) -> None:
        heap.schedule(0.5, lambda _: fired.append("late"))

    heap.schedule(1.0, schedule_another)
    heap.fire(1.0)

    assert fired == ["late"]


@pytest.mark.parametrize("seed", range(20))
def test_timers_left_after_many_cancellations_fire_in_time(seed: int) -> None:
    """The heap is cleaned up then, and must stay a heap."""
    chance = random.Random(seed)
    heap, fired = TimerHeap(lambda _: None), list[int]()
    times = [chance.randrange(1_000) for _ in range(200)]
    timers = [heap.schedule(when, lambda _, when=when: fired.append(when)) for when in times]
    for timer in timers[:120]:
        timer.cancel()

    heap.fire(500)

    left = times[120:]
    assert fired == sorted(when for when in left if when <= 500)
    assert heap.next_at() == min(when for when in left if when > 500)


def test_timer_cancelling_itself_is_counted_once() -> None:
    heap = TimerHeap(lambda _: None)
    heap.schedule(9.0, lambda _: None)
    timer = heap.schedule(1.0, lambda _: timer.cancel())

    heap.fire(1.0)

    assert len(heap) == 1


def test_sleeper_is_woken_for_an_earlier_timer() -> None:
    told = list[float]()
    heap = TimerHeap(told.append)

    for when in (5.0, 7.0, 3.0, 4.0):
        heap.schedule(when, lambda _: None)

    assert told == [5.0, 3.0]


def test_ten_thousand_cancelled_timers_do_not_stay_in_memory() -> None:
    """The heap is cleaned up when cancelled timers outnumber the others."""
    heap = TimerHeap(lambda _: None)
    keep = heap.schedule(1e9, lambda _: None)

    for number in range(10_000):
        heap.schedule(number + 1.0, lambda _: None).cancel()

    assert (len(heap), heap.next_at(), keep.is_pending) == (1, 1e9, True)


def test_timer_that_fired_does_not_fire_again() -> None:
    heap, fired = TimerHeap(lambda _: None), list[float]()
    timer = heap.schedule(1.0, fired.append)
    heap.fire(1.0)

    timer.fire(2.0)

    assert fired == [1.0]


def test_due_timers_beyond_the_bound_stay_due() -> None:
    heap, fired = TimerHeap(lambda _: None), list[float]()
    for when in (3.0, 1.0, 2.0):
        heap.schedule(when, lambda _, when=when: fired.append(when))  # type: ignore[misc]

    heap.fire(5.0, at_most=2)

    assert (fired, heap.next_at()) == ([1.0, 2.0], 3.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=200))
def test_due_uncancelled_timers_fire(timers: list[tuple[float, bool]]) -> None:
    heap, fired = TimerHeap(lambda _: None), list[float]()
    for when, is_cancelled in timers:
        timer = heap.schedule(when, lambda _, when=when: fired.append(when))  # type: ignore[misc]
        if is_cancelled:
            timer.cancel()

    heap.fire(50.0)

    assert fired == sorted(when for when, is_cancelled in timers if when <= 50.0 and not is_cancelled)
