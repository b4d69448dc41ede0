"""The user's code around a record, and the append behind it."""

cimport cython

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.bound_serializer cimport BoundSerializer


cdef class RecordArguments:
    cdef readonly str topic
    cdef readonly object value               # bytes, or a value that the append checks
    cdef readonly object key
    cdef readonly object partition           # int, or None if the appender chooses
    cdef readonly object timestamp
    cdef readonly object headers
    cdef readonly object on_delivery
    cdef readonly object context             # contextvars.Context of the call; None if no user code follows
    cdef readonly object choose_partition    # asks the partitioner once the topic is known, or None


cdef class InterceptorLoop:
    cdef readonly tuple interceptors
    cdef readonly bint listens               # at least one has on_acknowledgement or on_error of its own
    cdef list watchers                       # (index, on_end) for the record of the last `on_send`, or None

    cpdef object on_send(self, record)


@cython.final
cdef class RecordPipeline:
    cdef readonly RecordAppender appender
    cdef readonly bint has_hooks             # interceptors, serializers or a partitioner
    cdef readonly BoundSerializer key_serializer
    cdef readonly BoundSerializer value_serializer
    cdef readonly dict serializing           # topic -> future that the topic's next record waits for
    cdef InterceptorLoop _interceptors       # or None
    cdef object _partitioner                 # or None
    cdef object _preparation                 # rare steps, in Python
    cdef dict _closed_batches                # the preparation's own
    cdef object _metadata                    # has the current `cluster`
    cdef object _cluster                     # key of the cached `_partitions`, with `_topic`
    cdef object _topic
    cdef Py_ssize_t _partitions

    cdef object run(self, topic, value, key, partition, timestamp, headers, on_delivery,
                    BoundSerializer key_serializer, BoundSerializer value_serializer, bint may_wait)
    cdef object _serialize(self, topic, value, key, partition, timestamp, headers, on_delivery,
                           BoundSerializer key_serializer, BoundSerializer value_serializer, bint may_wait)
    cdef bint _is_unfinished(self, topic, key_bytes, value_bytes, bint may_wait) except -1
    cpdef object append_bytes(self, topic, value, key, partition, timestamp, headers, on_delivery, key_bytes,
                              value_bytes)
    cpdef choose(self, topic, key, bytes key_bytes, value, bytes value_bytes)
    cdef Py_ssize_t _partition_count(self, cluster, topic) except -2
