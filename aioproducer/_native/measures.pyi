"""Counters and histograms of a producer: buckets with fixed bounds, and a bounded number of rows for topics."""

from collections.abc import Sequence
from typing import Final, TypeAlias

OTHER_TOPICS: Final[str]
TIMES: Final[tuple[float, ...]]
SIZES: Final[tuple[float, ...]]

Sample: TypeAlias = tuple[float, float, float]
"""Sum of all values, their number, and the largest since `forget_recent`; 0.0 if there was none."""

Reading: TypeAlias = tuple[tuple[float, ...], tuple[int, ...], float, float]
"""Upper bounds of the buckets, values in each (one more: without a bound), their sum, the largest."""

class Histogram:
    """Counts values in buckets with fixed upper bounds."""

    count: int  # of recorded values
    total: float  # their sum

    def __init__(self, bounds: Sequence[float]) -> None: ...
    def record(self, value: float, count: int = 1) -> None:
        """Add a value, `count` times."""
    def read(self) -> Reading:
        """Return all that it knows, of one moment."""
    def sample(self) -> Sample:
        """Return sum, number and recent maximum, of one moment."""
    def forget_recent(self) -> None:
        """Begin the next recent maximum."""

class LatencyHistogram:
    """Histogram of delivery latencies, in buckets whose width grows with the value.

    Eight buckets per power of two of microseconds, so that a quantile is at most 6.25 % off, from 1 us to about 71
    minutes (2^32 us), longer than a sensible delivery time-out. Updated once per batch.
    """

    @property
    def count(self) -> int: ...  # of recorded deliveries
    def record(self, latency_s: float, count: int = 1) -> None:
        """Add deliveries that took so long; a negative time counts as 0."""
    def quantile_s(self, fraction: float) -> float | None:
        """Return the latency in seconds that a fraction of the deliveries did not exceed.

        Args:
            fraction: 0.5 is the median, 0.99 the p99; between 0 and 1.

        Returns:
            The middle of the bucket, never above the longest; `None` before the first delivery.
        """

class RecordSizes:
    """Histogram of the sizes of records in bytes, which the native append fills."""

    def read(self) -> Reading:
        """As `Histogram.read`."""
    def sample(self) -> Sample:
        """As `Histogram.sample`."""
    def forget_recent(self) -> None:
        """As `Histogram.forget_recent`."""

class TopicCounters:
    """Totals of one topic."""

    topic: str
    records: int  # in requests; counted again when they are sent again
    bytes: int  # of their batches, as sent
    retries: int  # records of batches that were queued again
    errors: int  # records that failed

    def __init__(self, topic: str) -> None: ...
    def ratio_sample(self) -> Sample:
        """Return sum and number of the batches' compression ratios."""

class TopicTable:
    """Totals by topic; all topics past the limit share one row."""

    def __init__(self, limit: int) -> None: ...
    def of(self, topic: str) -> TopicCounters:
        """Return the row of a topic, or that of all others."""
    def rows(self) -> list[TopicCounters]:
        """Return all rows; that of the others last."""

class Measures:
    """All counters and histograms that are not in a part's own totals; times in seconds, sizes in bytes."""

    topics: TopicTable
    record_size: RecordSizes
    batch_size: Histogram
    queue_time: Histogram
    compression_ratio: Histogram
    records_per_request: Histogram
    request_latency: Histogram
    throttle_time: Histogram
    memory_wait: Histogram
    metadata_wait: Histogram
    flush_time: Histogram

    def __init__(self, max_topics: int = 1000) -> None: ...
    def batch_sent(self, topic: str, records: int, size: int, uncompressed: int, waited_s: float) -> None:
        """Note a batch of a request: its sizes in bytes, and the seconds from its oldest record's call."""
