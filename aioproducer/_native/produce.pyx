# cython: language_level=3
"""Produce, as far as it is paid for each batch: a batch in its request, and the response to a request with one batch.

`_protocol/produce.py` has the layouts of both, and does the rest.

Header of a record batch, format v2: the 61 bytes before the records.

    offset  size  field
         0     8  baseOffset             0; the broker assigns it
         8     4  batchLength            bytes that follow this field
        12     4  partitionLeaderEpoch   -1; the broker assigns it
        16     1  magic                  2
        17     4  crc                    CRC-32C of everything from attributes on
        21     2  attributes             bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control
        23     4  lastOffsetDelta        records - 1
        27     8  baseTimestamp          of the first record, ms
        35     8  maxTimestamp           ms
        43     8  producerId             -1 when not idempotent
        51     2  producerEpoch          -1 when not idempotent
        53     4  baseSequence           -1 when not idempotent
        57     4  recordsCount
        61        records

The header is separate from the records, so that a batch can get another identity while a transport still reads the
old header.

Source: DefaultRecordBatch in Apache Kafka.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int16_t, int32_t, uint32_t
from libc.string cimport memcmp, memcpy

from aioproducer._native.append cimport BATCH_HEADER_SIZE, RecordBatchBuilder
from aioproducer._native.big_endian cimport get_int16, get_int32, get_int64, put_int16, put_int32, put_int64
from aioproducer._native.varint cimport put_unsigned_varint

cdef enum:
    ONE = 2                       # the length of an array with one element, in flexible versions
    TOPIC_ID_BYTES = 16
    LONGEST_SHORT_NAME = 126      # bytes: the length of a longer name takes another byte
    PARTITION_BYTES = 30          # index, error code, base offset, log append time, log start offset
    PLAIN_END_BYTES = 4           # no record errors, null message, no tagged fields; the end of the topic
    THROTTLE_BYTES = 4
    CHEAPER_TO_COPY = 1024        # bytes of records
    NOT_COUNTED_IN_LENGTH = 12
    BYTES_TO_ATTRIBUTES = 21
    TRANSACTIONAL = 1 << 4
    IS_TRANSACTIONAL = 3          # of a BatchIdentity
    IDENTITY_FIELDS = 4

cdef object crc32c = None

cdef const char* PLAIN_END = b"\x01\x00\x00\x00"
cdef bytes NO_TAGGED_FIELDS = b"\x00"
cdef tuple NOTHING_MORE = ((), None, -1, -1)  # record errors, message, leader id, leader epoch


def append_batches(list pieces not None, bytes glue not None, batches, bint flexible):
    cdef RecordBatchBuilder batch
    cdef char[10] length
    cdef Py_ssize_t length_size
    cdef Py_ssize_t copied
    cdef bytes piece
    cdef char* at
    for batch in batches:
        if flexible:
            length_size = put_unsigned_varint(length, BATCH_HEADER_SIZE + batch.size + 1) - length
        else:
            length_size = put_int32(length, BATCH_HEADER_SIZE + batch.size) - length
        copied = batch.size if batch.size <= CHEAPER_TO_COPY else 0
        piece = PyBytes_FromStringAndSize(
            NULL, PyBytes_GET_SIZE(glue) + 4 + length_size + BATCH_HEADER_SIZE + copied
        )
        at = PyBytes_AS_STRING(piece)
        memcpy(at, PyBytes_AS_STRING(glue), PyBytes_GET_SIZE(glue))
        at = put_int32(at + PyBytes_GET_SIZE(glue), batch.result.topic_partition[1])
        memcpy(at, length, length_size)
        at = put_header(at + length_size, batch)
        memcpy(at, batch.chunk.data + batch.start, copied)
        pieces.append(piece)
        if not copied:
            pieces.append(batch.records())
        glue = NO_TAGGED_FIELDS if flexible else b""
    return glue + NO_TAGGED_FIELDS if flexible else glue


cdef char* put_header(char* at, RecordBatchBuilder batch) except NULL:
    """Writes the header of a batch under its present identity."""
    cdef tuple identity = <tuple>batch.identity  # a named tuple, whose own unpacking is slow
    cdef int16_t epoch
    cdef int32_t sequence
    cdef char* covered = at + BYTES_TO_ATTRIBUTES  # by the checksum, with the records
    cdef char* end = covered
    if not isinstance(batch.identity, tuple) or len(identity) != IDENTITY_FIELDS:
        raise TypeError(f"identity must be a BatchIdentity, got {batch.identity!r}")
    if batch.start < 0 or batch.size < 0 or batch.start + batch.size > batch.chunk.capacity:
        raise ValueError(f"the records end at {batch.start + batch.size} of {batch.chunk.capacity} bytes")
    epoch, sequence = identity[1], identity[2]  # one that does not fit is a defect: OverflowError
    end = put_int16(end, batch.compression | TRANSACTIONAL if identity[IS_TRANSACTIONAL] else batch.compression)
    end = put_int32(end, batch.count - 1)
    end = put_int64(end, batch.base_timestamp)
    end = put_int64(end, batch.max_timestamp)
    end = put_int64(end, identity[0])
    end = put_int16(end, epoch)
    end = put_int32(end, sequence)
    end = put_int32(end, batch.count)
    at = put_int64(at, 0)
    at = put_int32(at, BATCH_HEADER_SIZE - NOT_COUNTED_IN_LENGTH + batch.size)
    at = put_int32(at, -1)
    at[0] = 2
    put_int32(at + 1, checksum(covered, end - covered, batch))
    return end


cdef uint32_t checksum(char* covered, Py_ssize_t size, RecordBatchBuilder batch) except? 0:
    """CRC-32C of so many bytes, and the batch's records."""
    global crc32c
    if crc32c is None:
        from crc32c import crc32c as found  # on first use: its import costs a fifth of this package's own

        crc32c = found
    before = crc32c(PyMemoryView_FromMemory(covered, size, PyBUF_READ))
    return crc32c(PyMemoryView_FromMemory(batch.chunk.data + batch.start, batch.size, PyBUF_READ), before)


