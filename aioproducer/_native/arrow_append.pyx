# cython: language_level=3
"""The rows of Arrow batches into the batches of their partitions, without an object per row.

A row that an append would refuse, or that must wait, is made into objects and goes the way of a row of `send_many`.
"""

from libc.stdint cimport int64_t

from aioproducer._native.append cimport (
    BATCH_HEADER_SIZE, NO_HEADERS, OpenPartition, RecordAppender, RecordBatchBuilder, TopicInfo, is_keyless, room_for,
    write, write_record,
)
from aioproducer._native.append_many cimport BulkAppend, Share, extend, share_of
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
        cdef TopicInfo topic_info = appender.find_topic(self._topic)  # one that is in use stays in use
        self.waiting = None
        self.is_at_row = False
        while self._has_row():
            if not self._append_stretch(topic_info):
                self._take(topic_info, self._row())
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

    cdef bint _append_stretch(self, TopicInfo topic_info) except -1:
        """Appends up to `STRETCH` rows; returns False if the next one has to be taken as objects."""
        cdef RecordAppender appender = self._appender
        cdef RecordBytes record
        cdef int64_t end = min(self._columns.length, self._next + STRETCH)
        if appender.busy or topic_info is None or topic_info.blocked_count or not appender.is_open_here():
            return False
        cdef int64_t now = appender._now_ms()
        appender.busy = True
        try:
            while self._next < end:
                if not read_row(self._columns, self._next, appender, &record, now):
                    return False
                if not self._append_row(topic_info, &record):
                    self.waiting = self._columns.row(self._next - 1)
                    break
                if appender.pause_wanted or appender.closed or topic_info.blocked_count:
                    break
                if is_sticky(appender, &record):
                    self._append_run(topic_info, end, now)
        finally:
            appender.busy = False
        return True

    cdef bint _append_row(self, TopicInfo topic_info, const RecordBytes* record) except -1:
        """Appends the record of the next row; returns False if it must wait."""
        cdef RecordBatchBuilder builder
        self._next += 1
        self.position += 1
        self.is_at_row = True
        builder = room_for(self._appender, topic_info, record)
        if builder is None:
            return False
        extend(share_of(self, self._appender._partition, builder), self.position, builder.count, 1)
        write(self._appender, builder, record)
        self.is_at_row = False
        return True

    cdef int _append_run(self, TopicInfo topic_info, int64_t end, int64_t now) except -1:
        """Appends keyless rows behind one, as long as the batch that has it takes them and does not become full.

        No code in Python runs meanwhile, and nothing is allocated but room for headers.
        """
        cdef RecordAppender appender = self._appender
        cdef OpenPartition partition = appender._partition
        cdef RecordBatchBuilder builder = partition.open_batch
        cdef Share share
        cdef RecordBytes record
        cdef Py_ssize_t room
        cdef int before
        if builder is None or partition.waiting_count or topic_info.waiting_count:
            return 0
        if partition.number != topic_info.sticky:
            return 0
        share = share_of(self, partition, builder)
        before = builder.count
        if share._next_position != self.position + 1 or share._next_index != before:
            return 0
        while self._next < end and read_row(self._columns, self._next, appender, &record, now):
            room = min(builder.chunk.capacity, builder.limit) - builder.size
            room = min(room, appender.batch_size - BATCH_HEADER_SIZE - topic_info.sticky_bytes)
            if record.size >= room or not is_sticky(appender, &record):
                break
            topic_info.sticky_bytes += record.size
            write_record(builder, &record)
            self._next += 1
        extend(share, self.position + 1, before, builder.count - before)
        self.position += builder.count - before
        return 0


cdef inline bint is_sticky(RecordAppender appender, const RecordBytes* record) noexcept:
    """Whether the record goes to the sticky partition."""
    return record.partition < 0 and is_keyless(appender, record)


cdef inline bint read_row(
    ArrowRows columns, int64_t row, RecordAppender appender, RecordBytes* record, int64_t now
) noexcept:
    """Reads a row; returns False if a part of it is not allowed, or needs a closer look."""
    record.key_size = bytes_at(&columns.key, row, &record.key)
    record.value_size = bytes_at(&columns.value, row, &record.value)
    if max(record.key_size, record.value_size) > appender.max_record_size:  # too large to be added up
        return False
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
        try:
            if not write_headers(appender, &columns.headers, row):
                return False
        except MemoryError:
            return False
        record.headers = appender._scratch
        record.headers_size = appender._scratch_size
    record.size += record.headers_size
    return record.size + BATCH_HEADER_SIZE <= appender.max_record_size


cdef bint write_headers(RecordAppender appender, const HeadersColumn* column, int64_t row) except -1:
    """Writes the headers into the scratch; returns False if a pair or name is null, a text not UTF-8, or too large."""
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
        value_size = bytes_at(&column.values, pair, &value)
        if max(name_size, value_size) > appender.max_record_size:
            return False
        if name_size < 0 or not is_utf8(name, name_size):
            return False
        if column.values.is_text and value_size > 0 and not is_utf8(value, value_size):
            return False
        appender._scratch_room(appender._scratch_size + name_size + max(value_size, 0) + 21)
        at = put_bytes(appender._scratch + appender._scratch_size, name, name_size)
        at = put_bytes(at, value, value_size)
        appender._scratch_size = at - appender._scratch
    return True
