"""The user's code around a record, and the append behind it."""

cimport cython

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.bound_serializer cimport BoundSerializer


cdef class PreparedRecord:
    cdef readonly str topic
    cdef readonly object value               # bytes, or what the append still has to check
    cdef readonly object key
    cdef readonly object partition           # int, or None to have it chosen by key or turn
    cdef readonly object timestamp
    cdef readonly object headers
    cdef readonly object on_delivery
    cdef readonly object context             # contextvars.Context of the call; None where no code of the user's follows
    cdef readonly object choose_partition    # asks the partitioner once the topic is known; None: nothing to ask


cdef class InterceptorLoop:
    cdef readonly tuple interceptors
    cdef readonly bint listens               # at least one has on_acknowledgement or on_error of its own

    cpdef object on_send(self, record)


@cython.final
cdef class RecordPipeline:
    cdef readonly RecordAppender appender
    cdef readonly bint has_hooks             # interceptors, serializers or a partitioner
    cdef readonly BoundSerializer key_serializer
    cdef readonly BoundSerializer value_serializer
    cdef InterceptorLoop _interceptors       # None: there are none
    cdef object _partitioner                 # None: there is none
    cdef object _preparation                 # what happens rarely, in Python
    cdef dict _closed_batches                # the preparation's own
    cdef object _metadata                    # its `cluster` is what is known now
    cdef object _cluster                     # of which `_partitions` was asked last, and for which topic
    cdef object _topic
    cdef Py_ssize_t _partitions

    cdef object run(self, topic, value, key, partition, timestamp, headers, on_delivery,
                    BoundSerializer key_serializer, BoundSerializer value_serializer)
    cdef object _append(self, topic, value, key, partition, timestamp, headers, on_delivery,
                        BoundSerializer key_serializer, BoundSerializer value_serializer)
    cpdef choose(self, topic, key, bytes key_bytes, value, bytes value_bytes)
    cdef Py_ssize_t _partition_count(self, cluster, topic) except -2
