"""The size of the next batch, from the time that the code took for the last."""

import pytest

from aioproducer.integrations.aiokafka.batches import BatchSize


def test_fast_code_gets_all_it_may() -> None:
    size = BatchSize(10_000, 60.0)

    assert not size.worked(10_000, 29.0, is_whole=True)
    assert size.limit == 10_000
    assert not size.worked(3, 0.0, is_whole=True)
    assert size.limit == 10_000


def test_slow_code_gets_batches_for_half_the_time_out() -> None:
    """It always gets at least one record."""
    size = BatchSize(10_000, 60.0)

    assert not size.worked(1_000, 40.0, is_whole=True)
    assert size.limit == 750
    assert size.worked(750, 60.0, is_whole=True)
    assert size.limit == 375
    assert size.worked(1, 70.0, is_whole=True)
    assert size.limit == 1


def test_code_that_is_fast_again_gets_more_again_step_by_step() -> None:
    size = BatchSize(50, 60.0)
    size.worked(100, 300.0, is_whole=True)

    found = []
    for _ in range(4):
        found.append(size.limit)
        size.worked(size.limit, 0.5, is_whole=True)
    assert found == [10, 20, 40, 50]


@pytest.mark.parametrize("took_s, limit", [(0.001, 250), (70.0, 107), (60.0, 125)])
def test_failed_code_counts_only_when_it_was_late(took_s: float, limit: int) -> None:
    """It may have failed at the first record, or because its transaction had timed out."""
    size = BatchSize(10_000, 60.0)
    size.worked(250, 30.0, is_whole=True)
    assert size.limit == 250

    size.worked(250, took_s, is_whole=False)
    assert size.limit == limit
