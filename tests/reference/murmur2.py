"""The slow, obvious murmur2 of Kafka's Java client, line by line, with Java's signed 32-bit ints.

Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive.
"""

from __future__ import annotations


def murmur2(data: bytes) -> int:
    m = 0x5BD1E995
    r = 24
    h = _int(0x9747B28C ^ len(data))
    for i in range(len(data) // 4):
        k = data[4 * i] + (data[4 * i + 1] << 8) + (data[4 * i + 2] << 16) + (data[4 * i + 3] << 24)
        k = _int(_int(k) * m)
        k = _int(k ^ _unsigned_shift(k, r))
        k = _int(k * m)
        h = _int(h * m)
        h = _int(h ^ k)
    tail = data[len(data) // 4 * 4 :]
    if len(tail) >= 3:
        h = _int(h ^ (tail[2] << 16))
    if len(tail) >= 2:
        h = _int(h ^ (tail[1] << 8))
    if len(tail) >= 1:
        h = _int(h ^ tail[0])
        h = _int(h * m)
    h = _int(h ^ _unsigned_shift(h, 13))
    h = _int(h * m)
    return _int(h ^ _unsigned_shift(h, 15))


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def _int(number: int) -> int:
    """Java's `int`: the low 32 bits, the highest of them the sign."""
    low = number & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


def _unsigned_shift(number: int, bits: int) -> int:
    """Java's `>>>`."""
    return (number & 0xFFFFFFFF) >> bits
