"""Appends the records of one bulk call."""

from cpython cimport array

from aioproducer._native.append cimport RecordAppender, TopicInfo
from aioproducer._native.delivery cimport BatchResult


cdef class Share:
    cdef readonly BatchResult batch_result
    cdef array.array _positions              # in the call
    cdef array.array _indexes                # in the batch

    cdef int add(self, int position, int index) except -1


cdef class BulkAppend:
    cdef RecordAppender _appender
    cdef str _topic
    cdef object _rows                        # remaining rows
    cdef readonly list shares                # in the order of their first records
    cdef dict _by_result                     # BatchResult -> Share
    cdef Share _last
    cdef readonly int position               # of the row taken last, from 0
    cdef readonly bint is_at_row             # that row is not appended yet
    cdef readonly object waiting             # the row taken last, if it must wait

    cdef bint _append(self, TopicInfo slots, value, key, partition, timestamp, headers) except -1
    cdef Share _share_of(self, BatchResult batch_result)
