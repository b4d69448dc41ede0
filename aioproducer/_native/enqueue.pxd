"""`Producer.enqueue`, as one native call."""

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.delivery cimport Delivery
from aioproducer._native.record_pipeline cimport RecordPipeline


cdef class Accepted:
    cdef Delivery _delivery
    cdef bint _pause                         # let the loop run once before going on


cdef class EnqueueMethod:
    cdef RecordAppender _appender            # None: not straight into it: there are hooks, or no records are taken
    cdef RecordPipeline _pipeline            # None: no records are taken, and the slow way says why


cdef Accepted new_accepted(RecordAppender appender, Delivery delivery)
