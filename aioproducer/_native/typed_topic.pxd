"""The verbs of a typed topic."""

from aioproducer._native.bound_serializer cimport BoundSerializer
from aioproducer._native.enqueue cimport EnqueueMethod


cdef class TypedVerbs:
    cdef EnqueueMethod _verbs                  # the producer's
    cdef bint _asks_producer                 # its class has verbs of its own: they get the bytes
    cdef str _topic
    cdef tuple _headers                      # of every record; None: there are none
    cdef tuple _key_types                    # None: any, the serializer decides
    cdef tuple _value_types
    cdef BoundSerializer _key_serializer     # None: keys are bytes
    cdef BoundSerializer _value_serializer
    cdef object _records                     # TopicRecords: says what is wrong with a key or a value

    cdef object _give(self, value, key, partition, timestamp, headers, on_delivery)
