"""How large batches of a topic may become, after the broker has refused one as too large (MESSAGE_TOO_LARGE).

The broker limits what arrives, which may be compressed; a batch is filled uncompressed. So a limit is two things:
a budget on the wire, and how much of a batch is left when it is compressed.

    refused   ──► the budget falls to what was acknowledged before, or to half of what was refused
    full, and acknowledged ──► the budget rises by a part of the way to what was refused
    after a thousand such  ──► it rises beyond, to see whether the topic's limit was raised

A batch is full when it has most of its budget, or when one record more would not have fitted: few large records leave
much of it empty.

A topic never refused has no entry here, and costs nothing.

Source: CompressionRatioEstimator in Apache Kafka, whose steps the ratio follows (KIP-126); Kafka keeps no budget, and
splits every batch of a topic whose `max.message.bytes` is below `batch.size`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK

SMALLEST_LIMIT: Final = SMALLEST_CHUNK // 2
RATIO_RISE: Final = 0.05
"""The ratio rises by at least this when a batch compresses worse than assumed."""
RATIO_FALL: Final = 0.005
"""It falls by at most this with each batch that compresses better."""
STEPS: Final = 32
"""Each full batch that is acknowledged raises the budget by one of so many steps to what was refused."""
NEAR: Final = 16
"""The search is over when no more than this part, or a record, lies between what was acknowledged and refused."""
FULL_BEFORE_ANOTHER_TRY: Final = 1000


@dataclass(slots=True)
class _Limit:
    """Of one topic; bytes on the wire, headers included."""

    budget: int
    ratio: float
    """Wire size by uncompressed size."""
    good: int = 0
    """The largest that was acknowledged."""
    bad: int | None = None
    """The smallest that was refused; None once that is too long ago."""
    full: int = 0
    """Batches acknowledged that the budget held back, since the search was over."""


class BatchSizeLimits:
    """The limits of all topics that have one.

    Args:
        batch_size: of a topic that has none.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.by_topic: dict[str, _Limit] = {}
        """Topics that have one."""

    def of(self, topic: str) -> int:
        """Return the bytes, uncompressed, that a batch of the topic may have."""
        limit = self.by_topic.get(topic)
        if limit is None:
            return self._batch_size
        return max(min(int(limit.budget / limit.ratio), self._batch_size), SMALLEST_LIMIT)

    def refused(self, topic: str, *, size: int, uncompressed: int) -> None:
        """Note that a batch was too large for the broker: `size` bytes on the wire."""
        limit = self.by_topic.setdefault(topic, _Limit(size, size / uncompressed))
        limit.bad = size if limit.bad is None else min(limit.bad, size)
        if limit.good >= size:
            limit.good = 0  # the broker's limit was lowered
        # Halving the uncompressed limit instead would make batches smaller by the compression ratio, too.
        limit.budget = min(limit.budget, max(limit.good, size // 2))
        limit.ratio = max(limit.ratio, size / uncompressed)
        limit.full = 0

    def acknowledged(self, topic: str, *, size: int, uncompressed: int, records: int) -> None:
        """Note that a batch of so many records was not too large."""
        limit = self.by_topic.get(topic)
        if limit is None:
            return
        # The second condition is for large records: two of 400 bytes never fill three quarters of 800.
        is_full = size * 4 >= limit.budget * 3 or uncompressed * (records + 1) > self.of(topic) * records
        observed = size / uncompressed
        is_worse = observed > limit.ratio
        limit.ratio = max(observed, limit.ratio + RATIO_RISE if is_worse else limit.ratio - RATIO_FALL)
        limit.good = max(limit.good, size)
        if limit.bad is not None and size >= limit.bad:
            limit.bad = None  # the broker's limit was raised
        if is_full:
            self._raise(topic, limit, record_size=size // records)

    def _raise(self, topic: str, limit: _Limit, *, record_size: int) -> None:
        if limit.bad is None:
            limit.budget += limit.budget // STEPS + 1
        elif limit.bad - limit.good > max(limit.bad // NEAR, record_size) and limit.bad - limit.budget >= STEPS:
            limit.budget += (limit.bad - limit.budget) // STEPS
        else:
            limit.full += 1
            if limit.full >= FULL_BEFORE_ANOTHER_TRY:
                limit.bad = None
        if limit.budget >= self._batch_size:
            del self.by_topic[topic]

    def __repr__(self) -> str:
        """Show the topics and their limits."""
        return f"<BatchLimits { ({topic: self.of(topic) for topic in self.by_topic}) }>"
