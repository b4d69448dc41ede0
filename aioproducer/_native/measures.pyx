# cython: language_level=3
"""Counters and histograms of a producer: buckets with fixed bounds, and a bounded number of rows for topics.

Updated per record only natively (`RecordSizes`), else per batch, request or call. Any thread may read them: each read
is one native call, and what it returns belongs together.

Source: SenderMetricsRegistry in Apache Kafka; its windows are in `_producer/metric_windows.py`.
"""

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

OTHER_TOPICS = "(other topics)"
"""Name of the row of all topics past the limit; no topic can have it."""

SIZES = tuple(4.0 ** power for power in range(2, 14))              # 16 bytes ... 64 MiB
TIMES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
RATIOS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COUNTS = (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)


cdef class Histogram:

    def __cinit__(self, bounds):
        cdef Py_ssize_t bucket
        self._buckets = len(bounds) + 1
        if self._buckets > MAX_BUCKETS:
            raise ValueError(f"a histogram has at most {MAX_BUCKETS} buckets, got {self._buckets}")
        for bucket, bound in enumerate(bounds):
            self._bounds[bucket] = bound

    cdef void add(self, double value, long long count) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self._buckets - 1
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if value <= self._bounds[middle]:
                high = middle
            else:
                low = middle + 1
        self._counts[low] += count
        self._count += count
        self._total += value * count
        if value > self._largest:
            self._largest = value
        if value > self._recent:
            self._recent = value

    def record(self, double value, long long count=1):
        self.add(value, count)

    def read(self):
        return (
            tuple([self._bounds[bucket] for bucket in range(self._buckets - 1)]),
            tuple([self._counts[bucket] for bucket in range(self._buckets)]),
            self._total,
            self._largest,
        )

    def sample(self):
        return self._total, float(self._count), self._recent

    def forget_recent(self):
        self._recent = 0.0

    @property
    def count(self):
        return self._count

    @property
    def total(self):
        return self._total

    def __repr__(self):
        return f"<Histogram count={self._count} total={self._total:g}>"


_STEPS = 8                                   # buckets to a power of two
_POWERS = 32
_BOUNDS_S = [                                # where each bucket but the first begins
    (1 + step / _STEPS) * 2.0**power * 1e-6 for power in range(_POWERS) for step in range(_STEPS)
]


cdef class LatencyHistogram:

    def __cinit__(self):
        self._counts = [0] * (len(_BOUNDS_S) + 1)

    @property
    def count(self):
        return self._count

    def record(self, double latency_s, long long count=1):
        cdef list counts = self._counts
        cdef Py_ssize_t bucket = bisect_right(_BOUNDS_S, latency_s)
        counts[bucket] += count
        self._count += count
        if latency_s > self._max_s:
            self._max_s = latency_s

    def quantile_s(self, fraction):
        if self._count == 0:
            return None
        rank = max(1, math.ceil(fraction * self._count))
        index = bisect_left(list(accumulate(self._counts)), rank)
        return min(self._middle_s(index), self._max_s)

    def _middle_s(self, index):
        if index == 0:
            return 0.5e-6
        power, step = divmod(index - 1, _STEPS)
        return math.ldexp(1 + (step + 0.5) / _STEPS, power) * 1e-6


cdef class RecordSizes:

    def read(self):
        cdef Py_ssize_t largest = max(self._largest, self.recent)
        return SIZES, tuple([self.counts[bucket] for bucket in range(13)]), float(self.total), float(largest)

    def sample(self):
        cdef long long count = 0
        cdef Py_ssize_t bucket
        for bucket in range(13):
            count += self.counts[bucket]
        return float(self.total), float(count), float(self.recent)

    def forget_recent(self):
        self._largest = max(self._largest, self.recent)
        self.recent = 0


cdef class TopicCounters:

    def __cinit__(self, str topic not None):
        self.topic = topic

    def ratio_sample(self):
        return self._ratios, float(self._batches), 0.0

    def __repr__(self):
        return f"<TopicCounters {self.topic!r} records={self.records} errors={self.errors}>"


cdef class TopicTable:

    def __cinit__(self, Py_ssize_t limit):
        self._rows = {}
        self._limit = limit

    cdef TopicCounters find(self, topic):
        cdef PyObject* found = PyDict_GetItem(self._rows, topic)
        cdef TopicCounters row
        if found is not NULL:
            return <TopicCounters>found
        if len(self._rows) >= self._limit:
            if self._others is None:
                self._others = TopicCounters(OTHER_TOPICS)
            return self._others
        row = self._rows[topic] = TopicCounters(topic)
        return row

    def of(self, str topic not None):
        return self.find(topic)

    def rows(self):
        rows = list(self._rows.values())
        return rows if self._others is None else [*rows, self._others]


cdef class Measures:

    def __cinit__(self, Py_ssize_t max_topics=1000):
        self.topics = TopicTable(max_topics)
        self.record_size = RecordSizes()
        self.batch_size, self.compression_ratio = Histogram(SIZES), Histogram(RATIOS)
        self.queue_time, self.records_per_request = Histogram(TIMES), Histogram(COUNTS)
        self.request_latency, self.throttle_time = Histogram(TIMES), Histogram(TIMES)
        self.memory_wait, self.metadata_wait, self.flush_time = Histogram(TIMES), Histogram(TIMES), Histogram(TIMES)

    def batch_sent(self, topic, int records, Py_ssize_t size, Py_ssize_t uncompressed, double waited_s):
        """Notes a batch of a request: its sizes in bytes, and the seconds from its oldest record's call."""
        cdef TopicCounters row = self.topics.find(topic)
        cdef double ratio = <double>size / uncompressed if uncompressed else 1.0
        row.records += records
        row.bytes += size
        row._ratios += ratio
        row._batches += 1
        self.batch_size.add(size, 1)
        self.queue_time.add(waited_s, 1)
        self.compression_ratio.add(ratio, 1)

    def __repr__(self):
        return f"<Measures {len(self.topics.rows())} topics, {self.batch_size!r}>"
