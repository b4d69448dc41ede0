"""Kafka's varints, zigzag and unsigned, inlined where they are written and read. Source: ByteUtils in Apache Kafka."""

from libc.stdint cimport int64_t, uint64_t


cdef inline char* put_unsigned_varint(char* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <char>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <char>value
    return at + 1


cdef inline char* put_varint(char* at, int64_t value) noexcept nogil:
    return put_unsigned_varint(at, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline const char* get_varint(const char* at, const char* end, int64_t* value) noexcept nogil:
    """NULL when the bytes end inside it, or when it is longer than ten bytes."""
    cdef uint64_t zigzag = 0
    cdef int shift = 0
    while at < end and shift < 70:
        zigzag |= <uint64_t>(<unsigned char>at[0] & 0x7F) << shift
        shift += 7
        at += 1
        if not (<unsigned char>(at - 1)[0] & 0x80):
            value[0] = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
            return at
    return NULL
