"""Limits of topics whose batches were refused as too large."""

from aioproducer._accumulator.batch_size_limits import BATCHES_BEFORE_GROWTH, SMALLEST_LIMIT, BatchSizeLimits

BATCH_SIZE = 256 * 1024


def acknowledge(limits: BatchSizeLimits, batches: int) -> None:
    for _ in range(batches):
        limits.acknowledged("t")


def test_topic_never_refused_has_the_batch_size() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    acknowledge(limits, 10)

    assert (limits.of("t"), len(limits.by_topic)) == (BATCH_SIZE, 0)


def test_refusal_halves_the_limit() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    for _ in range(5):
        limits.refused("t", BATCH_SIZE)

    assert (limits.of("t"), limits.of("other")) == (BATCH_SIZE // 2, BATCH_SIZE)

    limits.refused("t", BATCH_SIZE // 2)

    assert limits.of("t") == BATCH_SIZE // 4


def test_limit_grows_with_acknowledged_batches() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    limits.refused("t", BATCH_SIZE)
    acknowledge(limits, BATCHES_BEFORE_GROWTH - 1)
    limits.refused("t", BATCH_SIZE)
    acknowledge(limits, BATCHES_BEFORE_GROWTH - 1)
    assert limits.of("t") == BATCH_SIZE // 2

    acknowledge(limits, 1)
    assert limits.of("t") == int(BATCH_SIZE // 2 * 1.05)

    acknowledge(limits, 20 * BATCHES_BEFORE_GROWTH)
    assert (limits.of("t"), len(limits.by_topic)) == (BATCH_SIZE, 0)


def test_limit_is_never_too_small_for_a_record() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    for _ in range(30):
        limits.refused("t", limits.of("t"))

    assert limits.of("t") == SMALLEST_LIMIT
