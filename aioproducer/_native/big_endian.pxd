"""Kafka's integers, most significant byte first, inlined where they are written and read."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t


cdef inline char* put_integer(char* at, int64_t value, int size) noexcept nogil:
    """Writes the lowest `size` bytes."""
    cdef int left = size
    while left:
        left -= 1
        at[left] = <char>(<uint64_t>value & 0xFF)
        value >>= 8
    return at + size


cdef inline char* put_int16(char* at, int64_t value) noexcept nogil:
    return put_integer(at, value, 2)


cdef inline char* put_int32(char* at, int64_t value) noexcept nogil:
    return put_integer(at, value, 4)


cdef inline char* put_int64(char* at, int64_t value) noexcept nogil:
    return put_integer(at, value, 8)


cdef inline uint64_t get_integer(const unsigned char* at, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | at[index]
    return value


cdef inline int16_t get_int16(const unsigned char* at) noexcept nogil:
    return <int16_t>get_integer(at, 2)


cdef inline int32_t get_int32(const unsigned char* at) noexcept nogil:
    return <int32_t>get_integer(at, 4)


cdef inline int64_t get_int64(const unsigned char* at) noexcept nogil:
    return <int64_t>get_integer(at, 8)
