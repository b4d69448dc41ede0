# cython: language_level=3
"""Appends the records of one bulk call: one native call for as many as have room.

No handle is made for a record. What is kept of it is where it stands, in the call and in its batch, eight bytes.
"""

from cpython cimport array
import array

from aioproducer._native.append cimport RecordAppender, RecordBatchBuilder, TopicInfo
from aioproducer._native.arguments cimport as_bytes
from aioproducer._native.delivery cimport BatchResult, new_delivery
from aioproducer._native.record_bytes cimport RecordBytes

cdef array.array NUMBERS = array.array("i")


cdef class Share:

    def __cinit__(self, BatchResult batch_result not None):
        self.batch_result = batch_result
        self._positions = array.clone(NUMBERS, 0, False)
        self._indexes = array.clone(NUMBERS, 0, False)

    cdef int add(self, int position, int index) except -1:
        cdef Py_ssize_t size = len(self._positions)
        array.resize_smart(self._positions, size + 1)
        array.resize_smart(self._indexes, size + 1)
        self._positions.data.as_ints[size] = position
        self._indexes.data.as_ints[size] = index
        return 0

    def __len__(self):
        return len(self._positions)

    @property
    def first(self):
        return self._indexes.data.as_ints[0]

    @property
    def last(self):
        return self._indexes.data.as_ints[len(self._indexes) - 1]

    def deliveries(self):
        return [
            (position, new_delivery(self.batch_result, index, -1))
            for position, index in zip(self._positions, self._indexes)
        ]

    def delivery(self):
        return new_delivery(self.batch_result, self.last, -1)

    def __repr__(self):
        return f"<Share of {len(self)} in {self.batch_result!r}>"


cdef class BulkAppend:

    def __cinit__(self, RecordAppender appender not None, str topic not None, rows):
        self._appender = appender
        self._topic = topic
        self._rows = iter(rows)
        self._by_result = {}
        self.shares = []
        self._last = None
        self.position = -1
        self.waiting = None

    def run(self):
        cdef RecordAppender appender = self._appender
        cdef TopicInfo slots = appender.find_topic(self._topic)  # one that is in use stays in use
        self.waiting = None
        self.is_at_row = False
        for row in self._rows:
            self.position += 1
            self.is_at_row = True
            appender.check_open()
            value, key, partition, timestamp, headers = row
            is_held = appender.busy or slots is None or slots.held
            if is_held or not self._append(slots, value, key, partition, timestamp, headers):
                self.waiting = row
                return False
            self.is_at_row = False
            if appender.pause_wanted:
                appender.pause_wanted = False
                return False
        return True

    cdef bint _append(self, TopicInfo slots, value, key, partition, timestamp, headers) except -1:
        """False if the record must wait."""
        cdef RecordAppender appender = self._appender
        cdef RecordBytes record
        cdef RecordBatchBuilder builder
        cdef bytes value_bytes = as_bytes(value, "value")
        cdef bytes key_bytes = as_bytes(key, "key")
        appender.busy = True
        try:
            appender.unpack(&record, self._topic, key_bytes, value_bytes, partition, timestamp, headers)
            builder = appender.room_for(slots, &record)
            if builder is None:
                return False
            self._share_of(builder.result).add(self.position, builder.count)
            appender.write(builder, &record)
        finally:
            appender.busy = False
        return True

    cdef Share _share_of(self, BatchResult batch_result):
        cdef Share share = self._last
        if share is None or share.batch_result is not batch_result:
            share = self._by_result.get(batch_result)
            if share is None:
                share = self._by_result[batch_result] = Share(batch_result)
                self.shares.append(share)
            self._last = share
        return share
