"""Pauses between attempts."""

import random

import pytest

from aioproducer._timing.retry_backoff import ExponentialBackoff


def test_doubles_up_to_the_cap() -> None:
    backoff = ExponentialBackoff(100, 1000, jitter=0.0, random=random.Random(1))

    assert [backoff.delay_s(attempt) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("attempt", [0, 1, 5, 1000, 10**9])
def test_jitter_moves_by_a_fifth_and_never_beyond_the_cap(attempt: int) -> None:
    """A thousand clients must not retry at the same moment."""
    backoff = ExponentialBackoff(100, 1000, random=random.Random(1))
    plain_s = min(1.0, 0.1 * 2 ** min(attempt, 10))

    delays = [backoff.delay_s(attempt) for _ in range(200)]

    assert all(0.8 * plain_s <= delay <= min(1.2 * plain_s, 1.0) for delay in delays)
    assert len(set(delays)) > 50


def test_cap_below_the_start_wins() -> None:
    """Kafka allows this configuration."""
    assert ExponentialBackoff(100, 50, jitter=0.0, random=random.Random(1)).delay_s(0) == 0.05


def test_zero_never_waits() -> None:
    assert ExponentialBackoff(0, 1000, random=random.Random(1)).delay_s(9) == 0.0
