"""Counters and histograms of a producer."""

cdef enum:
    MAX_BUCKETS = 20


cdef class Histogram:
    cdef double _bounds[MAX_BUCKETS]
    cdef long long _counts[MAX_BUCKETS]
    cdef Py_ssize_t _buckets                 # with the last one, which has no bound
    cdef double _total
    cdef double _largest
    cdef double _recent                      # the largest since `forget_recent`
    cdef long long _count

    cdef void add(self, double value, long long count) noexcept


cdef class LatencyHistogram:
    cdef list _counts
    cdef long long _count
    cdef double _max_s


cdef class RecordSizes:
    cdef long long counts[13]                # of sizes up to 16, 64, 256, ... bytes; the last has no bound
    cdef long long total                     # bytes
    cdef Py_ssize_t recent                   # bytes; the largest since `forget_recent`
    cdef Py_ssize_t _largest                 # bytes; the largest before that


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    static inline int aioproducer_bits(unsigned long long value) { return 64 - __builtin_clzll(value | 1); }
    #else
    static inline int aioproducer_bits(unsigned long long value) { int n = 1; while (value >>= 1) n++; return n; }
    #endif
    """
    int bits "aioproducer_bits"(unsigned long long value) nogil


cdef inline void note_size(RecordSizes sizes, Py_ssize_t size) noexcept:
    """Runs for each record: some nanoseconds."""
    cdef int bucket = (bits(size - 1) + 1) // 2 - 2
    sizes.counts[0 if bucket < 0 else 12 if bucket > 12 else bucket] += 1
    sizes.total += size
    if size > sizes.recent:
        sizes.recent = size


cdef class TopicCounters:
    cdef readonly str topic
    cdef public long long records            # in requests, counted again when they are sent again
    cdef public long long bytes              # of their batches, as sent
    cdef double _ratios                      # sum over batches: compressed size by uncompressed size
    cdef long long _batches
    cdef public long long retries            # records of batches that were queued again
    cdef public long long errors             # records that failed


cdef class TopicTable:
    cdef dict _rows
    cdef Py_ssize_t _limit
    cdef TopicCounters _others               # all topics past the limit; None if there is none

    cdef TopicCounters find(self, topic)


cdef class Measures:
    cdef readonly TopicTable topics
    cdef readonly RecordSizes record_size
    cdef readonly Histogram batch_size
    cdef readonly Histogram queue_time
    cdef readonly Histogram compression_ratio
    cdef readonly Histogram records_per_request
    cdef readonly Histogram request_latency
    cdef readonly Histogram throttle_time
    cdef readonly Histogram memory_wait
    cdef readonly Histogram metadata_wait
    cdef readonly Histogram flush_time
