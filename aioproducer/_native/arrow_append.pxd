"""The rows of Arrow batches into the batches of their partitions."""

from libc.stdint cimport int64_t

from aioproducer._native.append cimport RecordAppender, TopicInfo
from aioproducer._native.append_many cimport BulkAppend
from aioproducer._native.arrow_columns cimport ArrowRows
from aioproducer._native.record_bytes cimport RecordBytes


cdef class ArrowAppend(BulkAppend):
    cdef ArrowRows _columns
    cdef int64_t _next                       # row of the columns that is taken next

    cdef bint _has_row(self) except -1
    cdef tuple _row(self)
    cdef bint _append_stretch(self, TopicInfo slots) except -1
    cdef bint _read_row(self, RecordAppender appender, RecordBytes* record, int64_t now) except -1