def encode_header(RecordBatchBuilder batch not None):
    cdef bytes header = PyBytes_FromStringAndSize(NULL, BATCH_HEADER_SIZE)
    put_header(PyBytes_AS_STRING(header), batch)
    return header


def plain_response(payload, bint by_id):
    cdef Py_buffer buffer
    PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
    try:
        return read_plain(<const unsigned char*>buffer.buf, buffer.len, by_id)
    finally:
        PyBuffer_Release(&buffer)


cdef object read_plain(const unsigned char* content, Py_ssize_t size, bint by_id):
    # before the partition come the array length and the topic, and before its fields the length of their array
    cdef Py_ssize_t start = size - (1 + PARTITION_BYTES + PLAIN_END_BYTES + THROTTLE_BYTES + 1)
    cdef const unsigned char* at
    cdef Py_ssize_t index
    if by_id:
        if start != 1 + TOPIC_ID_BYTES:
            return None
    elif start < 2 or start > 2 + LONGEST_SHORT_NAME or content[1] != start - 1:
        return None
    at = content + start
    if content[0] != ONE or at[0] != ONE or content[size - 1] or get_int64(at + 7) < -1:
        return None
    if memcmp(at + 1 + PARTITION_BYTES, PLAIN_END, PLAIN_END_BYTES):
        return None
    if not by_id:
        for index in range(2, start):
            if content[index] >= 0x80:
                return None
    fields = (
        None if by_id else content[2:start].decode("ascii"),
        content[1:start] if by_id else None,
        get_int32(at + 1),
        get_int16(at + 5),
        get_int64(at + 7),
        get_int64(at + 15),
        get_int64(at + 23),
    ) + NOTHING_MORE
    return get_int32(at + 1 + PARTITION_BYTES + PLAIN_END_BYTES), fields
