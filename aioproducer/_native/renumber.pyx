# cython: language_level=3
"""Renumbers records in place, to split a batch."""

from libc.stdint cimport INT64_MIN, int64_t
from libc.string cimport memmove

from aioproducer._native.memory cimport Chunk
from aioproducer._native.varint cimport get_varint, put_varint, varint_size


def renumber_records(Chunk chunk not None, Py_ssize_t start, int first, int count):
    """Rewrites, in place, `count` records that begin at byte `start` with offset delta `first`, to begin with 0.

    Returns (the bytes they take now, the highest of their timestamp deltas). Only the offset deltas and lengths
    change, and none gets longer.
    """
    return rewrite(chunk, start, first, count, None)


def remove_records(Chunk chunk not None, Py_ssize_t start, int count, gone not None):
    """As `renumber_records`, of records that begin with 0, without those whose positions are in the set `gone`."""
    return rewrite(chunk, start, 0, count, gone)


cdef object rewrite(Chunk chunk, Py_ssize_t start, int first, int count, gone):
    cdef const char* end = chunk.data + chunk.capacity
    cdef const char* at = chunk.data + start
    cdef const char* body
    cdef const char* rest
    cdef char* out = chunk.data + start
    cdef char attributes
    cdef int64_t length, timestamp_delta, offset_delta
    cdef int64_t highest = INT64_MIN
    cdef int index
    cdef int kept = 0
    for index in range(count):
        body = get_varint(at, end, &length)
        if body == NULL or length < 1 or length > end - body:
            raise ValueError(f"record {first + index} does not fit its batch")
        at = body + length
        attributes = body[0]
        rest = get_varint(body + 1, at, &timestamp_delta)
        if rest != NULL:
            rest = get_varint(rest, at, &offset_delta)
        if rest == NULL or offset_delta != first + index:
            raise ValueError(f"record {first + index} is not where its batch says")
        if gone is not None and index in gone:
            continue
        highest = max(highest, timestamp_delta)
        length -= varint_size(offset_delta) - varint_size(kept)
        out = put_varint(out, length)
        out[0] = attributes
        out = put_varint(out + 1, timestamp_delta)
        out = put_varint(out, kept)
        memmove(out, rest, at - rest)
        out += at - rest
        kept += 1
    return out - (chunk.data + start), highest


def record_starts(records, int count):
    """Byte offsets of the `count` records, and of the end: list of count + 1 ints."""
    cdef const unsigned char[::1] view = records
    cdef const char* begin = <const char*>&view[0]
    cdef const char* end = begin + view.shape[0]
    cdef const char* at = begin
    cdef int64_t length
    starts = [0]
    for _ in range(count):
        at = get_varint(at, end, &length)
        if at == NULL or length < 0 or length > end - at:
            raise ValueError("the records do not fit their batch")
        at += length
        starts.append(at - begin)
    return starts
