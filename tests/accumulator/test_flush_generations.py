"""A flush waits for exactly what was accepted before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.flush_generations import FlushGenerations


def test_later_records_neither_prolong_nor_end_a_flush() -> None:
    """Two plain counters of accepted and finished records could not tell them apart."""
    generations = FlushGenerations(lambda: None)
    earlier = generations.enter()
    closed = generations.close()
    later = generations.enter()
    still_later = generations.enter()

    generations.leave(later)
    assert not generations.is_finished(closed)
    generations.leave(earlier)

    assert generations.is_finished(closed)
    assert not generations.is_finished(still_later)


def test_split_batch_is_waited_for_until_its_last_part() -> None:
    """The parts belong to the generation of their batch, also after later flushes."""
    generations = FlushGenerations(lambda: None)
    batch = generations.enter()
    closed = generations.close()

    generations.enter_again(batch)
    generations.leave(batch)
    assert not generations.is_finished(closed)
    generations.leave(batch)

    assert generations.is_finished(closed)


def test_end_of_a_generation_is_notified_once() -> None:
    ended: list[str] = []
    generations = FlushGenerations(lambda: ended.append("ended"))
    generations.is_awaited = True
    *units, last = [generations.enter() for _ in range(3)]
    for unit in units:
        generations.leave(unit)
    assert ended == []

    generations.leave(last)

    assert ended == ["ended"]


def test_unit_cannot_end_twice() -> None:
    generations = FlushGenerations(lambda: None)
    unit = generations.enter()
    generations.leave(unit)

    with pytest.raises(KeyError):
        generations.leave(unit)


def test_unfinished_counts_all_generations() -> None:
    generations = FlushGenerations(lambda: None)
    generations.enter()
    generations.close()
    generations.enter()

    assert generations.unfinished == 2


@given(st.lists(st.sampled_from(["accept", "end oldest", "end newest", "flush"]), max_size=60))
def test_every_flush_ends_with_the_last_of_its_own_work(steps: list[str]) -> None:
    """And with the last of earlier flushes' work; at once if there is none."""
    generations = FlushGenerations(lambda: None)
    work: list[int] = []
    for step in steps:
        if step == "accept":
            work.append(generations.enter())
        elif step == "flush":
            generations.close()
        elif work:
            generations.leave(work.pop(0 if step == "end oldest" else -1))

        for flush in range(generations.current):
            assert generations.is_finished(flush) == all(unit > flush for unit in work)
