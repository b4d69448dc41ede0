"""Checks of what callers pass for a record; each raises with the argument's name and what is allowed."""

from libc.stdint cimport int64_t

cdef inline bytes as_bytes(value, str name):
    if value is None or type(value) is bytes:
        return <bytes>value
    return converted_to_bytes(value, name)


cdef bytes converted_to_bytes(value, str name)
cdef Py_ssize_t as_partition(partition) except -2
cdef int64_t as_timestamp(timestamp) except -2
cdef object check_headers(headers)
cdef bytes header_value(pair)
