"""Hashes of keys that choose partitions: Kafka's, librdkafka's and sarama's.

Source: rd_kafka_msg_partitioner_consistent_random in librdkafka, NewHashPartitioner in sarama.
"""

from libc.stdint cimport uint32_t

from aioproducer._native.murmur2 cimport murmur2_of

cdef enum KeyHash:
    MURMUR2
    CRC32
    FNV1A

cdef extern from *:
    """
    /* CRC-32 of four bits, as zlib's */
    static const uint32_t aioproducer_crc32_nibbles[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    """
    const uint32_t* NIBBLES "aioproducer_crc32_nibbles"


cdef inline uint32_t crc32_of(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef Py_ssize_t i
    for i in range(length):
        crc ^= data[i]
        crc = NIBBLES[crc & 15] ^ crc >> 4
        crc = NIBBLES[crc & 15] ^ crc >> 4
    return ~crc


cdef inline uint32_t fnv1a_of(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    """The absolute value, as of a signed number."""
    cdef uint32_t h = 0x811C9DC5
    cdef Py_ssize_t i
    for i in range(length):
        h = (h ^ data[i]) * <uint32_t>0x01000193
    return 0 - h if h >> 31 else h


cdef inline Py_ssize_t partition_of_key(int kind, const unsigned char* data, Py_ssize_t length,
                                        Py_ssize_t count) noexcept nogil:
    if kind == MURMUR2:
        return <Py_ssize_t>(murmur2_of(data, length) & 0x7FFFFFFF) % count
    if kind == CRC32:
        return <Py_ssize_t>crc32_of(data, length) % count
    return <Py_ssize_t>fnv1a_of(data, length) % count


cdef inline bint has_hash(int kind, Py_ssize_t key_size) noexcept nogil:
    """Whether a key has a hash: not if there is none (-1), nor an empty one with librdkafka's CRC-32."""
    return key_size > 0 or (key_size == 0 and kind != CRC32)
