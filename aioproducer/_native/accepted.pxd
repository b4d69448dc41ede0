"""What `enqueue` gives its caller to await when nothing has to be waited for."""

from aioproducer._native.delivery cimport Delivery


cdef class Accepted:
    cdef Delivery _delivery
    cdef bint _pause                         # let the loop run once before going on


cdef Accepted new_accepted(Delivery delivery, bint pause)
