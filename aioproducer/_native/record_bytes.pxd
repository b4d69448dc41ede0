"""The bytes of one record: what a call brought, checked, and how byte strings are written."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from aioproducer._native.varint cimport put_varint

cdef enum:
    RECORD_OVERHEAD = 31          # length 5, attributes 1, timestamp 10, offset 5, key length 5, value length 5


cdef struct RecordBytes:                     # the checked arguments of one send; key and value are borrowed
    const char* key
    Py_ssize_t key_size                      # -1: null
    const char* value
    Py_ssize_t value_size                    # -1: null
    Py_ssize_t partition                     # -1: not given
    int64_t timestamp                        # ms since the epoch
    const char* headers                      # the section of headers as it is written
    Py_ssize_t headers_size
    Py_ssize_t size                          # most bytes that the record can take


cdef inline char* put_bytes(char* at, const char* data, Py_ssize_t size) noexcept nogil:
    """`size` -1 is null."""
    at = put_varint(at, size)
    if size > 0:
        memcpy(at, data, size)
        return at + size
    return at


cdef inline Py_ssize_t nullable_size(bytes data) noexcept:
    return -1 if data is None else PyBytes_GET_SIZE(data)


cdef inline const char* nullable_data(bytes data) noexcept:
    return NULL if data is None else PyBytes_AS_STRING(data)
