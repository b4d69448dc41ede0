# cython: language_level=3
"""Appends the records of one bulk call: one native call for as many as have room.

No handle is made for a record. What is kept is where runs of records stand, in the call and in their batch.
"""

from cpython cimport array
import array

from aioproducer._native.append cimport OpenPartition, RecordAppender, RecordBatchBuilder, TopicInfo, room_for, write
from aioproducer._native.arguments cimport as_bytes
from aioproducer._native.delivery cimport BatchResult, new_delivery
from aioproducer._native.record_bytes cimport RecordBytes

cdef array.array NUMBERS = array.array("i")


cdef class Share:

    def __cinit__(self, BatchResult batch_result not None):
        self.batch_result = batch_result
        self._runs = array.clone(NUMBERS, 0, False)

    cdef int _begin_run(self, int position, int index) except -1:
        cdef Py_ssize_t size = len(self._runs)
        array.resize_smart(self._runs, size + 3)
        self._runs.data.as_ints[size] = position
        self._runs.data.as_ints[size + 1] = index
        self._runs.data.as_ints[size + 2] = 0
        return 0

    def __len__(self):
        return self._size

    @property
    def first(self):
        return self._runs.data.as_ints[1]

    @property
    def last(self):
        return self._next_index - 1

    def deliveries(self):
        runs = iter(self._runs)
        return [
            (position + record, new_delivery(self.batch_result, index + record, -1))
            for position, index, records in zip(runs, runs, runs)
            for record in range(records)
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
        self._latest = []
        self.shares = []
        self.position = -1
        self.waiting = None

    def run(self):
        cdef RecordAppender appender = self._appender
        cdef TopicInfo topic_info = appender.find_topic(self._topic)  # one that is in use stays in use
        self.waiting = None
        self.is_at_row = False
        for row in self._rows:
            if not self._take(topic_info, row):
                return False
            if appender.pause_wanted:
                appender.pause_wanted = False
                return False
        return True

    def remaining(self):
        return self._rows

    cdef bint _take(self, TopicInfo topic_info, row) except -1:
        """Appends a row; returns False if it must wait, and is `waiting`."""
        self.position += 1
        self.is_at_row = True
        self._appender.check_open()
        value, key, partition, timestamp, headers = row
        is_blocked = self._appender.busy or topic_info is None or topic_info.blocked_count
        if is_blocked or not self._append(topic_info, value, key, partition, timestamp, headers):
            self.waiting = row
            return False
        self.is_at_row = False
        return True

    cdef bint _append(self, TopicInfo topic_info, value, key, partition, timestamp, headers) except -1:
        """Appends the record of a row; returns False if it must wait."""
        cdef RecordAppender appender = self._appender
        cdef RecordBytes record
        cdef RecordBatchBuilder builder
        cdef bytes value_bytes = as_bytes(value, "value")
        cdef bytes key_bytes = as_bytes(key, "key")
        appender.busy = True
        try:
            appender.unpack(&record, self._topic, key_bytes, value_bytes, partition, timestamp, headers)
            builder = room_for(appender, topic_info, &record)
            if builder is None:
                return False
            extend(share_of(self, appender._partition, builder), self.position, builder.count, 1)
            write(appender, builder, &record)
        finally:
            appender.busy = False
        return True

    cdef Share _new_share(self, OpenPartition partition, RecordBatchBuilder builder):
        cdef Share share = Share(builder.result)
        while len(self._latest) <= partition.number:
            self._latest.append(None)
        self._latest[partition.number] = share
        self.shares.append(share)
        return share
