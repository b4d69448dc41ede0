"""Kafka's hash of keys, inlined where partitions are chosen. Source: Utils.murmur2 in Apache Kafka."""

from libc.stdint cimport uint32_t


cdef inline uint32_t murmur2_of(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    """Kafka's Utils.murmur2: 32 bits, seed 0x9747b28c, little-endian words."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t k
    cdef Py_ssize_t words = length // 4
    cdef Py_ssize_t i
    for i in range(words):
        k = (<uint32_t>data[4 * i] | <uint32_t>data[4 * i + 1] << 8
             | <uint32_t>data[4 * i + 2] << 16 | <uint32_t>data[4 * i + 3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
    i = words * 4
    if length - i == 3:
        h ^= <uint32_t>data[i + 2] << 16
    if length - i >= 2:
        h ^= <uint32_t>data[i + 1] << 8
    if length - i >= 1:
        h ^= <uint32_t>data[i]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h
