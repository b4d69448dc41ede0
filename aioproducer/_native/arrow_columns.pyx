# cython: language_level=3
"""The columns of an Arrow batch, read from Arrow's own buffers.

Another library wrote the structures, so what they say is checked when a column is opened. The interface does not tell
the sizes of buffers: `_producer/arrow.py` has pyarrow check those it knows.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport strchr, strcmp, strncmp

cdef int64_t MOST_ROWS = <int64_t>1 << 60    # an offset and a length can be added

cdef struct Source:                          # a column, or a part of one
    const char* part                         # of a record
    const ArrowSchema* schema
    const ArrowArray* array
    int64_t first                            # row of the array
    int64_t length


cdef class ArrowRows:

    def __cinit__(self, int64_t length, *columns):
        value, key, partition, timestamp, headers = columns
        self._owners = columns
        self.length = length
        open_bytes(&self.value, source_of("value", value, length))
        open_bytes(&self.key, source_of("key", key, length))
        open_integers(&self.partition, source_of("partition", partition, length))
        open_integers(&self.timestamp, source_of("timestamp", timestamp, length))
        open_headers(&self.headers, source_of("headers", headers, length))

    def __len__(self):
        return self.length

    def __getitem__(self, int64_t row):
        if row < 0 or row >= self.length:
            raise IndexError(f"row {row} of {self.length}")
        return self.row(row)

    cdef tuple row(self, int64_t row):
        return (
            bytes_of(&self.value, row), bytes_of(&self.key, row), integer_of(&self.partition, row),
            integer_of(&self.timestamp, row), headers_of(&self.headers, row),
        )


# Rows as Python objects

cdef bytes bytes_of(const BytesColumn* column, int64_t row):
    cdef const char* data = NULL
    cdef Py_ssize_t size = bytes_at(column, row, &data)
    return None if size < 0 else PyBytes_FromStringAndSize(data, size)


cdef object integer_of(const IntegerColumn* column, int64_t row):
    if is_null(&column.validity, row):
        return None
    if column.width == 8 and not column.is_signed:
        return (<const uint64_t*>column.data)[row]
    if column.multiplier > 1:
        return int((<const int64_t*>column.data)[row]) * column.multiplier
    return integer_at(column, row)


cdef tuple headers_of(const HeadersColumn* column, int64_t row):
    """One None stands for pairs with a text that is not UTF-8: an append refuses it."""
    cdef int64_t pair
    cdef list pairs = []
    if is_null(&column.validity, row):
        return None
    for pair in range(offset_at(&column.offsets, row), offset_at(&column.offsets, row + 1)):
        if is_null(&column.pairs, pair):
            pairs.append(None)
            continue
        name, value = bytes_of(&column.names, pair), bytes_of(&column.values, pair)
        try:
            pairs.append((None if name is None else name.decode(), value))
            if column.values.is_text and value is not None:
                value.decode()
        except UnicodeDecodeError:
            return (None,)
    return tuple(pairs) or None


cdef bint is_utf8(const char* data, Py_ssize_t size) except -1:
    cdef Py_ssize_t i
    cdef char all_bits = 0
    for i in range(size):
        all_bits |= data[i]
    if not all_bits & 0x80:
        return True
    try:
        PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


# Opening columns

cdef Source source_of(const char* part, column, int64_t length) except *:
    """The column that two capsules hold; None is no column, and every row null."""
    cdef Source source
    source.part, source.schema, source.array, source.first, source.length = part, NULL, NULL, 0, length
    if column is None:
        return source
    schema, array = column
    source.schema = <const ArrowSchema*>PyCapsule_GetPointer(schema, "arrow_schema")
    source.array = <const ArrowArray*>PyCapsule_GetPointer(array, "arrow_array")
    if source.array.length != length:
        raise ValueError(f"{described(source)} has {source.array.length} rows, not {length}")
    return rows_of(source, source.schema, source.array, 0, length)


cdef str described(Source source):
    return f"the column for {source.part.decode()}"


cdef Source rows_of(
    Source source, const ArrowSchema* schema, const ArrowArray* array, int64_t first, int64_t length
) except *:
    """Some rows of a column, or of its child."""
    if schema == NULL or array == NULL or array.release == NULL:
        raise ValueError(f"{described(source)} was released")
    if not (0 <= array.offset <= MOST_ROWS and 0 <= array.length <= MOST_ROWS and first + length <= array.length):
        raise ValueError(
            f"{described(source)} has {array.length} rows from {array.offset}; {length} are needed from {first}"
        )
    source.schema, source.array, source.first, source.length = schema, array, array.offset + first, length
    return source


cdef int check_parts(Source source, int64_t buffers, int64_t children) except -1:
    if source.array.n_buffers != buffers or source.array.n_children != children or source.schema.n_children != children:
        raise ValueError(
            f"{described(source)}, of Arrow's format {source.schema.format.decode()!r}, has {source.array.n_buffers} "
            f"buffers and {source.array.n_children} children, not {buffers} and {children}"
        )
    return 0


cdef bint is_nothing(Source source) noexcept:
    return source.schema == NULL or strcmp(source.schema.format, "n") == 0


cdef void open_validity(Validity* validity, Source source) noexcept:
    validity.is_all_null = is_nothing(source)
    validity.bits = NULL
    validity.first = source.first
    if not validity.is_all_null and source.array.null_count != 0:
        validity.bits = <const uint8_t*>source.array.buffers[0]


cdef int64_t open_offsets(Offsets* offsets, Source source, bint is_wide) except -1:
    """Returns the end of the last row, after a check that no row begins before the one in front of it."""
    cdef int64_t row
    cdef bint is_backwards
    cdef const int32_t* narrow = NULL
    cdef const int64_t* wide = NULL
    offsets.narrow, offsets.wide = NULL, NULL
    if source.length == 0:
        return 0
    if source.array.buffers[1] == NULL:
        raise ValueError(f"{described(source)} has no offsets")
    if is_wide:
        wide = <const int64_t*>source.array.buffers[1] + source.first
        is_backwards = wide[0] < 0
        for row in range(source.length):
            is_backwards |= wide[row + 1] < wide[row]
    else:
        narrow = <const int32_t*>source.array.buffers[1] + source.first
        is_backwards = narrow[0] < 0
        for row in range(source.length):
            is_backwards |= narrow[row + 1] < narrow[row]
    if is_backwards:
        raise ValueError(f"{described(source)} has offsets that are negative or run backwards")
    offsets.narrow, offsets.wide = narrow, wide
    return offset_at(offsets, source.length)


cdef int open_bytes(BytesColumn* column, Source source) except -1:
    cdef const char* kind
    if is_nothing(source):
        open_validity(&column.validity, source)
        return 0
    kind = source.schema.format
    if kind[0] == 0 or strchr("zuZU", kind[0]) == NULL or kind[1] != 0:
        raise TypeError(f"{described(source)} is of Arrow's format {kind.decode()!r}, not bytes")
    check_parts(source, 3, 0)
    open_validity(&column.validity, source)
    column.is_text = kind[0] == c"u" or kind[0] == c"U"
    column.data = <const char*>source.array.buffers[2]
    if open_offsets(&column.offsets, source, kind[0] == c"Z" or kind[0] == c"U") and column.data == NULL:
        raise ValueError(f"{described(source)} has no bytes")
    if column.data == NULL:
        column.data = ""
    return 0


cdef int open_integers(IntegerColumn* column, Source source) except -1:
    cdef const char* kind
    cdef const char* kinds = "cCsSiIlL"
    cdef const char* found
    if is_nothing(source):
        open_validity(&column.validity, source)
        return 0
    kind = source.schema.format
    column.multiplier = column.divisor = 1
    if strncmp(kind, "ts", 2) == 0 and kind[2] != 0:
        column.width, column.is_signed = 8, True
        column.multiplier = 1000 if kind[2] == c"s" else 1
        column.divisor = 1000 if kind[2] == c"u" else 1_000_000 if kind[2] == c"n" else 1
    else:
        found = strchr(kinds, kind[0])
        if kind[0] == 0 or found == NULL or kind[1] != 0:
            raise TypeError(f"{described(source)} is of Arrow's format {kind.decode()!r}, not integers")
        column.width = 1 << ((found - kinds) >> 1)
        column.is_signed = kind[0] >= c"a"
    check_parts(source, 2, 0)
    open_validity(&column.validity, source)
    if source.length:
        if source.array.buffers[1] == NULL:
            raise ValueError(f"{described(source)} has no numbers")
        column.data = <const char*>source.array.buffers[1] + source.first * column.width
    return 0


cdef int open_headers(HeadersColumn* column, Source source) except -1:
    cdef const char* kind
    cdef Source pairs
    cdef int64_t end
    if is_nothing(source):
        open_validity(&column.validity, source)
        return 0
    kind = source.schema.format
    if strcmp(kind, "+l") != 0 and strcmp(kind, "+L") != 0 and strcmp(kind, "+m") != 0:
        raise TypeError(f"{described(source)} is of Arrow's format {kind.decode()!r}, not lists")
    check_parts(source, 2, 1)
    open_validity(&column.validity, source)
    end = open_offsets(&column.offsets, source, kind[1] == c"L")
    pairs = rows_of(source, source.schema.children[0], source.array.children[0], 0, end)
    if strcmp(pairs.schema.format, "+s") != 0:
        kind = pairs.schema.format
        raise TypeError(f"{described(source)} has lists of Arrow's format {kind.decode()!r}, not of pairs")
    check_parts(pairs, 1, 2)
    open_validity(&column.pairs, pairs)
    open_bytes(&column.names, rows_of(pairs, pairs.schema.children[0], pairs.array.children[0], pairs.first, end))
    open_bytes(&column.values, rows_of(pairs, pairs.schema.children[1], pairs.array.children[1], pairs.first, end))
    return 0
