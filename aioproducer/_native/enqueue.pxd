"""`Producer.enqueue`, as one native call."""

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.delivery cimport Delivery
from aioproducer._native.record_pipeline cimport RecordPipeline


cdef class Accepted:
    cdef Delivery _delivery
    cdef bint _pause                         # let the loop run once first


cdef class EnqueueMethod:
    cdef RecordAppender _appender            # None if there are hooks, or no records are accepted
    cdef RecordPipeline _pipeline            # None if no records are accepted; the slow path raises


cdef Accepted new_accepted(RecordAppender appender, Delivery delivery)
