"""Counters and histograms of a producer: buckets with fixed bounds, and a bounded number of rows for topics."""

from collections.abc import Sequence
from typing import Final, TypeAlias

OTHER_TOPICS: Final[str]
TIMES: Final[tuple[float, ...]]
SIZES: Final[tuple[float, ...]]

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

class RecordSizes:
    """Histogram of the sizes of records in bytes, which the native append fills."""

    def read(self) -> Reading:
        """As `Histogram.read`."""

class TopicCounters:
    """Totals of one topic."""

    topic: str
    records: int  # in requests; counted again when they are sent again
    bytes: int  # of their batches, as sent
    uncompressed: int  # the same without compression
    retries: int  # records of batches that were queued again
    errors: int  # records that failed

    def __init__(self, topic: str) -> None: ...

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
