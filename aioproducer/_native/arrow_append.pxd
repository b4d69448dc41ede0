"""The rows of Arrow batches into the batches of their partitions."""

from libc.stdint cimport int64_t

from aioproducer._native.append cimport TopicInfo
from aioproducer._native.append_many cimport BulkAppend
from aioproducer._native.arrow_columns cimport ArrowRows
from aioproducer._native.record_bytes cimport RecordBytes


cdef class ArrowAppend(BulkAppend):
    cdef ArrowRows _columns
    cdef int64_t _next                       # row of the columns that is taken next

    cdef bint _has_row(self) except -1
    cdef tuple _row(self)
    cdef bint _append_stretch(self, TopicInfo topic_info) except -1
    cdef bint _append_row(self, TopicInfo topic_info, const RecordBytes* record) except -1
    cdef int _append_run(self, TopicInfo topic_info, int64_t end, int64_t now) except -1
