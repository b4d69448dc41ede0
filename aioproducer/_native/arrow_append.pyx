# cython: language_level=3
"""The rows of Arrow batches into the batches of their partitions, without an object per row.

A row that an append would refuse, or that must wait, is made into objects and goes the way of a row of `send_many`.
"""

from libc.stdint cimport int64_t

from aioproducer._native.append cimport BATCH_HEADER_SIZE, NO_HEADERS, RecordAppender, RecordBatchBuilder, TopicInfo
from aioproducer._native.append_many cimport BulkAppend
from aioproducer._native.arrow_columns cimport (
    ArrowRows, HeadersColumn, bytes_at, integer_at, is_null, is_utf8, offset_at,
)
from aioproducer._native.record_bytes cimport RECORD_OVERHEAD, RecordBytes, put_bytes
from aioproducer._native.varint cimport put_varint

cdef enum:
    STRETCH = 1024                           # rows for which the clock is read once


cdef class ArrowAppend(BulkAppend):

    def run(self):
        cdef RecordAppender appender = self._appender
        cdef TopicInfo slots = appender.find_topic(self._topic)  # one that is in use stays in use
        self.waiting = None
        self.is_at_row = False
        while self._has_row():
            if not self._append_stretch(slots):
                self._take(slots, self._row())
            if self.waiting is not None:
                return False
            if appender.pause_wanted:
                appender.pause_wanted = False
                return False
        return True

    def remaining(self):
        while self._has_row():
            yield self._row()

    cdef bint _has_row(self) except -1:
        while self._columns is None or self._next >= self._columns.length:
            self._columns, self._next = None, 0  # before the next batch is made
            try:
                self._columns = next(self._rows)
            except StopIteration:
                return False
        return True

    cdef tuple _row(self):
        self._next += 1
        return self._columns.row(self._next - 1)

    cdef bint _append_stretch(self, TopicInfo slots) except -1:
        """False: the next row has to be taken as objects."""
        cdef RecordAppender appender = self._appender
        cdef RecordBatchBuilder builder
        cdef RecordBytes record
        cdef int64_t now
        cdef int64_t end = min(self._columns.length, self._next + STRETCH)
        if appender.busy or slots is None or slots.held or not appender.is_open_here():
            return False
        now = appender._now_ms()
        appender.busy = True
        try:
            while self._next < end:
                if not self._read_row(appender, &record, now):
                    return False
                self._next += 1
                self.position += 1
                self.is_at_row = True
                builder = appender.room_for(slots, &record)
                if builder is None:
                    self.waiting = self._columns.row(self._next - 1)
                    break
                self._share_of(appender._slot, builder).add(self.position, builder.count)
                appender.write(builder, &record)
                self.is_at_row = False
                if appender.pause_wanted or appender.closed or slots.held:
                    break
        finally:
            appender.busy = False
        return True

    cdef bint _read_row(self, RecordAppender appender, RecordBytes* record, int64_t now) except -1:
        """False: a part of the row is not allowed, or needs a closer look."""
        cdef ArrowRows columns = self._columns
        cdef int64_t row = self._next
        record.key_size = bytes_at(&columns.key, row, &record.key)
        record.value_size = bytes_at(&columns.value, row, &record.value)
        record.size = RECORD_OVERHEAD + max(record.key_size, 0) + max(record.value_size, 0)
        record.partition = -1
        if not is_null(&columns.partition.validity, row):
            record.partition = integer_at(&columns.partition, row)
            if record.partition < 0 or record.partition > 0x7FFFFFFF:
                return False
        record.timestamp = now
        if not is_null(&columns.timestamp.validity, row):
            record.timestamp = integer_at(&columns.timestamp, row)
            if record.timestamp < 0:
                return False
        record.headers = NO_HEADERS
        record.headers_size = 1
        if not is_null(&columns.headers.validity, row):
            if not write_headers(appender, &columns.headers, row):
                return False
            record.headers = appender._scratch
            record.headers_size = appender._scratch_size
        record.size += record.headers_size
        return record.size + BATCH_HEADER_SIZE <= appender.max_record_size


cdef bint write_headers(RecordAppender appender, const HeadersColumn* column, int64_t row) except -1:
    """Writes the section of headers into the scratch; False: a pair or name is null, or a text is not UTF-8."""
    cdef const char* name = NULL
    cdef const char* value = NULL
    cdef Py_ssize_t name_size
    cdef Py_ssize_t value_size
    cdef int64_t pair
    cdef int64_t start = offset_at(&column.offsets, row)
    cdef int64_t end = offset_at(&column.offsets, row + 1)
    cdef char* at
    appender._scratch_room(10)
    appender._scratch_size = put_varint(appender._scratch, end - start) - appender._scratch
    for pair in range(start, end):
        name_size = -1 if is_null(&column.pairs, pair) else bytes_at(&column.names, pair, &name)
        if name_size < 0 or not is_utf8(name, name_size):
            return False
        value_size = bytes_at(&column.values, pair, &value)
        if column.values.is_text and value_size > 0 and not is_utf8(value, value_size):
            return False
        appender._scratch_room(appender._scratch_size + name_size + max(value_size, 0) + 21)
        at = put_bytes(appender._scratch + appender._scratch_size, name, name_size)
        at = put_bytes(at, value, value_size)
        appender._scratch_size = at - appender._scratch
    return True
