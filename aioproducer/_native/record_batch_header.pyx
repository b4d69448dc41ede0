# cython: language_level=3
"""Header of a record batch, format v2: the 61 bytes before the records.

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

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint32_t

from aioproducer._native.append cimport BATCH_HEADER_SIZE, RecordBatchBuilder
from aioproducer._native.big_endian cimport put_int16, put_int32, put_int64

HEADER_SIZE = BATCH_HEADER_SIZE

cdef enum:
    NOT_COUNTED_IN_LENGTH = 12
    BYTES_TO_ATTRIBUTES = 21
    TRANSACTIONAL = 1 << 4
    IS_TRANSACTIONAL = 3          # of a BatchIdentity
    IDENTITY_FIELDS = 4

cdef object crc32c = None


cdef char* put_header(char* at, RecordBatchBuilder batch) except NULL:
    """Writes the header of a batch under its present identity."""
    cdef tuple identity = <tuple>batch.identity  # a named tuple, whose own unpacking is slow
    cdef char* covered = at + BYTES_TO_ATTRIBUTES  # by the checksum, with the records
    cdef char* end = covered
    if not isinstance(batch.identity, tuple) or len(identity) != IDENTITY_FIELDS:
        raise TypeError(f"identity must be a BatchIdentity, got {batch.identity!r}")
    if batch.start < 0 or batch.size < 0 or batch.start + batch.size > batch.chunk.capacity:
        raise ValueError(f"the records end at {batch.start + batch.size} of {batch.chunk.capacity} bytes")
    end = put_int16(end, batch.compression | TRANSACTIONAL if identity[IS_TRANSACTIONAL] else batch.compression)
    end = put_int32(end, batch.count - 1)
    end = put_int64(end, batch.base_timestamp)
    end = put_int64(end, batch.max_timestamp)
    end = put_int64(end, identity[0])
    end = put_int16(end, identity[1])
    end = put_int32(end, identity[2])
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
