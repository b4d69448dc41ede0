# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Checks the records of one v2 batch, as a broker does.

A record, all lengths and deltas as zigzag varints (KIP-98):

    length           varint    bytes that follow, of this record
    attributes       int8      unused, 0
    timestampDelta   varlong   from the batch's baseTimestamp
    offsetDelta      varint    0, 1, 2, ... within the batch
    keyLength        varint    -1: null
    key              bytes
    valueLength      varint    -1: null
    value            bytes
    headers          varint count, then (varint length, key bytes, varint length or -1, value bytes) each
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t


cdef enum:
    MAX_REJECTED = 16  # as many indices are kept; a broker names three
    OK = 0
    TRUNCATED = 1
    BAD_VARINT = 2
    BAD_LENGTH = 3
    BAD_OFFSET_DELTA = 4
    BAD_HEADERS = 5
    TRAILING_BYTES = 6

cdef tuple MESSAGES = (
    "",
    "the batch ends inside a record",
    "a varint has more bytes than its type",
    "the lengths inside a record do not add up to its own length",
    "offset deltas are not 0, 1, 2, ...",
    "the headers of a record are malformed",
    "bytes are left after the last record",
)


cdef struct Cursor:
    const uint8_t* at   # next byte to read
    const uint8_t* end  # one past the last byte that may be read
    int fault           # 0, or the first thing found wrong


cdef struct Limits:
    int64_t base_timestamp  # ms, of the batch
    int64_t low             # ms, lowest timestamp allowed
    int64_t high            # ms, highest timestamp allowed
    bint keys_required      # a compacted topic


cdef struct Findings:
    int64_t max_timestamp         # ms
    int64_t max_timestamp_index   # first record that has it
    int64_t out_of_range          # records whose timestamp is outside the limits
    int64_t without_key           # records without a key where one is required
    int64_t[16] late_at           # indices of the first of them
    int64_t[16] keyless_at        # as above


cdef inline int64_t read_varint(Cursor* cursor, int max_bytes) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef int taken = 0
    cdef uint8_t byte
    while taken < max_bytes:
        if cursor.at >= cursor.end:
            cursor.fault = TRUNCATED
            return 0
        byte = cursor.at[0]
        cursor.at += 1
        taken += 1
        raw |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        shift += 7
    cursor.fault = BAD_VARINT
    return 0


cdef inline int64_t skip_bytes(Cursor* cursor, bint nullable) noexcept nogil:
    """Skips a varint length and as many bytes; returns the length, -1 for null."""
    cdef int64_t length = read_varint(cursor, 5)
    if cursor.fault:
        return 0
    if length < 0:
        if length != -1 or not nullable:
            cursor.fault = BAD_LENGTH
        return -1
    if length > cursor.end - cursor.at:
        cursor.fault = BAD_LENGTH
        return 0
    cursor.at += length
    return length


cdef inline void skip_headers(Cursor* cursor) noexcept nogil:
    cdef int64_t count = read_varint(cursor, 5)
    if not cursor.fault and (count < 0 or count > cursor.end - cursor.at):
        cursor.fault = BAD_HEADERS
    while count > 0 and not cursor.fault:
        skip_bytes(cursor, False)
        if not cursor.fault:
            skip_bytes(cursor, True)
        count -= 1


cdef inline void note_timestamp(int64_t index, int64_t timestamp, Limits* limits, Findings* findings) noexcept nogil:
    if timestamp > findings.max_timestamp:
        findings.max_timestamp = timestamp
        findings.max_timestamp_index = index
    if timestamp != -1 and (timestamp < limits.low or timestamp > limits.high):
        if findings.out_of_range < MAX_REJECTED:
            findings.late_at[findings.out_of_range] = index
        findings.out_of_range += 1


cdef inline void note_missing_key(int64_t index, Findings* findings) noexcept nogil:
    if findings.without_key < MAX_REJECTED:
        findings.keyless_at[findings.without_key] = index
    findings.without_key += 1


cdef int walk_record(Cursor* batch, int64_t index, Limits* limits, Findings* findings) noexcept nogil:
    cdef Cursor record
    cdef int64_t length = read_varint(batch, 5)
    cdef int64_t delta
    if batch.fault:
        return batch.fault
    if length < 1:
        return BAD_LENGTH
    if length > batch.end - batch.at:
        return TRUNCATED
    record.at = batch.at + 1  # past the attributes
    record.end = batch.at + length
    record.fault = OK
    batch.at = record.end
    delta = read_varint(&record, 10)
    if not record.fault and read_varint(&record, 5) != index:
        return record.fault if record.fault else BAD_OFFSET_DELTA
    if not record.fault:
        note_timestamp(index, <int64_t>(<uint64_t>limits.base_timestamp + <uint64_t>delta), limits, findings)
        if skip_bytes(&record, True) < 0 and limits.keys_required and not record.fault:
            note_missing_key(index, findings)
    if not record.fault:
        skip_bytes(&record, True)
    if not record.fault:
        skip_headers(&record)
    if not record.fault and record.at != record.end:
        return BAD_LENGTH
    return record.fault


cdef int walk_batch(Cursor* batch, int64_t count, Limits* limits, Findings* findings, int64_t* index) noexcept nogil:
    cdef int fault
    while index[0] < count:
        fault = walk_record(batch, index[0], limits, findings)
        if fault:
            return fault
        index[0] += 1
    return TRAILING_BYTES if batch.at != batch.end else OK


cdef list first_of(int64_t* indices, int64_t count):
    cdef int64_t kept = count if count < MAX_REJECTED else MAX_REJECTED
    cdef list found = []
    for i in range(kept):
        found.append(indices[i])
    return found


def check_records(const uint8_t[::1] records, int64_t count, *, int64_t base_timestamp, int64_t low, int64_t high,
                  bint keys_required=False):
    cdef Cursor batch
    cdef Limits limits
    cdef Findings findings
    cdef int64_t index = 0
    cdef int fault
    batch.at = &records[0] if records.shape[0] else NULL
    batch.end = batch.at + records.shape[0]
    batch.fault = OK
    limits.base_timestamp, limits.low, limits.high = base_timestamp, low, high
    limits.keys_required = keys_required
    findings.max_timestamp = -1
    findings.max_timestamp_index = findings.out_of_range = findings.without_key = 0
    with nogil:
        fault = walk_batch(&batch, count, &limits, &findings, &index)
    if fault:
        raise ValueError(f"record {index} of {count}: {MESSAGES[fault]}")
    return (
        findings.max_timestamp,
        findings.max_timestamp_index,
        findings.out_of_range,
        first_of(findings.late_at, findings.out_of_range),
        findings.without_key,
        first_of(findings.keyless_at, findings.without_key),
    )
