# cython: language_level=3
"""A user's serializer, bound to its checks: one call of the user's function per key or value."""

from asyncio import CancelledError

from cpython.bytes cimport PyBytes_FromStringAndSize

cdef extern from "Python.h":
    bytes PyUnicode_AsUTF8String(object text)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    unsigned char* PyUnicode_1BYTE_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)


cdef class BoundSerializer:

    def __cinit__(self, function, *, bint accepts_topic, bint is_utf8, failed, checked, bint accepts_headers=False):
        self._function = function
        self._accepts_topic = accepts_topic
        self.accepts_headers = accepts_headers
        self._is_utf8 = is_utf8
        self._failed = failed
        self._checked = checked

    cdef object serialize(self, topic, value, list headers):
        """Returns bytes, None, or a PendingPart; `value` is not None, nor are `headers` if the function takes them."""
        cdef object result
        if self._is_utf8 and type(value) is str and PyUnicode_IS_COMPACT_ASCII(value):
            return PyBytes_FromStringAndSize(<const char*>PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value))
        try:
            if self._is_utf8 and type(value) is str:
                return PyUnicode_AsUTF8String(value)
            if self.accepts_headers:
                result = self._function(topic, value, headers)
            elif self._accepts_topic:
                result = self._function(topic, value)
            else:
                result = self._function(value)
        except (Exception, CancelledError) as error:
            raise self._failed(topic, error) from error
        if type(result) is bytes or result is None:
            return result
        return self._checked(topic, result)

    def __call__(self, topic, value, headers=None):
        if value is None:
            return None
        return self.serialize(topic, value, headers if type(headers) is list or not self.accepts_headers else [])


cdef class PendingPart:
    pass
