"""Appends the records of one bulk call."""

from cpython cimport array

from aioproducer._native.append cimport OpenPartition, RecordAppender, RecordBatchBuilder, TopicInfo
from aioproducer._native.delivery cimport BatchResult


cdef class Share:
    cdef readonly BatchResult batch_result
    cdef array.array _runs                   # (position in the call, position in the batch, records) of each run
    cdef int _size
    cdef int _next_position                  # these continue the last run
    cdef int _next_index

    cdef int _begin_run(self, int position, int index) except -1


cdef class BulkAppend:
    cdef RecordAppender _appender
    cdef str _topic
    cdef object _rows                        # remaining rows
    cdef readonly list shares                # in the order of their first records
    cdef list _latest                        # Share by partition
    cdef readonly int position               # of the row taken last, from 0
    cdef readonly bint is_at_row             # that row is not appended yet
    cdef readonly object waiting             # the row taken last, if it must wait

    cdef bint _take(self, TopicInfo topic_info, row) except -1
    cdef bint _append(self, TopicInfo topic_info, value, key, partition, timestamp, headers) except -1
    cdef Share _new_share(self, OpenPartition partition, RecordBatchBuilder builder)


cdef inline Share share_of(BulkAppend many, OpenPartition partition, RecordBatchBuilder builder):
    """The share of the call in a batch; begun with the first record."""
    cdef object found = many._latest[partition.number] if partition.number < len(many._latest) else None
    if found is None or (<Share>found).batch_result is not builder.result:
        return many._new_share(partition, builder)
    return <Share>found


cdef inline int extend(Share share, int position, int index, int records) except -1:
    """Adds records that follow one another, in the call and in the batch."""
    if position != share._next_position or index != share._next_index or share._size == 0:
        share._begin_run(position, index)
    share._runs.data.as_ints[len(share._runs) - 1] += records
    share._next_position, share._next_index = position + records, index + records
    share._size += records
    return 0
