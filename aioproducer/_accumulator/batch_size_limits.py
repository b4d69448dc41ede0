"""Smaller batches for topics whose batches the broker refused as too large (MESSAGE_TOO_LARGE).

A topic never refused has no limit of its own here, and costs nothing.

Limits are uncompressed bytes, because batches are filled uncompressed, although the broker limits compressed ones.
Apache Kafka estimates the compression ratio instead (CompressionRatioEstimator, KIP-126), and splits every batch of a
topic whose `max.message.bytes` is below `batch.size`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK

SMALLEST_LIMIT: Final = SMALLEST_CHUNK // 2
BATCHES_BEFORE_GROWTH: Final = 1000
GROWTH: Final = 1.05


@dataclass(slots=True)
class _Limit:
    size: int
    acknowledged: int = 0  # batches since the size has changed


class BatchSizeLimits:
    """Halves the limit of a topic at a refusal, and raises it by 5 % after each 1,000 acknowledged batches."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.by_topic: dict[str, _Limit] = {}

    def of(self, topic: str) -> int:
        limit = self.by_topic.get(topic)
        return self._batch_size if limit is None else limit.size

    def refused(self, topic: str, uncompressed: int) -> None:
        # half of what was refused, not of the limit: several batches of one size may be refused at once
        self.by_topic[topic] = _Limit(max(min(uncompressed // 2, self.of(topic)), SMALLEST_LIMIT))

    def acknowledged(self, topic: str) -> None:
        limit = self.by_topic.get(topic)
        if limit is None:
            return
        limit.acknowledged += 1
        if limit.acknowledged == BATCHES_BEFORE_GROWTH:
            limit.size, limit.acknowledged = int(limit.size * GROWTH), 0
            if limit.size >= self._batch_size:
                del self.by_topic[topic]
