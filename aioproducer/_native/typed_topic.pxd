"""Send methods of a typed topic."""

from aioproducer._native.bound_serializer cimport BoundSerializer
from aioproducer._native.enqueue cimport EnqueueMethod


cdef class TypedMethods:
    cdef EnqueueMethod _producer                  # the producer's
    cdef bint _asks_producer                 # its class overrides send methods: they get the bytes
    cdef str _topic
    cdef tuple _headers                      # of every record, or None
    cdef tuple _key_types                    # None: any
    cdef tuple _value_types
    cdef BoundSerializer _key_serializer     # None: keys are bytes
    cdef BoundSerializer _value_serializer
    cdef object _records                     # TopicRecords: raises for a wrong key or value

    cdef object _give(self, value, key, partition, timestamp, headers, on_delivery, bint may_wait)
