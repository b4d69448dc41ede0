"""Records go at the pace that was asked for."""

import pytest

from aioproducer.cli.produce.feed import MAX_CATCH_UP_S, Pace


def test_turns_are_evenly_spaced() -> None:
    pace = Pace(10, now=100)

    assert [pace.next_delay_s(100) for _ in range(4)] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_standstill_is_not_made_up_for() -> None:
    """After an hour without input, only the records of a moment go at once."""
    pace = Pace(100, now=0)

    at_once = sum(pace.next_delay_s(3600) <= 0 for _ in range(1_000))

    assert at_once == pytest.approx(MAX_CATCH_UP_S * 100 + 1, abs=1)
