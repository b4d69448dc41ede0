"""A user's serializer, bound to its checks."""

cimport cython


@cython.final
cdef class BoundSerializer:
    cdef object _function                    # of the value, or of topic and value
    cdef bint _accepts_topic
    cdef readonly bint accepts_headers         # a list, to which it may add
    cdef bint _is_utf8                       # `str` is encoded here instead of by a call
    cdef object _failed                      # (topic, error) -> the SerializationError to raise
    cdef object _checked                     # (topic, result that is not bytes) -> result or PendingPart, or raises

    cdef object serialize(self, topic, value, list headers)


cdef class PendingPart:                      # subclassed in Python
    pass
