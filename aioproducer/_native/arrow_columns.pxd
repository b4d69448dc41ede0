"""The columns of an Arrow batch, read from Arrow's own buffers.

The structures are those of Arrow's C data interface. Source: docs/source/format/CDataInterface.rst in Apache Arrow.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data


cdef struct Validity:
    bint is_all_null                         # there is no such column, or it holds nothing else
    const uint8_t* bits                      # NULL: no row is null
    int64_t first                            # bit of the first row


cdef struct Offsets:                         # where rows begin and end; one of them is NULL
    const int32_t* narrow
    const int64_t* wide


cdef struct BytesColumn:
    Validity validity
    Offsets offsets
    const char* data
    bint is_text                             # its bytes should be UTF-8


cdef struct IntegerColumn:
    Validity validity
    const void* data
    int width                                # bytes of a number
    bint is_signed
    int64_t multiplier                       # a time in seconds
    int64_t divisor                          # a time in parts of milliseconds


cdef struct HeadersColumn:
    Validity validity
    Offsets offsets
    Validity pairs
    BytesColumn names
    BytesColumn values


cdef inline bint is_null(const Validity* validity, int64_t row) noexcept nogil:
    if validity.bits == NULL:
        return validity.is_all_null
    row += validity.first
    return not (validity.bits[row >> 3] >> (row & 7)) & 1


cdef inline int64_t offset_at(const Offsets* offsets, int64_t row) noexcept nogil:
    return offsets.narrow[row] if offsets.narrow != NULL else offsets.wide[row]


cdef inline Py_ssize_t bytes_at(const BytesColumn* column, int64_t row, const char** data) noexcept nogil:
    """Returns the size of a row's value and points `data` to it; -1 is null."""
    cdef int64_t start
    if is_null(&column.validity, row):
        return -1
    start = offset_at(&column.offsets, row)
    data[0] = column.data + start
    return offset_at(&column.offsets, row + 1) - start


cdef inline int64_t small_integer_at(const IntegerColumn* column, int64_t row) noexcept nogil:
    if column.is_signed:
        if column.width == 4:
            return (<const int32_t*>column.data)[row]
        return (<const int16_t*>column.data)[row] if column.width == 2 else (<const int8_t*>column.data)[row]
    if column.width == 4:
        return (<const uint32_t*>column.data)[row]
    return (<const uint16_t*>column.data)[row] if column.width == 2 else (<const uint8_t*>column.data)[row]


cdef inline int64_t integer_at(const IntegerColumn* column, int64_t row) noexcept nogil:
    """Returns the number of a row that is not null, a time in milliseconds; negative if it does not fit."""
    cdef int64_t number
    if column.width != 8:
        return small_integer_at(column, row)
    number = (<const int64_t*>column.data)[row]  # negative too if it is unsigned and beyond 63 bits
    if column.multiplier == 1:
        return number // column.divisor
    if number < 0 or number > 0x7FFFFFFFFFFFFFFFLL // column.multiplier:
        return -1
    return number * column.multiplier


cdef class ArrowRows:
    cdef tuple _owners                       # capsules that own the buffers
    cdef readonly int64_t length
    cdef BytesColumn value
    cdef BytesColumn key
    cdef IntegerColumn partition
    cdef IntegerColumn timestamp
    cdef HeadersColumn headers

    cdef tuple row(self, int64_t row)


cdef bint is_utf8(const char* data, Py_ssize_t size) except -1
