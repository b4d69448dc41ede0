"""Pauses between attempts, and between requests that are sent one at a time."""

import random

import pytest

from aioproducer._timing.retry_backoff import SOON_AT_MOST, ExponentialBackoff, RequestPacing
from aioproducer.errors import KafkaError


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


@pytest.fixture
def pacing() -> RequestPacing:
    return RequestPacing(ExponentialBackoff(100, 1000, jitter=0.0, random=random.Random(1)))


def pauses(pacing: RequestPacing, count: int, *, is_soon: bool = False) -> list[float]:
    found = []
    for _ in range(count):
        began = max(pacing.next_at, 1000.0)
        pacing.again("busy", began, error=KafkaError("busy"), is_soon=is_soon)
        found.append(round((pacing.next_at - began) * 1000, 3))
    return found


def test_pauses_double_to_the_longest(pacing: RequestPacing) -> None:
    assert pauses(pacing, 6) == [100, 200, 400, 800, 1000, 1000]
    assert set(pauses(pacing, 100)) == {1000}


def test_brief_trouble_is_retried_in_short_steps(pacing: RequestPacing) -> None:
    assert pauses(pacing, 7, is_soon=True) == [1, 2, 4, 8, 16, 20, 20]


def test_moment_that_does_not_end_is_none(pacing: RequestPacing) -> None:
    """Regression: a coordinator that always answers CONCURRENT_TRANSACTIONS (4.3.1 can) got 50 requests a second."""
    waited = pauses(pacing, SOON_AT_MOST, is_soon=True)

    assert 900 < sum(waited) < 1100
    assert pauses(pacing, 3, is_soon=True) == [1000, 1000, 1000]


def test_short_steps_start_again_with_the_next_request(pacing: RequestPacing) -> None:
    pauses(pacing, SOON_AT_MOST + 3, is_soon=True)
    pacing.passed()

    assert pauses(pacing, 2, is_soon=True) == [1, 2]
    assert pauses(pacing, 2) == [400, 800]
