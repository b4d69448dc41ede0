"""Checks of the arguments of a record."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    enum: CO_COROUTINE
    ctypedef struct PyCodeObject:
        int co_flags
    PyObject* PyFunction_GET_CODE(object)
    PyObject* PyMethod_GET_FUNCTION(object)
    bint PyFunction_Check(object)
    bint PyMethod_Check(object)


cdef inline bint may_be_called(function):
    """Whether it is a callable that need not be awaited: not an `async def`."""
    if PyMethod_Check(function):
        return may_be_called(<object>PyMethod_GET_FUNCTION(function))
    if PyFunction_Check(function):
        return not (<PyCodeObject*>PyFunction_GET_CODE(function)).co_flags & CO_COROUTINE
    return callable(function)


cdef inline bytes as_bytes(value, str name):
    if value is None or type(value) is bytes:
        return <bytes>value
    return converted_to_bytes(value, name)


cdef bytes converted_to_bytes(value, str name)
cdef Py_ssize_t as_partition(partition) except -2
cdef int64_t as_timestamp(timestamp) except -2
cdef object check_headers(headers)
cdef tuple header_pair(pair)
