"""Batch size limits of topics whose batches were refused as too large: found with few refusals, and raised again."""

import pytest

from aioproducer._accumulator.batch_size_limits import FULL_BEFORE_ANOTHER_TRY, SMALLEST_LIMIT, BatchSizeLimits

BATCH_SIZE = 256 * 1024


class Topic:
    """A broker's limit for batches, and a producer that always fills them, with records of `record` bytes."""

    def __init__(self, limit: int, *, ratio: float = 1.0, record: int = 1) -> None:
        self.limits = BatchSizeLimits(BATCH_SIZE)
        self.record = record
        self.limit = limit
        self.ratio = ratio
        self.refusals = 0

    def send(self, batches: int) -> int:
        """Send full batches; returns the wire size of the last."""
        size = 0
        for _ in range(batches):
            uncompressed = self.limits.of("t") // self.record * self.record or self.record
            self.refusals += int(uncompressed * self.ratio) > self.limit
            size = self._send(uncompressed)
        return size

    def _send(self, uncompressed: int) -> int:
        size = int(uncompressed * self.ratio)
        if size <= self.limit:
            records = uncompressed // self.record
            self.limits.acknowledged("t", size=size, uncompressed=uncompressed, records=records)
            return size
        self.limits.refused("t", size=size, uncompressed=uncompressed)
        half = uncompressed // 2 // self.record * self.record
        self._send(half)
        return self._send(uncompressed - half)


def test_topic_that_was_never_refused_has_the_batch_size() -> None:
    topic = Topic(limit=2**20)
    topic.send(10)

    assert (topic.limits.of("t"), len(topic.limits.by_topic)) == (BATCH_SIZE, 0)


@pytest.mark.parametrize("limit", [3_000, 20_000, 100_000, 200_000, 260_000])
@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_limit_is_found_with_few_refusals(limit: int, ratio: float) -> None:
    """Batches then take most of what the broker allows, or all that `batch.size` does."""
    topic = Topic(limit, ratio=ratio)
    last = topic.send(500)

    assert last > 0.9 * min(limit, BATCH_SIZE * ratio)
    assert topic.refusals <= 4


def test_limit_that_is_found_costs_a_refusal_a_thousand_batches() -> None:
    topic = Topic(100_000)
    topic.send(500)
    before = topic.refusals
    topic.send(10 * FULL_BEFORE_ANOTHER_TRY)

    assert topic.refusals - before <= 10


def test_batches_become_large_again_when_the_broker_allows_it() -> None:
    topic = Topic(20_000)
    topic.send(500)
    topic.limit = 2**20
    topic.send(2 * FULL_BEFORE_ANOTHER_TRY)

    assert (topic.limits.of("t"), len(topic.limits.by_topic)) == (BATCH_SIZE, 0)


@pytest.mark.parametrize("record, limit", [(6_000, 15_000), (70_000, 150_000), (30_000, 200_000), (1_000, 9_000)])
def test_few_large_records_raise_a_lowered_limit(record: int, limit: int) -> None:
    """Regression: batches of few large records never looked full, so the limit was never raised again."""
    topic = Topic(limit, record=record)
    last = topic.send(5 * FULL_BEFORE_ANOTHER_TRY)
    refusals = topic.refusals
    topic.limit = 2**20
    topic.send(3 * FULL_BEFORE_ANOTHER_TRY)

    assert last // record == limit // record
    assert refusals <= 12
    assert (topic.limits.of("t"), len(topic.limits.by_topic)) == (BATCH_SIZE, 0)


def test_limit_rises_with_a_larger_acknowledged_batch() -> None:
    """The larger batch was under way when the broker's limit was raised: no probing is needed."""
    limits = BatchSizeLimits(BATCH_SIZE)
    limits.refused("t", size=100_000, uncompressed=100_000)
    limits.acknowledged("t", size=150_000, uncompressed=150_000, records=150)

    for _ in range(100):
        limits.acknowledged("t", size=limits.of("t"), uncompressed=limits.of("t"), records=100)

    assert (limits.of("t"), len(limits.by_topic)) == (BATCH_SIZE, 0)


def test_limit_that_is_lowered_later_is_found_too() -> None:
    topic = Topic(100_000)
    topic.send(500)
    topic.limit = 10_000
    last = topic.send(500)

    assert 9_000 < last <= 10_000


def test_batches_that_compress_worse_fit_after_one_refusal() -> None:
    """The estimate rises at once, and falls slowly, as Kafka's does."""
    topic = Topic(20_000, ratio=0.1)
    topic.send(500)
    before, topic.ratio = topic.refusals, 0.5
    topic.send(3)

    assert topic.refusals - before == 1
    assert topic.limits.of("t") * 0.5 <= 20_000


def test_batches_that_compress_better_grow() -> None:
    topic = Topic(20_000, ratio=0.5)
    topic.send(500)
    before, topic.ratio = topic.limits.of("t"), 0.1
    topic.send(200)

    assert topic.limits.of("t") > 4 * before


def test_limit_is_never_so_small_that_nothing_fits() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    for _ in range(30):
        limits.refused("t", size=100, uncompressed=100)

    assert limits.of("t") == SMALLEST_LIMIT
